"""The node side of DRA: prepares the allocated devices for containers, publishes them, and audits what is in use."""
