"""The rim: what places pods on a cluster."""
