"""The webhook: reviews in process, over TLS, on a real API server; its start, and its endurance."""
