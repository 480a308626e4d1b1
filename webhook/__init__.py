"""The webhook: replaces the device requests in pods by claims."""
