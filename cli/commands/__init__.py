"""One file a command: what `drawbridge NAME` takes, does and prints."""
