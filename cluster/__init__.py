"""The port to a cluster: one protocol with two real implementations, Kubernetes and the embedded store.

`cluster.kubernetes.client` is imported by name where it is wanted: it brings an HTTP client along, and nothing here does.
"""

from cluster.errors import ApiError, ClusterError
from cluster.patch import Apply, Merge, Operations, Patch
from cluster.protocol import Bookmark, Change, Cluster, Page, Unreadable
from cluster.resources import Raw, Resource, key, metadata
from cluster.server import Server

__all__ = [
    "ApiError",
    "Apply",
    "Bookmark",
    "Change",
    "Cluster",
    "ClusterError",
    "Merge",
    "Operations",
    "Page",
    "Patch",
    "Raw",
    "Resource",
    "Server",
    "Unreadable",
    "key",
    "metadata",
]
