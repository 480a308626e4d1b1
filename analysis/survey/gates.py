"""Finds feature gates that are off on the server and that workloads need."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.loading import identity_of, inside, items, text
from analysis.requesting import classes_in
from analysis.survey.remedies import remedy_of
from analysis.survey.verdicts import JudgedWorkload, Key, gates_on
from dra import server
from dra.finding import Finding, make_finding
from dra.objects import IMPLICIT, versions
from dra.raw import containers_of
from dra.validation import gates
from webhook.dialects import Outcome
from webhook.state import Inventory
from webhook.translate import pods_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.loading import Object, Reading
    from analysis.survey.families import Family
    from dra.stock import Stock
    from webhook.state import Features

_TITLES: Final = {
    server.CLAIMS: "resource claims",
    server.ALTERNATIVES: "alternatives (firstAvailable)",
    server.CAPACITY: "shares of devices",
    server.COUNTERS: "partitions of devices",
    server.TAINTS: "taints of devices",
    server.EXTENDED: "names of DeviceClasses as resources",
    server.ADMIN_ACCESS: "admin access",
    server.BINDING: "binding conditions",
    server.NODE_RESOURCES: "devices that count as the node's CPU or memory",
    server.GROUPS: "compatibility groups",
    server.DERIVED: "derived attributes",
}
# Without these gates, a slice has less information or its devices cannot be allocated. Without other gates, claims still get their devices.
_OF_SLICES: Final = (server.COUNTERS, server.TAINTS, server.BINDING, server.NODE_RESOURCES, server.GROUPS)


class OwnNeeds(NamedTuple):
    """The gates that are off and that a workload's own claims need, and the DeviceClasses of these claims."""

    gates: frozenset[str]
    classes: frozenset[str]


class GateNeeds:
    """Counts the workloads that need a gate that is off, with their living pods."""

    def __init__(self, reading: Reading, features: Features, stock: Stock | None) -> None:
        self._features = features
        likely = features.likely
        self._off = frozenset(gate for gate in _TITLES if gate != server.CLAIMS and not likely.enabled(gate))
        if not features.enabled(server.CLAIMS):
            self._off |= {server.CLAIMS}
        self._workloads: Counter[str] = Counter()
        self._pods: Counter[str] = Counter()
        # Claims and templates by kind, namespace and name; the gates of each pool; for each gate, the classes whose devices need it.
        self._specs: dict[tuple[str, str, str], Object] = {}
        pools: dict[tuple[str, str], set[str]] = {}
        for obj in reading.of_kinds("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"):
            upgraded = versions.upgrade(obj).value
            name = identity_of(obj)
            if name.kind == "ResourceSlice":
                spec = inside(upgraded, "spec")
                pool = text(spec.get("driver")), text(inside(spec, "pool").get("name"))
                pools.setdefault(pool, set()).update(
                    (gates.required_by(name.kind, upgraded) & self._off).intersection(_OF_SLICES)
                )
            else:
                self._specs[name.kind, name.namespace, name.name] = upgraded
        self._classes: dict[str, frozenset[str]] = {}
        if stock is None:
            return
        for gate in frozenset[str]().union(*pools.values()):
            slices = [
                slice_
                for slice_ in stock.slices.values()
                if gate in pools.get((slice_.spec.driver, slice_.spec.pool.name), ())
            ]
            selecting_classes = Inventory.gather(stock.classes.values(), slices, ()).classes
            self._classes[gate] = frozenset([name for name, devices in selecting_classes.items() if devices.devices])

    def of_own_claims(self, family: Family) -> OwnNeeds:
        """Return the needs of claims that a workload's author wrote, and of requests by the name of a class."""
        needed: set[str] = set()
        classes: set[str] = set()
        for shape in family.shapes:
            for pod in pods_in(shape):
                spec = inside(pod, "spec")
                for claim in items(spec, "resourceClaims"):
                    needed.add(server.CLAIMS)
                    for kind, field in _REFERENCES.items():
                        own = self._specs.get((kind, family.top.namespace, text(claim.get(field))), {})
                        needed |= gates.required_by(kind, own)
                        classes |= classes_in(inside(own, *_SPEC_OF[kind]))
                for container in containers_of(spec):
                    for key in inside(container, "resources", "limits"):
                        if key.startswith(IMPLICIT):
                            needed |= {server.CLAIMS, server.EXTENDED}
                            classes.add(key.removeprefix(IMPLICIT))
        return OwnNeeds(frozenset(needed & self._off), frozenset(classes))

    def count(self, family: Family, judged: JudgedWorkload | None, own: OwnNeeds) -> None:
        """Count a workload."""
        needed, classes = set(own.gates), set(own.classes)
        if judged is not None:
            needed |= judged.gates
            classes |= judged.classes
        needed |= {gate for gate, needing_classes in self._classes.items() if not needing_classes.isdisjoint(classes)}
        for gate in needed & self._off:
            self._workloads[gate] += 1
            self._pods[gate] += len(family.pods)

    def settled(self, judged: JudgedWorkload, own: OwnNeeds) -> JudgedWorkload:
        """If the API server would drop parts of a workload's own claims, return the workload as one that stays until the gates are on."""
        if judged.keys or not own.gates:
            return judged
        gates_off = sorted(own.gates, key=list(_TITLES).index)
        key = Key(
            container="",
            key="resourceClaims",
            dialect="",
            outcome=Outcome.LEFT,
            until=gates_on(gates_off),
            detail=f"the API server (1.{self._features.minor}, {', '.join(gates_off)} off) would drop fields that its claims need: "
            + ", ".join([_TITLES[gate] for gate in gates_off]),
            remedy="; ".join([remedy_of(gate, self._features) for gate in gates_off]),
        )
        return JudgedWorkload.from_keys((key,), classes=judged.classes, warnings=judged.warnings, gates=judged.gates)

    def obstacles(self) -> Iterator[Finding]:
        """Yield a finding for each gate that is off, with the number of workloads that need it."""
        for gate in _TITLES:
            if number := self._workloads[gate]:
                is_off = f"Kubernetes 1.{self._features.minor} has it off"
                if gate not in self._features.gates:
                    is_off += " by default"
                pods = "1 pod" if self._pods[gate] == 1 else f"{self._pods[gate]} pods"
                need = f"1 workload ({pods}) needs" if number == 1 else f"{number} workloads ({pods}) need"
                yield make_finding("S019", gate, f"{is_off}: {need} {_TITLES[gate]}", remedy_of(gate, self._features))


_REFERENCES: Final = {"ResourceClaim": "resourceClaimName", "ResourceClaimTemplate": "resourceClaimTemplateName"}
_SPEC_OF: Final = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}
