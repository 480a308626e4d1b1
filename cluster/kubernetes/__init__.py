"""The port over a real API server: the official client's connection, our own reading of what comes back."""

from __future__ import annotations

from cluster.kubernetes.client import Kubernetes

__all__ = ["Kubernetes"]
