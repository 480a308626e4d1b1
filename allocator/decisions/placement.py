"""How a pod is placed: which strategy applies, and which nodes have reached the limit of pods.

The first setting that exists names the strategy: the annotation of the pod, the annotation of its Namespace, the configuration for the
namespace, the default configuration.
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

    default: Placement = Placement()
    namespaces: Mapping[str, Placement] = {}
    most_pods: int = 0  # the limit of pods with devices on a node; 0 for no limit

    def for_namespace(self, namespace: str) -> Placement:
        return self.namespaces.get(namespace or "default", self.default)


def placement_of(pod: Pod, namespace: Mapping[str, str], rules: PlacementRules) -> Placement:
    """Return the placement of a pod. `namespace` has the annotations of its Namespace."""
    for owner, owner_annotations in (
        ("the pod", pod.metadata.annotations),
        (f"Namespace {pod.metadata.namespace or 'default'}", namespace),
    ):
        text = owner_annotations.get(STRATEGY)
        if text is not None:
            try:
                return read_placement(text)
            except UnknownStrategy as error:
                raise UnknownStrategy(f"annotation {STRATEGY} of {owner}: {error}") from None
    return rules.for_namespace(pod.metadata.namespace)


def full_nodes(reserved: Iterable[tuple[str, str]], limit: int, leaving: Collection[str]) -> dict[str, str]:
    """Return a message for each node that has reached the limit of pods with devices. Pods in `leaving` do not count.

    `reserved` has the uid and the node of each pod. `limit` is the limit for a node; 0 means no limit.
    """
    pods_by_node = Counter(node for pod, node in reserved if pod not in leaving)
    return {
        node: f"node(s) reached the limit of pods with devices: {count} of {limit}"
        for node, count in pods_by_node.items()
        if node and count >= limit > 0
    }
