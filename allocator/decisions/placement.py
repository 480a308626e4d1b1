"""How a pod is placed: whose word on strategies counts for it, and which nodes have pods enough.

A pod's annotation says the strategy, else its Namespace's, else the configuration for that namespace, else for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from allocator.strategies import Placement, UnknownStrategy, read_placement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from dra.objects import Pod

STRATEGY = "drawbridge.dev/strategy"


class PlacementRules(msgspec.Struct, frozen=True):
    """What an admin says of pods that say nothing themselves."""

    otherwise: Placement = Placement()
    namespaces: Mapping[str, Placement] = {}
    most_pods: int = 0  # with devices on a node; 0 for any number

    def of(self, namespace: str) -> Placement:
        """How pods of a namespace are placed."""
        return self.namespaces.get(namespace or "default", self.otherwise)


def placement_of(pod: Pod, namespace: Mapping[str, str], rules: PlacementRules) -> Placement:
    """Find how a pod is placed; `namespace` are the annotations of its Namespace."""
    for owner, written in (
        ("the pod", pod.metadata.annotations),
        (f"Namespace {pod.metadata.namespace or 'default'}", namespace),
    ):
        text = written.get(STRATEGY)
        if text is not None:
            try:
                return read_placement(text)
            except UnknownStrategy as error:
                raise UnknownStrategy(f"annotation {STRATEGY} of {owner}: {error}") from None
    return rules.of(pod.metadata.namespace)


def full_nodes(reserved: Iterable[tuple[str, str]], most: int, leaving: Collection[str]) -> dict[str, str]:
    """Say of the nodes that have as many pods with devices of ours as they may, without those that leave.

    `reserved` are pods by uid with their nodes, `most` is how many a node may have.
    """
    pods = Counter(node for pod, node in reserved if pod not in leaving)
    return {
        node: f"the node has as many pods with devices as it may: {count} of {most}"
        for node, count in pods.items()
        if node and count >= most > 0
    }
