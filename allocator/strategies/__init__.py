"""Which of the devices that would do, and which node."""
