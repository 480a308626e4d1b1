"""The webhook: pods go in, pods with claims come out."""
