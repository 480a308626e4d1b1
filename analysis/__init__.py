"""What drawbridge finds in files, snapshots and clusters. Nothing here prints to stdout."""
