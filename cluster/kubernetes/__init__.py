"""The port over a real API server: the official client's connection, our own reading of what comes back."""

from cluster.kubernetes.client import Kubernetes

__all__ = ["Kubernetes"]
