"""A small scheduler for the embedded store, where no other scheduler runs."""
