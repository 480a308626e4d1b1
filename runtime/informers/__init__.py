"""Informers: local copies of a cluster's collections, kept up to date by watches."""

from runtime.informers.allotment import Allotment
from runtime.informers.backoff import Backoff
from runtime.informers.cache import Delta
from runtime.informers.cluster_view import ClusterView
from runtime.informers.informer import Batch, Informer
from runtime.informers.quarantine import Quarantine

__all__ = ["Allotment", "Backoff", "Batch", "ClusterView", "Delta", "Informer", "Quarantine"]
