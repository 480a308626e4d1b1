"""The way of bytes: connections are let in, requests are read, answers are written. No step without an end."""
