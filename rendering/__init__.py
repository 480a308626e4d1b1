"""Writes what commands found: text, JSON, CSV, Markdown, HTML, and the formats of code hosts. Decides nothing."""
