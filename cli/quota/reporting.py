"""What is used of each quota of a scene, and what waits. Pure."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from allocator.quota import PendingUsage, report_quota
from dra.policy import Demands
from webhook.admission import wants_of_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from allocator.quota import QuotaReport
    from cli.loading import Scene
    from dra.objects import DeviceQuota, ResourceClaimSpec
    from dra.stock import Amounts


def report(scene: Scene) -> Iterator[QuotaReport]:
    """Report on every quota, by name."""
    waiting = waiting_in(scene, Demands())
    for quota in sorted(scene.quotas, key=lambda one: one.metadata.key):
        yield report_quota(quota, scene.stock, scene.find_pod, waiting)


def waiting_in(scene: Scene, demands: Demands) -> Callable[[DeviceQuota], Amounts]:
    """Say of a quota how much of what it is about waits for devices."""
    pending = PendingUsage()
    for claim in scene.stock.claims.values():
        pending.see_claim(claim)
    for pod in scene.pods.values():
        pending.see_pod(pod, wants_of_pod(pod))
    return partial(
        pending.waiting,
        stock=scene.stock,
        demand=partial(demands.of, stock=scene.stock),
        find_pod=scene.find_pod,
        find_spec=partial(find_spec, scene),
    )


def find_spec(scene: Scene, namespace: str, name: str) -> ResourceClaimSpec | None:
    """Look up what a template makes."""
    template = scene.templates.get(f"{namespace}/{name}")
    return template.spec.spec if template is not None else None
