"""The allocator beside another scheduler: it explains waiting pods, reports drift and shares, and writes nothing but events."""
