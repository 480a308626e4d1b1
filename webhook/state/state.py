"""Everything a decision may know of the world, as one value that the rim replaces when something changes.

Admission reads it and nothing else, so a decision can be repeated from a state and a review. What was not read yet is
None, or named as incomplete or unsure; a decision on such a state never denies for want of what it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allocator import FleetMemo
from dra.objects import ResourceClaimSpec
from dra.stock import Stock
from webhook.state.configuration import Configuration
from webhook.state.container_defaults import ContainerDefaults
from webhook.state.custom_kind import CustomKind, GroupKind
from webhook.state.features import Features
from webhook.state.inventory import Inventory

# What devices there are follows from these. Rules and claims only take away from it.
OF_DEVICES = frozenset({"DeviceClass", "Node", "ResourceSlice"})
# What may be done in a namespace follows from these.
OF_NAMESPACES = frozenset({"LimitRange", "Namespace", "ResourceQuota"})


class State(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The world, as one review sees it."""

    configuration: Configuration = msgspec.field(default_factory=Configuration)
    fleet: Inventory = Inventory()
    features: Features = Features()
    # Labels by namespace, and the quota keys that limit something there.
    namespaces: Mapping[str, Mapping[str, str]] = {}
    quotas: Mapping[str, frozenset[str]] = {}
    # The keys that LimitRanges bound or fill in, by namespace.
    limit_ranges: Mapping[str, frozenset[str]] = {}
    # What LimitRanges give to containers, by namespace: of files, since a pod that a webhook is shown has it already.
    container_defaults: Mapping[str, ContainerDefaults] = {}
    # Seal keys, the first one seals.
    keys: tuple[bytes, ...] = ()
    # Devices and who holds them; None until all of it was read once, and again when it is too old to refuse anything.
    stock: Stock | None = None
    # Nodes that an autoscaler can make, as the configuration declares them; None if it declares none.
    prospects: Stock | None = None
    # Whether what was read of the cluster was confirmed lately: nothing is refused for what an old copy shows.
    confirmed: bool = True
    # Kinds of which objects are set aside, because they could not be read: what of them is not known may be there all the same.
    incomplete: frozenset[str] = frozenset()
    # Namespaces of which it is unknown what may be done in them, and the kinds that could not be read there.
    unsure: Mapping[str, tuple[str, ...]] = {}
    # What pods refer to by name: (namespace, name).
    templates: Mapping[tuple[str, str], ResourceClaimSpec] = {}
    # Whose those templates are that have a name of our form and not our label.
    template_owners: Mapping[tuple[str, str], str] = {}
    # What pods ask for on each node, in nano-units; None if unknown. Only pods that are weighed depend on it, as on the stock.
    uses: Mapping[str, Mapping[str, int]] | None = None
    # Custom kinds by their definitions, as far as these are known.
    custom_kinds: Mapping[GroupKind, tuple[CustomKind, ...]] = {}
    # What was found out about this and earlier stocks. It changes no decision, only how long the next one takes.
    memo: FleetMemo = msgspec.field(default_factory=FleetMemo)

    @property
    def unseen(self) -> tuple[str, ...]:
        """The kinds without which it cannot be said that devices do not exist, as far as they are incomplete."""
        return tuple(sorted(self.incomplete & OF_DEVICES)) if self.incomplete else ()
