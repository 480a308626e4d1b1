"""What all long-running processes share: the HTTP listener, authentication, informers, parts of controllers, and metrics.

This package imports `cluster/`, the client of the API server. `webhook/`, `allocator/` and `node/` import this package.
"""
