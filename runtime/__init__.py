"""What every long-running process of ours has: a listener, authentication, copies of a cluster, controllers' parts, metrics.

It stands between the port to a cluster (`cluster/`) and the rooms that decide (`webhook/`, `allocator/`, `node/`).
"""
