"""How a pod is placed: which strategy applies, and which nodes are full.

The pod's annotation names the strategy, else its Namespace's, else the configuration of that namespace, else the general one.
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
    """The configured placement of pods without an annotation."""

    otherwise: Placement = Placement()
    namespaces: Mapping[str, Placement] = {}
    most_pods: int = 0  # with devices on a node; 0 for any number

    def for_namespace(self, namespace: str) -> Placement:
        """Return the placement of a namespace."""
        return self.namespaces.get(namespace or "default", self.otherwise)


def placement_of(pod: Pod, namespace: Mapping[str, str], rules: PlacementRules) -> Placement:
    """Return the placement of a pod; `namespace` are the annotations of its Namespace."""
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
    return rules.for_namespace(pod.metadata.namespace)


def full_nodes(reserved: Iterable[tuple[str, str]], most: int, leaving: Collection[str]) -> dict[str, str]:
    """Return the nodes that have as many pods with our devices as they may, without the `leaving` pods, and a message.

    `reserved` are pods by uid with their nodes, `most` is how many a node may have.
    """
    pods = Counter(node for pod, node in reserved if pod not in leaving)
    return {
        node: f"node(s) reached the limit of pods with devices: {count} of {most}"
        for node, count in pods.items()
        if node and count >= most > 0
    }
