"""Beside another scheduler, read-only: what pods are told, drift, and which pod has which device. Only events are written."""
