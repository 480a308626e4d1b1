"""Snapshots and workloads, scheduled without a cluster."""
