"""Rules about several objects, and about objects and published devices."""
