"""What controllers are made of, and the claim controller of a cluster that has none."""
