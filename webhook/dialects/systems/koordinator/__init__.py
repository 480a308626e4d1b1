"""Koordinator's dialect: its table, what a pod says in it, and what that asks for."""
