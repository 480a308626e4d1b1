"""Benchmarks of the allocator."""
