"""The input of every decision: configuration, fleet, namespaces and claims as one immutable value.

Admission reads nothing else, so a decision can be reproduced from a state and a review. Data that has not been read is
None, or listed in `incomplete` or `unsure`; a decision never denies a pod because such data is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from allocator import FleetMemo
from cluster.objects import LimitRange
from dra.objects import DeviceQuota, ResourceClaimSpec
from dra.stock import Stock
from webhook.state.configuration import Configuration
from webhook.state.custom_kind import CustomKind, GroupKind
from webhook.state.features import Features
from webhook.state.inventory import Inventory

# The kinds that decide which devices exist. Taint rules and claims only reduce what is available.
OF_DEVICES = frozenset({"DeviceClass", "Node", "ResourceSlice"})
# The kinds that decide what the webhook may do in a namespace.
OF_NAMESPACES = frozenset({"LimitRange", "Namespace", "ResourceQuota"})


class State(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The complete input of a decision, except the review."""

    configuration: Configuration = msgspec.field(default_factory=Configuration)
    fleet: Inventory = Inventory()
    features: Features = Features()
    # By namespace: its labels.
    namespaces: Mapping[str, Mapping[str, str]] = {}
    # By namespace: the keys that its ResourceQuotas limit.
    quotas: Mapping[str, frozenset[str]] = {}
    # By namespace: its DeviceQuotas.
    device_quotas: Mapping[str, tuple[DeviceQuota, ...]] = {}
    # By namespace: the keys that its LimitRanges bound or default.
    limit_ranges: Mapping[str, frozenset[str]] = {}
    # By namespace: its LimitRanges. Only for objects in files: the API server applies their defaults and bounds before a review.
    file_limit_ranges: Mapping[str, Sequence[LimitRange]] = {}
    # Signing keys; new signatures use the first.
    keys: tuple[bytes, ...] = ()
    # Devices and the claims that hold them; None before the first complete read, and if the copy is too old to refuse anything.
    stock: Stock | None = None
    # Nodes that an autoscaler can create, from `nodeTemplates`; None if there are none.
    prospects: Stock | None = None
    # Whether the copy of the cluster was confirmed recently. A stale copy refuses nothing.
    confirmed: bool = True
    # Kinds with objects that could not be read: an object that is missing here may exist.
    incomplete: frozenset[str] = frozenset()
    # By namespace: the kinds whose objects there could not be read, so that it is unknown what the namespace allows.
    unsure: Mapping[str, tuple[str, ...]] = {}
    # ResourceClaimTemplates by (namespace, name).
    templates: Mapping[tuple[str, str], ResourceClaimSpec] = {}
    # Templates whose name has our prefix but that lack our labels, each with its likely owner.
    template_owners: Mapping[tuple[str, str], str] = {}
    # By node: the amounts that its pods request of device plugins, in nano-units; None if unknown.
    uses: Mapping[str, Mapping[str, int]] | None = None
    # Custom kinds whose CustomResourceDefinitions are known.
    custom_kinds: Mapping[GroupKind, tuple[CustomKind, ...]] = {}
    # Cached results for this and earlier stocks. They affect the time of a decision, not its result.
    memo: FleetMemo = msgspec.field(default_factory=FleetMemo)

    def offers(self, key: str) -> bool:
        """Return whether a class serves a resource, or a device plugin hands it out on a node that exists or is declared (`nodeTemplates`)."""
        declared = self.configuration.file.node_templates
        return (
            key in self.fleet.extended
            or key in self.fleet.handed_out_anywhere
            or any(key in template.allocatable for template in declared)
        )

    @property
    def unseen(self) -> tuple[str, ...]:
        """The incomplete kinds of OF_DEVICES: because of them, a device that is missing here may exist."""
        return tuple(sorted(self.incomplete & OF_DEVICES)) if self.incomplete else ()

    @property
    def knows_nodes(self) -> bool:
        """Whether a pod may be refused because no node serves it. False if there are no nodes and no kind of OF_DEVICES was read completely."""
        return not self.incomplete >= OF_DEVICES or bool(self.stock and self.stock.nodes)
