"""Inputs that more than one suite is run on."""
