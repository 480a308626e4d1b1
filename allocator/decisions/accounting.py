"""Devices that take the node's own cpu or memory: `nodeAllocatableResources` (KEP-5517; gate DRANodeAllocatableResources, alpha, off in 1.37).

In-tree the plugin DynamicResources adds what such devices stand for to what their pod asks of the node, and writes it into the pod's status
(pkg/scheduler/framework/plugins/dynamicresources/nodeallocatabledynamicresources.go). It is off where we decide, and nobody else would do it:
a node would be given more pods than it has cpu for. So such devices are given to nobody here. With the gate off the API server drops the field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.objects import node_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import ResourceClaim
    from dra.stock import Stock


def what_is_unaccounted(claims: Iterable[ResourceClaim], stock: Stock) -> str:
    """Name a device of these allocations that takes what is the node's, and what of it; "" if there is none."""
    for claim in claims:
        allocation = claim.status.allocation
        assert allocation is not None
        node = node_of(allocation)
        for result in allocation.devices.results:
            found = stock.devices((result.driver, result.pool)).find(result.device, node)
            taken = ", ".join(sorted(found[1].node_allocatable_resources)) if found is not None else ""
            if taken:
                return (
                    f"device {result.driver}/{result.pool}/{result.device} takes {taken} of the node "
                    "(nodeAllocatableResources, alpha), which is not counted here: leave the pod to the default scheduler"
                )
    return ""
