"""Informers: local copies of a cluster's collections, kept up to date by watches."""

from cluster.informers.allotment import Allotment
from cluster.informers.backoff import Backoff
from cluster.informers.cache import Delta
from cluster.informers.cluster_view import ClusterView
from cluster.informers.informer import Batch, Informer
from cluster.informers.quarantine import Quarantine

__all__ = [
    "Allotment",
    "Backoff",
    "Batch",
    "ClusterView",
    "Delta",
    "Informer",
    "Quarantine",
]
