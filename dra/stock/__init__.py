"""What there is and what is in use: slices become pools, claims become holders, all of it one snapshot."""
