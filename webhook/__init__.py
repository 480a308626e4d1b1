"""The gate: pods go in, pods with claims come out."""
