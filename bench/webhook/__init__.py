"""Benchmarks of the webhook: in process, over TLS, with a real API server, at its start, and under attack."""
