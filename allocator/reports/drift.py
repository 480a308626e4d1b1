"""Inconsistencies in a stock: overlapping allocations, reservations for deleted pods, and devices that are no longer published.

The read-only allocator uses this module. An allocator that reserves devices also has a ledger, and its leader repairs inconsistencies with
`allocator.reservations.sweep`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.reservations import overlaps
from dra.objects import node_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from dra.stock import Stock


class Drift(msgspec.Struct, frozen=True):
    """The inconsistencies found. `leading` is True if the leader found them; the leader also repairs them."""

    overlapping: tuple[str, ...] = ()  # claims, as namespace/name
    left_behind: tuple[str, ...] = ()  # sentences
    leading: bool = False

    def confirmed_by(self, later: Drift) -> Drift:
        """Return the later inconsistencies. Of `left_behind`, keep only what both checks found, because cached pods may be outdated."""
        confirmed = tuple(sentence for sentence in later.left_behind if sentence in self.left_behind)
        return Drift(later.overlapping, confirmed, later.leading)


def drift(stock: Stock, living: Collection[str]) -> Drift:
    """Find the inconsistencies of a stock. `living` are the uids of the pods that have not finished."""
    name_of = {claim.metadata.uid: key for key, claim in stock.claims.items()}
    overlapping = {name_of[uid] for overlap in overlaps(stock) for uid in overlap.claims}
    sentences = [
        f"claim {key} is reserved for pod {consumer.name}, which no longer exists"
        for key, claim in stock.claims.items()
        for consumer in claim.status.reserved_for
        if consumer.is_pod and consumer.uid not in living
    ]
    sentences += [
        f"claim {key} holds device {device}, which its driver no longer publishes" for key, device in unpublished(stock)
    ]
    return Drift(tuple(sorted(overlapping)), tuple(sorted(sentences)))


def unpublished(stock: Stock) -> Iterator[tuple[str, str]]:
    """Yield each device that a claim holds although its driver no longer publishes it: the claim, as namespace/name, and the device."""
    for pool, holders in stock.results.items():
        published = stock.devices(pool)
        for key, results in holders.items():
            node = node_of(stock.claims[key].status.allocation)
            for result in results:
                if published.find(result.device, node) is None:
                    yield key, "/".join((*pool, result.device))
