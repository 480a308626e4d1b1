"""On a node: what the allocator decided becomes devices in a container, and nothing else does."""
