"""The allocator: how long a question takes, and how much a strategy saves."""
