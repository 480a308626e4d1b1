"""The command line: one command, `drawbridge`, also `kubectl drawbridge`."""
