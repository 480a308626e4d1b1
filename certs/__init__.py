"""The CA, serving certificates and seal keys that drawbridge creates, rotates and distributes."""
