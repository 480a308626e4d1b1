"""Benchmarks of the cluster client."""
