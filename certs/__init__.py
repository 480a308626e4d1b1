"""The CA, serving certificates and signing keys that drawbridge creates, rotates and distributes."""
