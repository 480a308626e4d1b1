"""Koordinator's dialect: its table, what a pod requests in it, and the demands of that."""
