"""`drawbridge explain`: why a pod, a claim or a device is as it is, from what was read of a cluster or a dump."""

from __future__ import annotations

from cli.explain.devices import tell_device
from cli.explain.lone_claims import tell_loner
from cli.explain.naming import NotThere, find, find_device
from cli.explain.pods import tell_pod
from cli.explain.screen import screen_of_claim, screen_of_device, screen_of_pod, screen_of_server, screen_of_unread
from cli.explain.stories import OfClaim, OfDevice, OfPod

__all__ = [
    "NotThere",
    "OfClaim",
    "OfDevice",
    "OfPod",
    "find",
    "find_device",
    "screen_of_claim",
    "screen_of_device",
    "screen_of_pod",
    "screen_of_server",
    "screen_of_unread",
    "tell_device",
    "tell_loner",
    "tell_pod",
]
