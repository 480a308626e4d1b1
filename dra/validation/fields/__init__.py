"""Rules about single fields, shared by all kinds of object."""
