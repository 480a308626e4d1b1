"""Gathers what is read from a cluster into the `State` that decisions are made on. Pure: it has no effects.

A `State` that was handed out never changes: what is read one by one is collected here, and copied into the next state when
a caller asks for one after a change. A cluster's ten thousand templates are so copied once, not once for each of them.

Two things are kept apart by their price. A changed claim or node moves the stock by one step, at once. The fleet (what
devices there are at all) is looked at as a whole, so a change only marks it, and `refresh` is called when the rim has time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, assert_never

import msgspec

from allocator.pods import requests
from cluster.objects import LimitRange, Namespace, ResourceQuota
from dra.objects import (
    DeviceClass,
    DeviceCompatibility,
    DeviceTaintRule,
    Node,
    Pod,
    PodSpec,
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
Noted = Namespace | ResourceQuota | LimitRange | ResourceClaimTemplate | Pod
Seen = Stocked | Noted
_STOCKED = (Node, ResourceSlice, DeviceClass, DeviceTaintRule, DeviceCompatibility, ResourceClaim)


_Keys = dict[str, frozenset[str]]  # of resources, by the name of the object that limits them
_TemplateKey = tuple[str, str]  # namespace, name
_Holder = tuple[str, dict[str, int]]  # node, and what is asked for there, in nano-units


class StateBuilder:
    """Everything that was read, and the state made of it."""

    def __init__(self, configuration: Configuration, *, keys: tuple[bytes, ...] = ()) -> None:
        self._namespaces: dict[str, Mapping[str, str]] = {}
        self._quotas: dict[str, _Keys] = {}
        self._limit_ranges: dict[str, _Keys] = {}
        self._templates: dict[_TemplateKey, ResourceClaimSpec] = {}
        self._template_owners: dict[_TemplateKey, str] = {}
        # Until everything has been read once, objects are only collected: a stock is cheaper to make than to move.
        self._collected: dict[tuple[str, str, str], Stocked] = {}
        self._stock: Stock | None = None
        self._fleet_is_old = False
        self._installed = NONE
        # What pods on nodes ask for, by the pod's key, and summed up by node; what was handed out of it never changes.
        self._holders: dict[str, _Holder] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._followed = False
        self._uses_are_old = False
        self._declared = configuration.file.kubernetes.said()
        self._outdated = False  # whether namespaces or templates changed since the state was made
        self._state = State(
            configuration=configuration,
            keys=keys,
            confirmed=False,
        )

    def state(self, *, fresh: bool) -> State:
        """The state to decide on now. What is not fresh must not refuse anything."""
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
        """Put another configuration in force."""
        before, after = self._state.configuration.file, configuration.file
        if (before.evidence, before.node_templates) != (after.evidence, after.node_templates):
            self._fleet_is_old = True
        self._set(configuration=configuration)
        if before.kubernetes != after.kubernetes:
            self._declared = after.kubernetes.said()
            self._understand(self._state.features)

    def learn(
        self,
        *,
        features: Features | None = None,
        keys: tuple[bytes, ...] | None = None,
        installed: Installed | None = None,
        incomplete: frozenset[str] | None = None,
        unsure: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Take in what the server can do, new seal keys, what is installed, or what could not be read: kinds, and what of a namespace."""
        if installed is not None and installed != self._installed:
            self._installed = installed
            self._fleet_is_old = True
        if incomplete is not None and incomplete != self._state.incomplete:
            self._set(incomplete=incomplete)
        if unsure is not None and unsure != self._state.unsure:
            self._set(unsure=unsure)
        if features is not None:
            self._understand(features)
        if keys is not None:
            self._set(keys=keys)

    @property
    def asks_for_pods(self) -> bool:
        """Whether a decision depends on what pods hold of what device plugins hand out."""
        return bool(self._state.configuration.file.mixed)

    @property
    def evidence_in(self) -> tuple[str, ...]:
        """The namespaces in which device plugins and autoscalers are set up."""
        return self._state.configuration.file.evidence.namespaces

    def follow_pods(self, *, followed: bool) -> None:
        """Say whether what pods ask for is known, of all of them and as it is now."""
        if followed != self._followed:
            self._followed = followed
            self._uses_are_old = True

    def put(self, obj: Seen) -> None:
        """Take in an object that is there, new or changed."""
        self.take_in((obj,))

    def drop(self, obj: Seen) -> None:
        """Take in that an object is gone."""
        self.take_in((), (obj,))

    def take_in(self, there: Sequence[Seen], gone: Sequence[Seen] = ()) -> None:
        """Take in objects that are there, new or changed, and others that are gone. Many at once cost little more than one."""
        for objects, are_gone in ((gone, True), (there, False)):
            for obj in objects:
                if not isinstance(obj, _STOCKED):
                    self._note(obj, is_gone=are_gone)
        stocked = [obj for obj in there if isinstance(obj, _STOCKED)]
        left = [obj for obj in gone if isinstance(obj, _STOCKED)]
        if stocked or left:
            self._move(stocked, left)

    def _note(self, obj: Noted, *, is_gone: bool) -> None:
        name, namespace = obj.metadata.name, obj.metadata.namespace
        match obj:
            case Namespace():
                _keep(self._namespaces, name, None if is_gone else obj.metadata.labels)
                self._outdated = True
            case ResourceQuota():
                _keep(self._quotas.setdefault(namespace, {}), name, None if is_gone else frozenset(obj.spec.hard))
                self._set(quotas=_limits(self._state.quotas, self._quotas, namespace))
            case LimitRange():
                _keep(self._limit_ranges.setdefault(namespace, {}), name, None if is_gone else obj.keys)
                self._set(limit_ranges=_limits(self._state.limit_ranges, self._limit_ranges, namespace))
            case ResourceClaimTemplate():
                _keep(self._templates, (namespace, name), None if is_gone else obj.spec.spec)
                _keep(self._template_owners, (namespace, name), None if is_gone else _stranger(obj.metadata))
                self._outdated = True
            case Pod():
                self._hold(msgspec.structs.replace(obj, spec=PodSpec()) if is_gone else obj)
            case _:
                assert_never(obj)

    def _hold(self, pod: Pod) -> None:
        """Note what a pod asks for on its node; one that has ended, or is gone, asks for nothing."""
        key = pod.metadata.key
        before = self._holders.pop(key, None)
        if before:
            self._add_up(before, -1)
        node = pod.spec.node_name
        asked = requests(pod) if node and not pod.has_ended else {}
        amounts = {name: amount for name, amount in asked.items() if "/" in name}
        if amounts:
            holder = node, amounts
            self._holders[key] = holder
            self._add_up(holder, 1)

    def _add_up(self, holder: _Holder, sign: int) -> None:
        node, amounts = holder
        used = dict(self._used.get(node, {}))
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + sign * amount
        self._used[node] = used
        self._uses_are_old = True

    def _understand(self, features: Features) -> None:
        """Take in what a server tells of itself; what it does not tell is as it was declared."""
        known = features.as_declared(self._declared)
        if known != self._state.features:
            self._set(features=known)
        stock = self._stock
        if stock is not None and stock.reading.server != known.server:
            self._fleet_is_old = True  # a server that was upgraded, or has other gates, has another allocator

    def settle(self) -> None:
        """Everything has been read once: from here on there is a stock."""
        if self._stock is not None:
            return
        seen = self._collected.values()
        self._stock = Stock.of(
            slices=[o for o in seen if isinstance(o, ResourceSlice)],
            classes=[o for o in seen if isinstance(o, DeviceClass)],
            nodes=[o for o in seen if isinstance(o, Node)],
            rules=[o for o in seen if isinstance(o, DeviceTaintRule)],
            compatibilities=[o for o in seen if isinstance(o, DeviceCompatibility)],
            claims=[o for o in seen if isinstance(o, ResourceClaim)],
            server=self._state.features.server,
        )
        self._collected = {}
        self._fleet_is_old = True
        self.refresh()

    def refresh(self) -> None:
        """Look at the fleet again if its devices may have changed."""
        if survey := self.survey():
            survey.look()
            self.take(survey)

    def survey(self) -> Survey | None:
        """Hand out the look at the fleet, for who would rather do it elsewhere: it takes a while on a large one."""
        if self._stock is None or not self._fleet_is_old:
            return None
        self._fleet_is_old = False
        return Survey(self._stock, self._state, self._installed)

    def take(self, survey: Survey) -> None:
        """Take in what a look has shown, and what has changed since it began."""
        if self._stock is not None and survey.stock is not survey.earlier:
            self._stock = survey.stock.caught_up(survey.earlier, self._stock)
        self._set(fleet=survey.fleet, prospects=survey.prospects, stock=self._stock, confirmed=True)

    def _move(self, there: Sequence[Stocked], gone: Sequence[Stocked]) -> None:
        if self._stock is None:
            for obj in gone:
                self._collected.pop(_key(obj), None)
            self._collected.update((_key(obj), obj) for obj in there)
            return
        nodes = self._stock.nodes
        told = [obj for obj in there if not isinstance(obj, Node) or _tells_more(obj, nodes.get(obj.metadata.name))]
        if not told and not gone:
            return
        self._stock = self._stock.with_all(told, gone)
        self._set(stock=self._stock)
        if any(isinstance(obj, ResourceSlice | DeviceClass | Node) for obj in (*told, *gone)):
            self._fleet_is_old = True

    def _set(self, **changes: object) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)


class Survey:
    """One look at the fleet of one moment. It touches nothing but itself, so a thread may do it."""

    def __init__(self, stock: Stock, state: State, installed: Installed) -> None:
        self.earlier = stock
        self._installed = installed
        # The same objects as the allocator of the server reads them.
        self.stock = stock
        self._server = state.features.server
        self._file = state.configuration.file
        self.fleet = state.fleet
        self.prospects: Stock | None = None

    def look(self) -> None:
        """Take stock of the devices: the slow part, which may happen in a thread."""
        if self.stock.reading.server != self._server:
            self.stock = self.stock.as_read_by(self._server)
        stock = self.stock
        self.fleet = Inventory.of(
            stock.classes.values(),
            stock.slices.values(),
            stock.nodes.values(),
            self.fleet,
            evidence=self._file.evidence,
            installed=self._installed,
        )
        self.prospects = prospects(self._file.node_templates, stock)


def _keep(table: dict[K, V], key: K, value: V | None) -> None:
    """Put what is kept of an object under a key, or take it away where there is nothing to keep."""
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _stranger(meta: ObjectMeta) -> str | None:
    """Say whose a template is that has a name of our form; None if it is ours, or has a name of its own."""
    manager = meta.labels.get("app.kubernetes.io/managed-by", "")
    if not meta.name.startswith(names.PREFIX) or names.LABELS.items() <= meta.labels.items():
        return None
    for owner in meta.owner_references:
        return f"it belongs to {owner.kind} {owner.name}"
    if manager:
        return f"its label says that {manager} manages it"
    return f"it was made at {meta.creation_timestamp or 'an unknown time'}, and no owner is written on it"


def _limits(
    before: Mapping[str, frozenset[str]], known: Mapping[str, Mapping[str, frozenset[str]]], namespace: str
) -> Mapping[str, frozenset[str]]:
    """Say anew which keys the objects of a namespace limit; where none does, it is not named."""
    limited = frozenset[str]().union(*known.get(namespace, {}).values())
    after = dict(before)
    after.pop(namespace, None)
    if limited:
        after[namespace] = limited
    return after


def _key(obj: Stocked) -> tuple[str, str, str]:
    namespace = ""
    if isinstance(obj, ResourceClaim):
        namespace = obj.metadata.namespace or "default"
    return type(obj).__name__, namespace, obj.metadata.name


def _tells_more(node: Node, known: Node | None) -> bool:
    """Kubelets write their node's status every few minutes; only what decides about devices counts."""
    return known is None or (
        node.metadata.labels != known.metadata.labels
        or node.spec != known.spec
        or node.status.allocatable != known.status.allocatable
        or node.status.declared_features != known.status.declared_features
    )
