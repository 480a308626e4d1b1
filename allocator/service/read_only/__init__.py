"""Read-only beside another scheduler: what pods are told, what should not be, and which pod has what. Only events are written."""
