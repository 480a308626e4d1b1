"""Benchmarks of selectors, decoding and the stock."""
