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
from dra.reason import Reason
from webhook.claims import spec as claim_specs
from webhook.claims import template
from webhook.claims.spec import Claims
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
        self._results: Cache[ServedDemand | Reason] = Cache(_DEMANDS)
        self._supplies = {name: self._supply(name) for name in configuration.targets}

    def make(self, demand: AnyDemand, budget: Budget) -> ServedDemand | Reason:
        """Return the claims for a demand, or why there are none."""
        result = self._results.get(demand)
        if result is not None:
            return result
        filter_values = [
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
        budget.charge_whole(_NAME_STEPS * len(filter_values))
        match demand:
            case TiedDemands():
                result = self._tied(demand, budget)
            case Pairs():
                result = self._pairs(demand)
            case Demand():
                supply = self._choose(demand)
                if isinstance(supply, Reason):
                    result = supply
                else:
                    claims = claim_specs.build_claims(demand, supply, self._sizes(supply))
                    result = ServedDemand.combine(claims, supply) if isinstance(claims, Claims) else claims
        # Estimate the bytes in the cache: the lists of models and UUIDs may be long, and so may the claims that contain them.
        weight = 2_000 + sum(60 + len(name) for name in filter_values)
        if isinstance(result, ServedDemand):
            for spec in result.claims.specs:
                weight += 4 * len(wire.encode(spec))
        self._results.put(demand, result, weight)
        return result

    def claims(self, demand: Demand, budget: Budget) -> Claims:
        """Return the claims for a demand that is known to have claims."""
        result = self.make(demand, budget)
        assert isinstance(result, ServedDemand)
        return result.claims

    def _tied(self, tied: TiedDemands, budget: Budget) -> ServedDemand | Reason:
        parts: list[Claims] = []
        supplies: list[Supply] = []
        for member in tied.members:
            result = self.make(member, budget)
            if isinstance(result, Reason):
                return result
            parts.append(result.claims)
            supplies += result.supplies
        claims = claim_specs.combine(parts, supplies, tied)
        return ServedDemand.combine(claims, *supplies) if isinstance(claims, Claims) else claims

    def _pairs(self, joint: Pairs) -> ServedDemand | Reason:
        first = self._choose(joint.primary)
        if isinstance(first, Reason):
            return first
        second = self._choose(joint.secondary)
        if isinstance(second, Reason):
            return second
        claims = claim_specs.build_pairs(joint, first, second, self._sizes(first))
        return ServedDemand.combine(claims, first, second) if isinstance(claims, Claims) else claims

    def _choose(self, demand: Demand) -> Supply | Reason:
        """Return the supply of the demand's target, or of another target that serves the demand better (`virtual`, `instead`)."""
        target = self.configuration.targets[demand.target]
        supply = self._supplies[demand.target]
        if demand.virtual_function and target.virtual and isinstance(supply, Reason):
            return self._supplies[target.virtual]
        if demand.partial or not target.instead:
            return supply
        alternative = self._supplies[target.instead]
        if isinstance(alternative, Reason):
            return supply
        if isinstance(supply, Reason):
            return alternative
        lacks_attribute = demand.same_attribute and not supply.served.publishes(demand.same_attribute)
        return alternative if lacks_attribute and alternative.served.publishes(demand.same_attribute) else supply

    def _supply(self, name: str) -> Supply | Reason:
        """Return the supply of a target. If there is none, return the reason and what an administrator can declare."""
        target = self.configuration.targets[name]
        declared_class = self.configuration.file.classes.get(name, "")
        parameters = self.configuration.file.parameters.get(name)
        if not self.fleet.known:
            served = assumed(target, Served(name=declared_class))
            if not served.name:
                reason = f"no DeviceClass is configured: an administrator can set `classes: {{{name}: NAME}}` ({CONFIGURATION_PAGE})"
                return Reason(text=reason)
            return Supply(target, served, parameters)
        device_class = self.fleet.find_class(target, declared_class)
        if device_class is None:
            class_names = declared_class or " or ".join(target.classes) or f"for target {name!r}"
            return Reason(text=f"the cluster has no DeviceClass {class_names}; {class_remedy(name)}")
        if not device_class.devices:
            return Supply(target, assumed(target, device_class), parameters)
        if device_class.driver != target.driver:
            reason = f"class {device_class.name} selects devices of driver {device_class.driver}, but target {name!r} is for {target.driver}"
            return Reason(text=f"{reason} (an administrator can add a target under `targets`)")
        return Supply(target, device_class, parameters)

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
    cached = _OF_SPECS.get(id(spec))
    if cached is not None:
        return cached[1]
    text = wire.encode(spec)
    named_template = _TEMPLATES_BY_TEXT.get(text)
    if named_template is None:
        content = {"spec": msgspec.json.decode(text)}
        named_template = template.name_of(content), content
        _TEMPLATES_BY_TEXT.put(text, named_template, 6 * len(text))
    _OF_SPECS.put(id(spec), (spec, named_template), 4 * len(text))
    return named_template
