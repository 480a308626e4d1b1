"""The allocator beside another scheduler: it explains waiting pods, reports inconsistencies and held devices, and writes only events."""
