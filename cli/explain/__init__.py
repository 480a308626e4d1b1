"""`drawbridge explain`: why a pod, a claim or a device is as it is, from what was read of a cluster or a dump."""

from __future__ import annotations

from cli.explain.stories import OfClaim, OfDevice, OfPod

__all__ = ["OfClaim", "OfDevice", "OfPod"]
