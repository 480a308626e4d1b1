"""The field itself: what a device, a slice, a class, a claim and a rule is. Pure: no I/O, no clock, no randomness."""
