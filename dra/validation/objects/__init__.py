"""The API server's rules about one object."""
