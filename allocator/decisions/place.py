"""Places pods on given nodes of a hypothetical stock (snapshot): with other pods there, or without pods that might be evicted.

Pods are placed one after another, and the pods of a group all or none. A pod never displaces an earlier one, but may change its devices: if a
pod does not fit beside the devices that earlier pods got on its node, the search chooses the devices of all of them together. So two pods that
may each use a whole GPU or half of it share one GPU (kubernetes/kubernetes#138765). On other nodes the devices of earlier pods stay, even in a
pool that the nodes share. Nothing is reserved: stocks are immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from allocator import allocate
from allocator.answer import as_granted
from allocator.decisions.pod_claims import claims_on
from allocator.one_node import DEFAULTS, SearchOptions
from dra.objects import Pod, ResourceClaim, node_of
from dra.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from allocator.answer import NodeAnswer

    Group: TypeAlias = Sequence[tuple[Pod, str]]  # pods, each with its node

TAKEN = "node(s) had no free devices left: another pod took them"


class Placed(msgspec.Struct, frozen=True):
    """A stock in which pods are placed; without pods, it is where `place` begins."""

    stock: Stock
    problems: tuple[str, ...] = ()  # for each group: why it does not fit; "" if it is placed
    claims: Mapping[str, tuple[ResourceClaim, ...]] = {}  # by node: the claims that were allocated, as they were before
    keys: Mapping[str, tuple[str, ...]] = {}  # by uid of a pod: the keys of those of its claims that were allocated

    def granted(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """Return the claims that were allocated for a pod, with their allocations."""
        return tuple([self.stock.claims[key] for key in self.keys.get(pod.metadata.uid, ())])


def place(queue: Iterable[Group], before: Placed, options: SearchOptions = DEFAULTS) -> Placed:
    """Place groups in addition to the pods that are placed already."""
    for group in queue:
        after = _place_group(group, before, options)
        problem, before = (after, before) if isinstance(after, str) else ("", after)
        before = replace(before, problems=(*before.problems, problem))
    return before


def _place_group(group: Group, before: Placed, options: SearchOptions) -> Placed | str:
    """Return the stock with a whole group, or why the group does not fit."""
    stock, claims, keys = before.stock, dict(before.claims), dict(before.keys)
    for pod, node in group:
        pod_claims = claims_on(pod, node, stock)
        if isinstance(pod_claims, str):
            return pod_claims
        if not pod_claims.open:
            continue
        earlier = claims.get(node, ())
        claims[node] = (*earlier, *pod_claims.open)
        keys[pod.metadata.uid] = tuple([claim.metadata.key for claim in pod_claims.open])
        granted = granted_or_why(pod_claims.open, allocate(stock, node, pod_claims.open, options=options), stock)
        if isinstance(granted, str) and earlier:
            stock = stock.with_all(earlier)
            granted = granted_or_why(claims[node], allocate(stock, node, claims[node], options=options), stock)
        if isinstance(granted, str):
            return granted
        stock = stock.with_all(granted)
    return Placed(stock, before.problems, claims, keys)


def granted_or_why(
    claims: Sequence[ResourceClaim], answer: NodeAnswer, stock: Stock
) -> tuple[ResourceClaim, ...] | str:
    """Return the claims with the allocations of an answer, or why the claims get none."""
    if not answer.feasible:
        return answer.error or TAKEN
    granted = as_granted(claims, answer)
    return _unaccounted(granted, stock) or granted


def _unaccounted(claims: Iterable[ResourceClaim], stock: Stock) -> str:
    """Return a message about an allocated device that uses cpu or memory of its node; "" if there is no such device.

    Gate DRANodeAllocatableResources (KEP-5517, alpha): in-tree, DynamicResources adds these amounts to the pod's requests
    (nodeallocatabledynamicresources.go). drawbridge does not, so the node would get more pods than it has cpu for.
    """
    for claim in claims:
        allocation = claim.status.allocation
        assert allocation is not None
        node = node_of(allocation)
        for result in allocation.devices.results:
            published = stock.devices((result.driver, result.pool)).find(result.device, node)
            node_resources = ", ".join(sorted(published[1].node_allocatable_resources)) if published is not None else ""
            if node_resources:
                return (
                    f"device {result.driver}/{result.pool}/{result.device} uses {node_resources} of the node "
                    "(nodeAllocatableResources, alpha), which this scheduler does not count: let the default scheduler place the pod"
                )
    return ""
