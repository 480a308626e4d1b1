"""The interface to a cluster: one protocol with two implementations, Kubernetes and the embedded store.

`cluster.kubernetes.client` must be imported by name, because it loads an HTTP client.
"""

from cluster.errors import ApiError
from cluster.patch import Apply, Merge
from cluster.protocol import Cluster
from cluster.resources import Raw

__all__ = [
    "ApiError",
    "Apply",
    "Cluster",
    "Merge",
    "Raw",
]
