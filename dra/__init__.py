"""Devices, slices, classes, claims and rules: values, and pure functions on them (without I/O, clock or randomness)."""
