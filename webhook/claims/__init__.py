"""Demands become claims and templates, and each container learns which of them it sees."""
