"""What may be in use beside what."""
