"""Feature gates that are off on the server and that workloads need, and how each is switched on. Pure.

Which components read a gate follows Kubernetes 1.37.1; the API server and the scheduler read every one.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from cli.loading import inside, items, text, who
from cli.survey.obstacle import Obstacle
from dra import server
from dra.objects import IMPLICIT, versions
from dra.validation import gates
from webhook.translate import at, mapping, paths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cli.loading import Gathered, Object
    from cli.survey.families import Family
    from cli.survey.verdicts import JudgedWorkload
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
_MANAGER: Final = (server.CLAIMS, server.ALTERNATIVES, server.ADMIN_ACCESS, server.TAINTS)
_KUBELET: Final = (server.CLAIMS, server.EXTENDED, server.NODE_RESOURCES)
# Without these a slice says less or its devices are not given at all; without others a claim still gets its devices.
_OF_SLICES: Final = frozenset(
    (server.COUNTERS, server.TAINTS, server.BINDING, server.NODE_RESOURCES, server.GROUPS)
)  # fmt: skip


class GateNeeds:
    """Counts the workloads that need a gate that is off, with their living pods."""

    def __init__(self, gathered: Gathered, features: Features) -> None:
        self._features = features
        likely = features.likely
        self._off = frozenset(gate for gate in _TITLES if not likely.on(gate))
        if not features.on(server.CLAIMS):
            self._off |= {server.CLAIMS}
        self._workloads: Counter[str] = Counter()
        self._pods: Counter[str] = Counter()
        # The specs of claims by kind, namespace and name; drivers by the gates of their slices; the selectors of classes.
        self._specs: dict[tuple[str, str, str], Object] = {}
        self._drivers: dict[str, set[str]] = {}
        self._selectors: dict[str, str] = {}
        for one in gathered.of("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"):
            upgraded = versions.upgrade(one).value
            name = who(one)
            spec = inside(upgraded, "spec")
            match name.kind:
                case "ResourceSlice":
                    needed = gates.used(name.kind, upgraded) & self._off & _OF_SLICES
                    self._drivers.setdefault(text(spec.get("driver")), set()).update(needed)
                case "DeviceClass":
                    cel = [text(inside(selector, "cel").get("expression")) for selector in items(spec, "selectors")]
                    self._selectors[name.name] = " ".join(cel)
                case _:
                    self._specs[name.kind, name.namespace, name.name] = upgraded

    def count(self, family: Family, judged: JudgedWorkload | None) -> None:
        """Count a workload."""
        needed = set(judged.gates) if judged is not None else set()
        classes = set(judged.classes) if judged is not None else set()
        for shape in family.shapes:
            for path in paths(shape, unknown=True):
                spec = inside(mapping(at(shape, path)), "spec")
                for claim in items(spec, "resourceClaims"):
                    needed.add(server.CLAIMS)
                    for kind, field in _REFERENCES.items():
                        own = self._specs.get((kind, family.top.namespace, text(claim.get(field))), {})
                        needed |= gates.used(kind, own)
                        classes |= _classes(inside(own, *_SPEC_OF[kind]))
                for container in (*items(spec, "containers"), *items(spec, "initContainers")):
                    for key in inside(container, "resources", "limits"):
                        if key.startswith(IMPLICIT):
                            needed |= {server.CLAIMS, server.EXTENDED}
                            classes.add(key.removeprefix(IMPLICIT))
        for driver, missing in self._drivers.items():
            if any(f"'{driver}'" in self._selectors.get(one, "").replace('"', "'") for one in classes):
                needed |= missing
        for gate in needed & self._off:
            self._workloads[gate] += 1
            self._pods[gate] += len(family.pods)

    def obstacles(self) -> Iterator[Obstacle]:
        """Name each gate that is missing, and how many wait for it."""
        for gate in _TITLES:
            if number := self._workloads[gate]:
                guessed = "" if gate in self._features.gates else " by default"
                waiting = f"{number} {'workload' if number == 1 else 'workloads'}"
                pods = self._pods[gate]
                yield Obstacle(
                    what="feature gate",
                    object=gate,
                    message=f"Kubernetes 1.{self._features.minor} has it off{guessed}: {waiting} ({pods} {'pod' if pods == 1 else 'pods'})"
                    f" {'needs' if number == 1 else 'need'} {_TITLES[gate]}",
                    remedy=remedy_of(gate, self._features),
                )


_REFERENCES: Final = {"ResourceClaim": "resourceClaimName", "ResourceClaimTemplate": "resourceClaimTemplateName"}
_SPEC_OF: Final = {"ResourceClaim": ("spec",), "ResourceClaimTemplate": ("spec", "spec")}


def remedy_of(gate: str, features: Features) -> str:
    """Say which version has a gate on, or which components it is switched on in."""
    minor = features.minor
    stages = server.GATES[gate]
    first = stages[0].since
    default = min((stage.since for stage in stages if stage.on), default=0)
    known = server.known_gates(minor) if minor >= server.OLDEST else {}
    missing = [need for need in server.NEEDS.get(gate, ()) if not features.likely.on(need)]
    flag = ",".join(f"{one}=true" for one in (*missing, gate))
    components = ["kube-apiserver", "kube-scheduler"]
    components += ["kube-controller-manager"] if gate in _MANAGER else []
    components += ["kubelet"] if gate in _KUBELET else []
    start = f"start {', '.join(components)} with `--feature-gates={flag}`"
    if gate not in known:
        return f"upgrade to 1.{default}" if default else f"upgrade to 1.{first}, and {start}"
    return f"upgrade to 1.{default}, or {start}" if default > minor else start


def _classes(spec: Object) -> set[str]:
    """Name the classes of a claim's requests."""
    found: set[str] = set()
    for request in items(inside(spec, "devices"), "requests"):
        every: Iterable[Object] = (inside(request, "exactly"), *items(request, "firstAvailable"))
        found |= {text(one.get("deviceClassName")) for one in every}
    return found - {""}
