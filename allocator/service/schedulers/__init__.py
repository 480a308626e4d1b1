"""The HTTP calls of our scheduler plugin."""
