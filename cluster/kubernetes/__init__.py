"""The `Cluster` protocol over a real API server: connections by the official client, responses decoded here."""

from cluster.kubernetes.client import Kubernetes

__all__ = ["Kubernetes"]
