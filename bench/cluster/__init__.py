"""Benchmarks of the cluster client and informers."""
