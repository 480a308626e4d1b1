"""The objects of the Kubernetes API around devices, and our own two, as frozen values."""
