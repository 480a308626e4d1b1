"""Benchmarks of drawbridge and, in the same run, of comparable programs (peers). Compare the ratios, not the absolute times."""
