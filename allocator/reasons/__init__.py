"""Why not, what would have fitted, and which devices can be in use together."""
