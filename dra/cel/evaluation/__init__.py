"""Evaluates checked expressions: compiles them to closures, and counts their cost and work."""
