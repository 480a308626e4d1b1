"""One module for each command: its options, what it does, and its output."""
