"""Benchmarks of selectors."""
