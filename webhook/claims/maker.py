"""Makes the claims for demands (device requests read from a pod's keys), and caches them.

Most demands repeat, for example in all pods of a Deployment. So the claims for each demand and the template of each spec are cached.
A `ClaimMaker` is for one configuration and one fleet, which are immutable. A new configuration or fleet gets a new `ClaimMaker`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from dra import wire
from dra.cache import Cache
from webhook.claims import spec as claim_specs
from webhook.claims import template
from webhook.claims.spec import Claims, Impossible
from webhook.dialects import Demand, Pairs, Served, Supply, TiedDemands, assumed, kinds
from webhook.names import CONFIGURATION_PAGE, class_remedy

if TYPE_CHECKING:
    from dra.budget import Budget
    from dra.objects import ResourceClaimSpec
    from dra.wire import Json
    from webhook.dialects import AnyDemand
    from webhook.state import Configuration, Inventory

# Bytes of each cache.
_DEMANDS = 16 << 20
_TEMPLATES = 16 << 20
_NAME_STEPS = 100  # steps of the budget for each model or UUID, because the cost of its selector is estimated


class ServedDemand(msgspec.Struct, frozen=True, gc=False):
    """The claims for a demand, and the supply (target and DeviceClass) of each kind of device in them."""

    claims: Claims
    supply: Supply  # of the primary devices
    supplies: tuple[Supply, ...]
    classes: tuple[str, ...]
    moved: bool  # whether devices are moved from the host's network namespace to the pod's

    @classmethod
    def combine(cls, claims: Claims, *supplies: Supply) -> ServedDemand:
        classes = tuple([supply.served.name for supply in supplies])
        moved = any(supply.target.moved for supply in supplies)
        return cls(claims, supplies[0], supplies, classes, moved)


class ClaimMaker:
    def __init__(self, configuration: Configuration, fleet: Inventory) -> None:
        self.configuration = configuration
        self.fleet = fleet
        self._made: Cache[ServedDemand | Impossible] = Cache(_DEMANDS)
        self._supplies = {name: self._supply(name) for name in configuration.targets}

    def make(self, demand: AnyDemand, budget: Budget) -> ServedDemand | Impossible:
        """Return the claims for a demand, or why there are none."""
        made = self._made.get(demand)
        if made is not None:
            return made
        listed = [
            name
            for kind in kinds(demand)
            for names in (
                kind.models,
                kind.not_models,
                kind.uuids,
                kind.not_uuids,
                *[part.values for part in kind.attributes],
            )
            for name in names
        ]
        budget.charge_whole(_NAME_STEPS * len(listed))
        match demand:
            case TiedDemands():
                made = self._tied(demand, budget)
            case Pairs():
                made = self._pairs(demand)
            case Demand():
                supply = self._choose(demand)
                if isinstance(supply, Impossible):
                    made = supply
                else:
                    claims = claim_specs.build_claims(demand, supply, self._sizes(supply))
                    made = ServedDemand.combine(claims, supply) if isinstance(claims, Claims) else claims
        # Estimate the bytes in the cache: the lists of models and UUIDs may be long, and so may the claims that contain them.
        weight = 2_000 + sum(60 + len(name) for name in listed)
        if isinstance(made, ServedDemand):
            for spec in made.claims.specs:
                weight += 4 * len(wire.encode(spec))
        self._made.put(demand, made, weight)
        return made

    def claims(self, demand: Demand, budget: Budget) -> Claims:
        """Return the claims for a demand that is known to have claims."""
        made = self.make(demand, budget)
        assert isinstance(made, ServedDemand)
        return made.claims

    def _tied(self, tied: TiedDemands, budget: Budget) -> ServedDemand | Impossible:
        parts: list[Claims] = []
        supplies: list[Supply] = []
        for member in tied.members:
            made = self.make(member, budget)
            if isinstance(made, Impossible):
                return made
            parts.append(made.claims)
            supplies += made.supplies
        claims = claim_specs.combine(parts, supplies, tied.attribute)
        return ServedDemand.combine(claims, *supplies) if isinstance(claims, Claims) else claims

    def _pairs(self, joint: Pairs) -> ServedDemand | Impossible:
        first = self._choose(joint.primary)
        if isinstance(first, Impossible):
            return first
        second = self._choose(joint.secondary)
        if isinstance(second, Impossible):
            return second
        claims = claim_specs.build_pairs(joint, first, second, self._sizes(first))
        return ServedDemand.combine(claims, first, second) if isinstance(claims, Claims) else claims

    def _choose(self, demand: Demand) -> Supply | Impossible:
        """Return the supply of the demand's target, or of another target that serves the demand better (`virtual`, `instead`)."""
        target = self.configuration.targets[demand.target]
        supply = self._supplies[demand.target]
        if demand.virtual_function and target.virtual and isinstance(supply, Impossible):
            return self._supplies[target.virtual]
        if demand.partial or not target.instead:
            return supply
        other = self._supplies[target.instead]
        if isinstance(other, Impossible):
            return supply
        if isinstance(supply, Impossible):
            return other
        lacks = demand.same and not supply.served.publishes(demand.same)
        return other if lacks and other.served.publishes(demand.same) else supply

    def _supply(self, name: str) -> Supply | Impossible:
        """Return the supply of a target. If there is none, return the reason and what an administrator can declare."""
        target = self.configuration.targets[name]
        declared = self.configuration.file.classes.get(name, "")
        parameters = self.configuration.file.parameters.get(name)
        if not self.fleet.known:
            served = assumed(target, Served(name=declared))
            if not served.name:
                reason = f"no DeviceClass is configured: an administrator can set `classes: {{{name}: NAME}}` ({CONFIGURATION_PAGE})"
                return Impossible(reason=reason)
            return Supply(target, served, parameters)
        existing = self.fleet.find_class(target, declared)
        if existing is None:
            wanted = declared or " or ".join(target.classes) or f"for target {name!r}"
            return Impossible(reason=f"the cluster has no DeviceClass {wanted}; {class_remedy(name)}")
        if not existing.devices:
            return Supply(target, assumed(target, existing), parameters)
        if existing.driver != target.driver:
            reason = f"class {existing.name} selects devices of driver {existing.driver}, but target {name!r} is for {target.driver}"
            return Impossible(reason=f"{reason} (an administrator can add a target under `targets`)")
        return Supply(target, existing, parameters)

    def _sizes(self, supply: Supply) -> dict[str, tuple[int, ...]]:
        """Return the amounts of memory by product: the declared amount, or else the amount that most nodes publish.

        If equally many nodes publish several amounts, all of these are returned.
        """
        sizes: dict[str, tuple[int, ...]] = {name: (size,) for name, size in self.configuration.sizes.items()}
        for product in supply.served.products:
            sizes.setdefault(product.name, (product.memory, *product.others))
        return sizes


@lru_cache(maxsize=2)
def claim_maker(configuration: Configuration, fleet: Inventory) -> ClaimMaker:
    """Return the claim maker of a configuration and an inventory, cached by their identity."""
    return ClaimMaker(configuration, fleet)


_TEMPLATES_BY_TEXT: Cache[tuple[str, Json]] = Cache(_TEMPLATES)
# Templates by the identity of the spec object, which the cache keeps alive. A claim maker returns the same object for equal demands.
_OF_SPECS: Cache[tuple[ResourceClaimSpec, tuple[str, Json]]] = Cache(4 << 20)


def make_template(spec: ResourceClaimSpec) -> tuple[str, Json]:
    """Make the template of a claim: its name and its spec, which is shared and must not be changed."""
    known = _OF_SPECS.get(id(spec))
    if known is not None:
        return known[1]
    text = wire.encode(spec)
    made = _TEMPLATES_BY_TEXT.get(text)
    if made is None:
        content = {"spec": msgspec.json.decode(text)}
        made = template.name_of(content), content
        _TEMPLATES_BY_TEXT.put(text, made, 6 * len(text))
    _OF_SPECS.put(id(spec), (spec, made), 4 * len(text))
    return made
