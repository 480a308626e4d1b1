"""Writes the results of commands as text, JSON, CSV, Markdown and HTML, and in the formats of code hosts."""
