"""`drawbridge explain`: why a pod, a claim or a device is as it is, from what was read of a cluster or a dump."""

from __future__ import annotations

from cli.explain.reading import HELD, read_dump, visit
from cli.explain.scene import Scene, for_server, scene_of
from cli.explain.stories import OfClaim, OfDevice, OfPod

__all__ = ["HELD", "OfClaim", "OfDevice", "OfPod", "Scene", "for_server", "read_dump", "scene_of", "visit"]
