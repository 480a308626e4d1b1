"""Copies of collections that follow a cluster."""
