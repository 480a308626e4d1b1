"""The port over a real API server: the official client's connection, our own reading of what comes back."""
