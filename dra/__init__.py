"""The domain: devices, slices, classes, claims and rules, as values and pure functions (no I/O, no clock, no randomness)."""
