"""What the audit agents of nodes may ask."""
