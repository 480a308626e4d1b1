"""The port over a store in this process: what an API server does to objects, without one."""

from __future__ import annotations

from cluster.embedded.embedded import Embedded
from cluster.embedded.label_selectors import labels_test

__all__ = ["Embedded", "labels_test"]
