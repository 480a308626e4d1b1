"""Systems with their own scheduler or webhook: several keys of a pod make one request."""
