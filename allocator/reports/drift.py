"""Inconsistencies: overlapping allocations, reservations for deleted pods, lost devices, and pods that are bound without devices.

The read-only allocator uses this module. An allocator that reserves devices also has a ledger, and its leader repairs inconsistencies with
`allocator.reservations.sweep`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.reservations import overlaps
from dra.objects import asks_by_name, mapped_resources, node_of, served_resources

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from dra.objects import Pod
    from dra.stock import Stock


class Drift(msgspec.Struct, frozen=True):
    """The inconsistencies found. `leading` is True if the leader found them; the leader also repairs them."""

    overlapping: tuple[str, ...] = ()  # claims, as namespace/name
    left_behind: tuple[str, ...] = ()  # sentences
    without_devices: tuple[str, ...] = ()  # pods, as namespace/name
    leading: bool = False

    def confirmed_by(self, later: Drift) -> Drift:
        """Return the later inconsistencies. Keep only what both checks found about pods, because cached pods may be outdated."""
        confirmed = tuple(sentence for sentence in later.left_behind if sentence in self.left_behind)
        without_devices = tuple(pod for pod in later.without_devices if pod in self.without_devices)
        return Drift(later.overlapping, confirmed, without_devices, later.leading)


def drift(stock: Stock, living: Collection[str], pods: Iterable[Pod] = ()) -> Drift:
    """Find the inconsistencies of a stock, and the pods among `pods` that are bound without devices.

    `living` are the uids of the pods that have not finished.
    """
    name_of = {claim.metadata.uid: key for key, claim in stock.claims.items()}
    overlapping = {name_of[uid] for overlap in overlaps(stock) for uid in overlap.claims}
    sentences = [
        f"claim {key} is reserved for pod {consumer.name}, which has ended or no longer exists"
        for key, claim in stock.claims.items()
        for consumer in claim.status.reserved_for
        if consumer.is_pod and consumer.uid not in living
    ]
    sentences += [
        f"claim {key} holds device {device}, which its driver no longer publishes" for key, device in unpublished(stock)
    ]
    lacking = [pod.metadata.key for pod in pods if unserved_resources(pod, stock)]
    return Drift(tuple(sorted(overlapping)), tuple(sorted(sentences)), tuple(sorted(lacking)))


def unserved_resources(pod: Pod, stock: Stock) -> list[str]:
    """Return the extended resources of a bound pod that a DeviceClass serves, and for which the pod has no claim and its node no plugin.

    If the resource is in the node's capacity, a device plugin of the node may be restarting.
    """
    node = stock.nodes.get(pod.spec.node_name)
    if node is None or pod.is_done or not asks_by_name(pod):
        return []
    amounts = (node.status.allocatable, node.status.capacity)
    names = served_resources(pod, stock.serving())
    covered = mapped_resources(pod)
    return [name for name in names if name not in covered and not any(a[name].nano for a in amounts if name in a)]


def unpublished(stock: Stock) -> Iterator[tuple[str, str]]:
    """Yield each device that a claim holds although its driver no longer publishes it: the claim, as namespace/name, and the device."""
    for pool, holders in stock.results.items():
        published = stock.devices(pool)
        for key, results in holders.items():
            node = node_of(stock.claims[key].status.allocation)
            for result in results:
                if published.find(result.device, node) is None:
                    yield key, "/".join((*pool, result.device))
