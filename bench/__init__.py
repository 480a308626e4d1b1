"""Benchmarks of drawbridge beside its peers, measured in the same run. Compare the ratios, not the absolute times."""
