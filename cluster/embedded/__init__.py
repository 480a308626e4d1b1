"""The port over a store in this process: what an API server does to objects, without one."""

from __future__ import annotations

from cluster.embedded.embedded import Embedded

__all__ = ["Embedded"]
