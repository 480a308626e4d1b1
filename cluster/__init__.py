"""The interface to a cluster: one protocol with two implementations, Kubernetes and the embedded store.

`cluster.kubernetes.client` must be imported by name, because it loads an HTTP client.
"""

from cluster.errors import ApiError, ClusterError
from cluster.patch import Apply, Merge, Operations, Patch
from cluster.protocol import Bookmark, Change, Cluster, ListPage, Unreadable
from cluster.resources import Raw, Resource, key, metadata
from cluster.server import ServerInfo

__all__ = [
    "ApiError",
    "Apply",
    "Bookmark",
    "Change",
    "Cluster",
    "ClusterError",
    "ListPage",
    "Merge",
    "Operations",
    "Patch",
    "Raw",
    "Resource",
    "ServerInfo",
    "Unreadable",
    "key",
    "metadata",
]
