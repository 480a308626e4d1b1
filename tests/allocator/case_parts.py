"""Parts of a case: its devices, requests and alternatives."""

import random
from typing import Any

Case = dict[str, Any]
ROOT = "resource.kubernetes.io/pcieRoot"


def all_devices(case: Case) -> list[tuple[Case, Case]]:
    """Return a pair for each device: the spec of its slice, and the device."""
    specs = [slice_["spec"] for slice_ in case["slices"]]
    return [(spec, device) for spec in specs for device in spec.get("devices", ())]


def draw_some(rng: random.Random, items: list[Any]) -> list[Any]:
    """Draw some of the items: sometimes few of them, sometimes most of them."""
    probability = rng.choice((0.15, 0.4, 0.9))
    return [item for item in items if rng.random() < probability]


def all_requests(case: Case) -> list[Case]:
    return [request for claim in case["claims"] for request in claim["spec"]["devices"].get("requests", ())]


def all_bodies(case: Case) -> list[Case]:
    """Return the bodies of all requests: the one under `exactly`, or one for each alternative."""
    return [
        body
        for request in all_requests(case)
        for body in (request.get("firstAvailable") or [request.get("exactly", {})])
    ]
