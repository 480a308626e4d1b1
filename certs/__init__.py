"""Certificates that run themselves."""
