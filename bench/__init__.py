"""Benchmarks: ours beside the peer's, measured in one run. Ratios count; this machine's absolute times do not."""
