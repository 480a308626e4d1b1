"""What drawbridge finds in files, snapshots and clusters: one reading, one outlook, one kind of finding. Prints only to stderr."""
