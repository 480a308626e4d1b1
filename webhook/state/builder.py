"""Collects the objects of a cluster and builds the `State` for decisions.

A returned state never changes. Changed namespaces, templates and pods are collected here, and copied when the next state is requested, so
that ten thousand new templates are copied once and not ten thousand times.

A changed claim or node updates the stock (devices, and the claims that hold them) at once. The inventory, which summarizes all devices, is
expensive, so a change only marks it as old. The caller then runs a `Survey`, which makes a new inventory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, assert_never

import msgspec

from allocator.pods import requested_devices
from cluster.objects import LimitRange, Namespace, ResourceQuota
from dra.objects import (
    DeviceClass,
    DeviceCompatibility,
    DeviceQuota,
    DeviceTaintRule,
    Node,
    Pod,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dra.stock import Stock
from webhook import names
from webhook.state.installed import NONE, Installed
from webhook.state.inventory import Inventory
from webhook.state.node_templates import prospects
from webhook.state.state import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.objects import ObjectMeta
    from webhook.state.configuration import Configuration
    from webhook.state.features import Features

K = TypeVar("K")
V = TypeVar("V")
Stocked = Node | ResourceSlice | DeviceClass | DeviceTaintRule | DeviceCompatibility | ResourceClaim
Unstocked = DeviceQuota | Namespace | ResourceQuota | LimitRange | ResourceClaimTemplate | Pod
Seen = Stocked | Unstocked
_STOCKED = (Node, ResourceSlice, DeviceClass, DeviceTaintRule, DeviceCompatibility, ResourceClaim)

_LimitedNames = dict[
    str, frozenset[str]
]  # the resource names that each ResourceQuota or LimitRange of a namespace limits
_TemplateKey = tuple[str, str]  # namespace, name
_PodUse = tuple[str, dict[str, int]]  # a pod's node, and what the pod requests of its device plugins, in nano-units


class StateBuilder:
    def __init__(self, configuration: Configuration, *, keys: tuple[bytes, ...] = ()) -> None:
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._quotas: dict[str, _LimitedNames] = {}
        self._device_quotas: dict[str, dict[str, DeviceQuota]] = {}
        self._limit_ranges: dict[str, _LimitedNames] = {}
        self._templates: dict[_TemplateKey, ResourceClaimSpec] = {}
        self._template_owners: dict[_TemplateKey, str] = {}
        # Objects read before `settle`. The stock is made once from all of them, because updating it for each object costs more.
        self._collected: dict[tuple[str, str, str], Stocked] = {}
        self._stock: Stock | None = None
        self._fleet_is_old = False
        self._installed = NONE
        # The use of each pod, and the sums of the amounts by node. A sum may be part of a state, so it is replaced and never changed.
        self._pod_uses: dict[str, _PodUse] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._followed = False
        self._uses_are_old = False
        self._declared = configuration.file.kubernetes.declared()
        self._outdated = False  # whether namespaces or templates changed since the state was made
        self._state = State(configuration=configuration, keys=keys, confirmed=False)

    def state(self, *, fresh: bool) -> State:
        """Return the state to decide on now. On a state that is not `fresh`, decisions refuse nothing."""
        if self._outdated:
            self._outdated = False
            self._set(
                namespaces=dict(self._namespaces),
                templates=dict(self._templates),
                template_owners=dict(self._template_owners),
            )
        if self._uses_are_old:
            self._uses_are_old = False
            self._set(uses=dict(self._used) if self._followed else None)
        if fresh or not self._state.confirmed:
            return self._state
        return msgspec.structs.replace(self._state, stock=None, confirmed=False)

    def configure(self, configuration: Configuration) -> None:
        before, after = self._state.configuration.file, configuration.file
        if (before.evidence, before.node_templates) != (after.evidence, after.node_templates):
            self._fleet_is_old = True
        self._set(configuration=configuration)
        if before.kubernetes != after.kubernetes:
            self._declared = after.kubernetes.declared()
            self._set_features(self._state.features)

    def learn(
        self,
        *,
        features: Features | None = None,
        keys: tuple[bytes, ...] | None = None,
        installed: Installed | None = None,
        incomplete: frozenset[str] | None = None,
        unsure: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Update everything except objects: the server's features, signing keys, installed components, and what could not be read."""
        if installed is not None and installed != self._installed:
            self._installed = installed
            self._fleet_is_old = True
        if incomplete is not None and incomplete != self._state.incomplete:
            self._set(incomplete=incomplete)
        if unsure is not None and unsure != self._state.unsure:
            self._set(unsure=unsure)
        if features is not None:
            self._set_features(features)
        if keys is not None:
            self._set(keys=keys)

    @property
    def needs_pods(self) -> bool:
        """Whether decisions depend on how many devices of device plugins the pods use."""
        return bool(self._state.configuration.file.mixed)

    @property
    def evidence_in(self) -> tuple[str, ...]:
        return self._state.configuration.file.evidence.namespaces

    def follow_pods(self, *, followed: bool) -> None:
        """Set whether the requests of all pods are known and up to date."""
        if followed != self._followed:
            self._followed = followed
            self._uses_are_old = True

    def update_objects(self, changed_objects: Sequence[Seen], deleted_objects: Sequence[Seen] = ()) -> None:
        """Remove deleted objects, then add or replace others. One call with many objects costs little more than one with a single object."""
        for objects, deleted in ((deleted_objects, True), (changed_objects, False)):
            for obj in objects:
                if not isinstance(obj, _STOCKED):
                    self._update(obj, deleted=deleted)
        changed = [obj for obj in changed_objects if isinstance(obj, _STOCKED)]
        removed = [obj for obj in deleted_objects if isinstance(obj, _STOCKED)]
        if self._stock is None:
            for item in removed:
                self._collected.pop(_key(item), None)
            self._collected.update((_key(obj), obj) for obj in changed)
            return
        nodes = self._stock.nodes
        changed = [
            obj for obj in changed if not isinstance(obj, Node) or _facts(obj) != _facts(nodes.get(obj.metadata.name))
        ]
        if not changed and not removed:
            return
        self._stock = self._stock.with_all(changed, removed)
        self._set(stock=self._stock)
        if any(isinstance(obj, ResourceSlice | DeviceClass | Node) for obj in (*changed, *removed)):
            self._fleet_is_old = True

    def _update(self, obj: Unstocked, *, deleted: bool) -> None:
        name, namespace = obj.metadata.name, obj.metadata.namespace or "default"
        match obj:
            case Namespace():
                _put_or_drop(self._namespaces, name, None if deleted else obj.metadata.labels)
                self._outdated = True
            case ResourceQuota():
                quotas = self._quotas.setdefault(namespace, {})
                _put_or_drop(quotas, name, None if deleted else frozenset(obj.spec.hard))
                self._set(quotas=_with_limited_names(self._state.quotas, namespace, quotas))
            case DeviceQuota():
                own = self._device_quotas.setdefault(namespace, {})
                _put_or_drop(own, name, None if deleted else obj)
                others = {key: value for key, value in self._state.device_quotas.items() if key != namespace}
                self._set(device_quotas=others | {namespace: tuple(own.values())} if own else others)
            case LimitRange():
                ranges = self._limit_ranges.setdefault(namespace, {})
                _put_or_drop(ranges, name, None if deleted else obj.keys)
                self._set(limit_ranges=_with_limited_names(self._state.limit_ranges, namespace, ranges))
            case ResourceClaimTemplate():
                _put_or_drop(self._templates, (namespace, name), None if deleted else obj.spec.spec)
                owner = None if deleted else _foreign_owner(obj.metadata)
                _put_or_drop(self._template_owners, (namespace, name), owner)
                self._outdated = True
            case Pod():
                if before := self._pod_uses.pop(obj.metadata.key, None):
                    self._add_use(before, -1)
                node = obj.spec.node_name
                if node and not deleted and not obj.has_ended:
                    amounts = requested_devices(obj)
                    if amounts:
                        self._pod_uses[obj.metadata.key] = node, amounts
                        self._add_use((node, amounts), 1)
            case _:
                assert_never(obj)

    def _add_use(self, use: _PodUse, sign: int) -> None:
        node, amounts = use
        used = dict(self._used.get(node, {}))
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + sign * amount
        used = {name: amount for name, amount in used.items() if amount}
        if used:
            self._used[node] = used
        else:
            self._used.pop(node, None)
        self._uses_are_old = True

    def _set_features(self, features: Features) -> None:
        """Set the features that the server reports. Of those that it does not report, set what the configuration declares."""
        known = features.as_declared(self._declared)
        if known != self._state.features:
            self._set(features=known)
        stock = self._stock
        if stock is not None and stock.reading.server != known.server:
            self._fleet_is_old = True  # a server with another version or other feature gates allocates differently

    def settle(self) -> None:
        """Make the stock, after everything has been read once."""
        if self._stock is not None:
            return
        objects = self._collected.values()
        self._stock = Stock.of(
            slices=[o for o in objects if isinstance(o, ResourceSlice)],
            classes=[o for o in objects if isinstance(o, DeviceClass)],
            nodes=[o for o in objects if isinstance(o, Node)],
            rules=[o for o in objects if isinstance(o, DeviceTaintRule)],
            compatibilities=[o for o in objects if isinstance(o, DeviceCompatibility)],
            claims=[o for o in objects if isinstance(o, ResourceClaim)],
            server=self._state.features.server,
        )
        self._collected = {}
        self._fleet_is_old = True
        self.refresh()

    def refresh(self) -> None:
        """Survey the fleet if its devices may have changed."""
        if survey := self.survey():
            survey.count_devices()
            self.apply_survey(survey)

    def survey(self) -> Survey | None:
        """Return the survey that is due, or None. The caller can run the survey in a thread, because it takes 100 ms on 5,000 nodes."""
        if self._stock is None or not self._fleet_is_old:
            return None
        self._fleet_is_old = False
        return Survey(self._stock, self._state, self._installed)

    def apply_survey(self, survey: Survey) -> None:
        """Use the results of a survey, together with the changes since it began."""
        if self._stock is not None and survey.stock is not survey.earlier:
            self._stock = survey.stock.caught_up(survey.earlier, self._stock)
        self._set(fleet=survey.fleet, prospects=survey.prospects, stock=self._stock, confirmed=True)

    def _set(self, **changes: object) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)


class Survey:
    """A survey of the fleet at one moment. It changes nothing but itself, so it may run in a thread."""

    def __init__(self, stock: Stock, state: State, installed: Installed) -> None:
        self.earlier = stock
        self._installed = installed
        # `count_devices` replaces this stock by one of the same objects, read the way the allocator of the server's version reads them.
        self.stock = stock
        self._server = state.features.server
        self._file = state.configuration.file
        self.fleet = state.fleet
        self.prospects: Stock | None = None

    def count_devices(self) -> None:
        """Count the devices, which is the slow part."""
        if self.stock.reading.server != self._server:
            self.stock = self.stock.as_read_by(self._server)
        stock = self.stock
        self.fleet = Inventory.gather(
            stock.classes.values(),
            stock.slices.values(),
            stock.nodes.values(),
            self.fleet,
            evidence=self._file.evidence,
            installed=self._installed,
        )
        self.prospects = prospects(self._file.node_templates, stock)


def _put_or_drop(table: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _foreign_owner(meta: ObjectMeta) -> str | None:
    """Return a string about the likely owner of a template that has our prefix but not our labels; None for any other template."""
    if not meta.name.startswith(names.PREFIX) or names.LABELS.items() <= meta.labels.items():
        return None
    for owner in meta.owner_references:
        return f"it belongs to {owner.kind} {owner.name}"
    if manager := meta.labels.get("app.kubernetes.io/managed-by", ""):
        return f"its label says that {manager} manages it"
    return f"it was created at {meta.creation_timestamp or 'an unknown time'} and names no owner"


def _with_limited_names(
    before: Mapping[str, frozenset[str]], namespace: str, own: _LimitedNames
) -> Mapping[str, frozenset[str]]:
    """Return the limited keys by namespace, after replacing those of one namespace. Namespaces without limits have no entry."""
    after = {name: keys for name, keys in before.items() if name != namespace}
    if limited := frozenset[str]().union(*own.values()):
        after[namespace] = limited
    return after


def _key(obj: Stocked) -> tuple[str, str, str]:
    namespace = (obj.metadata.namespace or "default") if isinstance(obj, ResourceClaim) else ""
    return type(obj).__name__, namespace, obj.metadata.name


def _facts(node: Node | None) -> object:
    """Return the parts of a node that decisions depend on. Kubelets rewrite the rest of its status every few minutes."""
    if node is None:
        return None
    return node.metadata.labels, node.spec, node.status.allocatable, node.status.capacity, node.status.declared_features
