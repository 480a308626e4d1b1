"""What all long-running processes share: the HTTP listener, authentication, informers, parts of controllers, and metrics.

It uses `cluster/`, the client of the API server; `webhook/`, `allocator/` and `node/` use it.
"""
