"""Everything of drawbridge in one process, and the way of each pod through it, told."""
