"""Where claims are made for one configuration on one fleet, each distinct demand once.

Equal demands are the rule (a Deployment's pods, a team's habits), so what was made is kept: the claims of a demand, and
the template of a spec. Configuration and fleet are values that never change; a new one gets a workshop of its own.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from dra import wire
from webhook.claims import spec as shapes
from webhook.claims import template
from webhook.claims.spec import Claims, Impossible
from webhook.dialects import TARGETS, Demand, Pairs
from webhook.state import Place, Served, unknown

if TYPE_CHECKING:
    from dra.objects import ResourceClaimSpec
    from dra.wire import Json
    from webhook.state import Configuration, Fleet

_EITHER = {"gpu": "vgpu", "vgpu": "gpu"}
_KEPT = 4096  # demands remembered; pods may ask for anything


class Made(msgspec.Struct, frozen=True, gc=False):
    """Claims, and where they are served."""

    claims: Claims
    place: Place
    beside: Place | None = None  # of the secondary devices, for pairs

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(place.served.name for place in (self.place, self.beside) if place)


class Workshop:
    """Claims for demands."""

    def __init__(self, configuration: Configuration, fleet: Fleet) -> None:
        self.configuration = configuration
        self.fleet = fleet
        self._made: dict[Demand | Pairs, Made | Impossible] = {}
        self._places = {name: self._place(name) for name in TARGETS}

    def make(self, demand: Demand | Pairs) -> Made | Impossible:
        """Make the claims for a demand, or say why there are none."""
        made = self._made.get(demand)
        if made is None:
            if len(self._made) >= _KEPT:
                self._made.clear()
            made = self._made[demand] = self._make(demand)
        return made

    def _make(self, demand: Demand | Pairs) -> Made | Impossible:
        if isinstance(demand, Pairs):
            return self._pairs(demand)
        place = self._choose(demand)
        if isinstance(place, Impossible):
            return place
        claims = shapes.build(demand, place, self._sizes(place))
        return Made(claims, place) if isinstance(claims, Claims) else claims

    def _pairs(self, joint: Pairs) -> Made | Impossible:
        first, second = self._choose(joint.primary), self._choose(joint.secondary)
        if isinstance(first, Impossible):
            return first
        if isinstance(second, Impossible):
            return second
        claims = shapes.pairs(joint, first, second, self._sizes(first))
        return Made(claims, first, second) if isinstance(claims, Claims) else claims

    def _choose(self, demand: Demand) -> Place | Impossible:
        """Choose the place. Whole GPUs may come from either GPU target, virtual functions from either of the networks'."""
        place = self._places[demand.target]
        if demand.virtual_function and isinstance(place, Impossible):
            return self._places["vf"]
        other = self._places[_EITHER.get(demand.target, demand.target)]
        if demand.partial or isinstance(other, Impossible):
            return place
        if isinstance(place, Impossible):
            return other
        untied = demand.same and not place.served.publishes(demand.same)
        return other if untied and other.served.publishes(demand.same) else place

    def _place(self, name: str) -> Place | Impossible:
        target, declared = TARGETS[name], self.configuration.serves(name)
        if not self.fleet.known:
            served = unknown(target, Served(name=declared))
            return (
                Place(target, served) if served.name else Impossible(reason=f"no class is declared for target {name!r}")
            )
        found = self.fleet.find(target, declared)
        if found is None:
            wanted = declared or " or ".join(target.classes) or f"target {name!r}"
            return Impossible(reason=f"the cluster has no DeviceClass {wanted} (declare `classes.{name}`)")
        return Place(target, found if found.devices else unknown(target, found))

    def _sizes(self, place: Place) -> dict[str, int]:
        """Memory by product: what is published, then what is declared, which wins."""
        published = {product.name: product.smallest for product in place.served.products}
        return {**published, **self.configuration.sizes}


@lru_cache(maxsize=2)
def workshop(configuration: Configuration, fleet: Fleet) -> Workshop:
    """Find the workshop of a configuration and a fleet, which are told apart by identity."""
    return Workshop(configuration, fleet)


def named(spec: ResourceClaimSpec) -> tuple[str, Json]:
    """Make the template of a claim: its name and its spec."""
    return _named(wire.encode(spec))


@lru_cache(maxsize=_KEPT)
def _named(spec: bytes) -> tuple[str, Json]:
    content = {"spec": msgspec.json.decode(spec)}
    return template.name_of(content), content
