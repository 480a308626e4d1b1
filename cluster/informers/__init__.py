"""Copies of collections that follow a cluster."""

from __future__ import annotations

from cluster.informers.backoff import Backoff
from cluster.informers.cache import Delta
from cluster.informers.informer import Batch, Health, Informer
from cluster.informers.quarantine import Quarantine

__all__ = ["Backoff", "Batch", "Delta", "Health", "Informer", "Quarantine"]
