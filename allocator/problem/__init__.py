"""Claims and devices become integers: the question, what each device is to it, and who holds what."""
