"""Inputs that several test suites share."""
