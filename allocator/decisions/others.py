"""Stocks as they would be if other pods came first, or were gone: for nominated pods, and for victims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator import allocate
from allocator.answer import with_allocation
from allocator.decisions.wants import wants_of
from dra.objects import ResourceClaimStatus, claim_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dra.objects import Pod, ResourceClaim
    from dra.stock import Stock


def without_pods(stock: Stock, pods: Iterable[Pod]) -> Stock:
    """Answer with the stock after some pods are gone: claims that nobody else has reserved are free again."""
    leaving: set[str] = set()
    keys: set[str] = set()
    for pod in pods:
        leaving.add(pod.metadata.uid)
        keys.update(f"{pod.metadata.namespace or 'default'}/{name}" for name in claim_names(pod))
    for key in sorted(keys):
        claim = stock.claims.get(key)
        if claim is not None and _is_left_by(claim, leaving):
            stock = stock.with_(replace(claim, status=ResourceClaimStatus()))
    return stock


def with_pods(stock: Stock, node: str, pods: Sequence[Pod]) -> Stock:
    """Answer with the stock after some pods have taken what they want on a node; who fits there no more takes nothing."""
    for pod in pods:
        wanted = wants_of(pod, stock).open
        answer = allocate(stock, node, wanted) if wanted else None
        for claim, granted in zip(wanted, answer.allocations if answer else (), strict=False):
            stock = stock.with_(with_allocation(claim, granted.allocation))
    return stock


def _is_left_by(claim: ResourceClaim, leaving: set[str]) -> bool:
    consumers = {consumer.uid for consumer in claim.status.reserved_for}
    return claim.status.allocation is not None and bool(consumers) and consumers <= leaving
