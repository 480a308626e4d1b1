"""Churn on a real control plane while its parts and ours are killed, stopped and cut off, and a judge who reads what was stored."""
