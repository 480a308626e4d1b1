"""How a pod is placed: which strategy chooses its devices and judges nodes, and which nodes have pods enough.

A pod's annotation says the strategy, else its Namespace's, else the configuration for that namespace, else for all. It is one name, or several with weights,
`topology=3,CompactFirst=1`: the first chooses devices, and a node's score is the weighted mean of what all make of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from allocator.reservations import State
from allocator.strategies import DEFAULT, STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Collection

    from allocator.reservations import Ledger
    from dra.objects import Pod

STRATEGY = "drawbridge.dev/strategy"
MOST_WEIGHT = 100
_LONGEST = 60  # characters of a wrong name that are said back


class UnknownStrategy(Exception):  # noqa: N818  input of a user, answered in words
    """A strategy that nobody knows, or weights that are none."""


class Weighted(msgspec.Struct, frozen=True):
    """One strategy among those that judge a node."""

    strategy: str
    weight: int = 1


class Placement(msgspec.Struct, frozen=True):
    """The strategies that place a pod; the first of them chooses devices."""

    parts: tuple[Weighted, ...] = (Weighted(DEFAULT),)

    @property
    def is_default(self) -> bool:
        return self.parts == (Weighted(DEFAULT),)


class PlacementRules(msgspec.Struct, frozen=True):
    """What an admin says of pods that say nothing themselves."""

    otherwise: Placement = Placement()
    namespaces: Mapping[str, Placement] = {}
    most_pods: int = 0  # with devices on a node; 0 for any number

    def of(self, namespace: str) -> Placement:
        """How pods of a namespace are placed."""
        return self.namespaces.get(namespace or "default", self.otherwise)


def read_placement(text: str) -> Placement:
    """Read strategies as they are written: a name, or names with weights."""
    parts: list[Weighted] = []
    for one in text.split(","):
        name, equals, weight = one.strip().partition("=")
        if name not in STRATEGIES:
            known = ", ".join(sorted(STRATEGIES))
            raise UnknownStrategy(f"there is no strategy {name[:_LONGEST]!r}; there are {known}")
        if name in (part.strategy for part in parts):
            raise UnknownStrategy(f"strategy {name} is named twice")
        parts.append(Weighted(name, _weight(name, weight) if equals else 1))
    if len(parts) == 1:
        return Placement((Weighted(parts[0].strategy),))
    return Placement(tuple(parts))


def placement_of(pod: Pod, namespace: Mapping[str, str], rules: PlacementRules) -> Placement:
    """Find how a pod is placed; `namespace` are the annotations of its Namespace."""
    own = pod.metadata.annotations.get(STRATEGY)
    if own is not None:
        return _read(f"annotation {STRATEGY} of the pod", own)
    shared = namespace.get(STRATEGY)
    if shared is not None:
        return _read(f"annotation {STRATEGY} of Namespace {pod.metadata.namespace or 'default'}", shared)
    return rules.of(pod.metadata.namespace)


def full_nodes(ledger: Ledger, most: int, leaving: Collection[str]) -> dict[str, str]:
    """Say of the nodes that have as many pods with devices of ours as they may, without those that leave."""
    if not most:
        return {}
    places = [
        reservation.node
        for reservation in ledger.reservations.values()
        if reservation.state is not State.RELEASED and reservation.pod not in leaving
    ]
    pods = Counter(places)
    return {
        node: f"the node has as many pods with devices as it may: {count} of {most}"
        for node, count in pods.items()
        if node and count >= most
    }


def _read(where: str, text: str) -> Placement:
    try:
        return read_placement(text)
    except UnknownStrategy as error:
        raise UnknownStrategy(f"{where}: {error}") from None


def _weight(name: str, text: str) -> int:
    weight = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(MOST_WEIGHT)) else 0
    if not 1 <= weight <= MOST_WEIGHT:
        raise UnknownStrategy(
            f"the weight of {name} is {text[:_LONGEST]!r}, and has to be a whole number from 1 to {MOST_WEIGHT}"
        )
    return weight
