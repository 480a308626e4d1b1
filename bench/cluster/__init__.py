"""Following a cluster."""
