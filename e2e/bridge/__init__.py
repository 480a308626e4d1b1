"""Tests of the bridge on a real control plane: the allocator, and our schedulers that ask it for devices."""
