"""The part of DRA that runs on nodes: prepares the allocated devices for containers, publishes them, and audits what is in use."""
