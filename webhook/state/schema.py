"""The configuration file: its shape, and what fits the shape but makes no sense.

Data only. What it compiles to is `webhook.state.configuration`. Each dialect's own options are a field of the file under the
dialect's name, put there from `VOCABULARIES`: nothing here names one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

import msgspec

from allocator.strategies import DEFAULT as ALLOCATORS_DEFAULT
from allocator.strategies import UnknownStrategy, read_placement
from dra.errors import QuantityError
from dra.objects import DeviceAttribute, DeviceCapacity
from dra.pointer import escape
from dra.quantity import parse
from dra.server import Declared, mistakes, read_minor
from dra.validation import shape
from webhook.dialects import (
    AUTO,
    TARGETS,
    VOCABULARIES,
    Dialect,
    Mistake,
    Options,
    Position,
    Scheduler,
    Target,
    pattern,
)
from webhook.state.rules import unknown, wrong_tables, wrong_targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?").fullmatch
Mode = Literal["observe", "warn", "enforce", "off"]


class _Declared(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of everything in the file."""


class Model(_Declared, frozen=True, kw_only=True):
    """A device model and its memory, for percentages where the fleet can't be looked at."""

    product: str
    memory: str


class Joint(_Declared, frozen=True, kw_only=True):
    """Keys that belong together in a container: devices of both come in pairs under one value of an attribute."""

    primary: str
    secondary: str
    attribute: str = AUTO
    # Counts that do not divide, or no common attribute: leave the container, or refuse the pod.
    otherwise: Literal["leave", "refuse"] = "leave"


class Placing(_Declared, frozen=True, kw_only=True):
    """How the bridge places pods that say nothing about it themselves, and whose Namespace does not."""

    # A name, or several with weights: NAME=WEIGHT,NAME=WEIGHT.
    strategy: str = ALLOCATORS_DEFAULT
    # Namespace: another one for its pods.
    namespaces: dict[str, str] = {}
    # With devices, of ours; 0 for any number.
    most_pods_per_node: int = 0


class Bridge(_Declared, frozen=True, kw_only=True):
    """The scheduler with our bridge, and the drivers whose devices it manages."""

    scheduler_name: str
    drivers: tuple[str, ...] = ()
    # Whether a DeviceTaintRule keeps all other schedulers from these devices: claims that go to the bridge tolerate it.
    fence: bool = False
    placement: Placing = Placing()


class Evidence(_Declared, frozen=True, kw_only=True):
    """Whose word counts for what a name means and which sizes there are; empty members leave it to everybody."""

    # Drivers whose slices count.
    drivers: tuple[str, ...] = ()
    # Labels that the nodes have whose slices, labels and hand-outs count.
    node_selector: dict[str, str] = {}


class PreferredNodes(_Declared, frozen=True, kw_only=True):
    """Which nodes are preferred for pods, while a fleet moves node by node. One of the three is said."""

    # Nodes that publish devices to a driver, or those whose device plugins hand the name out.
    prefer: Literal["dra", "plugin"] | None = None
    # Percent of the workloads that prefer nodes with a driver.
    percent: int | None = None
    # Pods that demand these labels of their node prefer nodes with a driver.
    node_selector: dict[str, str] = {}


class MixedFleet(PreferredNodes, frozen=True, kw_only=True):
    """The same, for a name; and for pods of some namespaces otherwise."""

    namespaces: dict[str, PreferredNodes] = {}


class Kueue(_Declared, frozen=True, kw_only=True):
    """What Kueue can account for: classes that its `deviceClassMappings` name, with its webhook for DRA on."""

    device_classes: tuple[str, ...] = ()


class TemplateDevices(_Declared, frozen=True, kw_only=True):
    """So many devices that are alike, written as in a ResourceSlice."""

    driver: str
    count: int = 1
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    allow_multiple_allocations: bool | None = None


class NodeTemplate(_Declared, frozen=True, kw_only=True):
    """Nodes that an autoscaler can make: what one of them publishes, and how many there may be."""

    name: str
    labels: dict[str, str] = {}
    max_nodes: int | None = None
    devices: tuple[TemplateDevices, ...] = ()


class Kubernetes(_Declared, frozen=True, kw_only=True):
    """The API server and its scheduler, where they do not tell: what they tell counts for more."""

    # 1.N, for files; a cluster tells its version.
    version: str = ""
    # As both are started with: name, and whether it is on.
    feature_gates: dict[str, bool] = {}

    def said(self) -> Declared:
        """What of this a server can be, and what cannot be understood."""
        wrong = dict(mistakes(self.version, self.feature_gates))
        minor = read_minor(self.version) if self.version and "" not in wrong else 0
        good = {gate: on for gate, on in self.feature_gates.items() if gate not in wrong}
        return Declared(minor, good, tuple([f"{error} ({error.remedy})" for error in wrong.values()]))


class Metadata(_Declared, frozen=True, kw_only=True):
    name: str = ""


class File(_Declared, frozen=True, kw_only=True):
    """The file as it is written, but for the dialects' options."""

    api_version: Literal["drawbridge.dev/v1alpha1"]
    kind: Literal["DrawbridgeConfiguration"]
    metadata: Metadata = Metadata()
    # What is done in namespaces that say nothing themselves.
    mode: Mode = "enforce"
    # Percent of the workloads in namespaces that enforce; the others are only warned.
    canary: int = 100
    # What claims can only say roughly.
    approximations: Literal["allow", "warn", "leave"] = "warn"
    # Name: which nodes are preferred for pods that ask by it, where some nodes have moved from device plugins to drivers.
    mixed: dict[str, MixedFleet] = {}
    # Percentages where no device size is known.
    unresolved: Literal["leave", "refuse"] = "leave"
    # Claims that the pod's scheduler would not understand.
    not_understood: Literal["leave", "refuse"] = "leave"
    # HAMi's binding to a NUMA node, which a claim cannot say.
    numa_bind: Literal["leave", "drop", "refuse"] = "leave"
    # Claims that no node could serve even if idle.
    impossible: Literal["refuse", "warn"] = "refuse"
    # Who places fully translated pods that named the scheduler of their dialect.
    target_scheduler: str = "default-scheduler"
    # What a name means that several systems use: leave, a dialect, or what the dialect knows that reads it bare.
    meanings: dict[str, str] = {}
    # Target: the DeviceClass that serves it.
    classes: dict[str, str] = {}
    # Kinds of device beside ours.
    targets: tuple[Target, ...] = ()
    # Sizes of models that the fleet does not show.
    models: tuple[Model, ...] = ()
    # Who is believed, where everybody is not.
    evidence: Evidence = Evidence()
    # What an autoscaler can make: no pod is refused as impossible that such a node could serve.
    node_templates: tuple[NodeTemplate, ...] = ()
    # Dialect: its keys under the names this cluster uses; "" switches a key off.
    keys: dict[str, dict[str, str]] = {}
    # Dialects switched off altogether.
    disabled: tuple[str, ...] = ()
    # Tables of the administrator's own.
    dialects: tuple[Dialect, ...] = ()
    # Keys whose devices belong close together.
    joint: tuple[Joint, ...] = ()
    # Key: the quota key that limits it from now on.
    quotas: dict[str, str] = {}
    # Name: what that scheduler makes of claims.
    schedulers: dict[str, Scheduler] = {}
    # The scheduler that asks our allocator, where it is installed.
    bridge: Bridge | None = None
    # What the API server does not tell of its version and gates.
    kubernetes: Kubernetes = Kubernetes()
    # Pods under a queue of Kueue's get claims of these classes only.
    kueue: Kueue = Kueue()

    def options(self, dialect: str) -> Options:
        """The options of one of our dialects."""
        options = getattr(self, dialect)
        assert isinstance(options, Options)
        return options


def _whole_file() -> type[File]:
    """Make the file's type with a field for each dialect's options."""
    fields = [(one.table.name, one.options, one.options()) for one in VOCABULARIES]
    made = msgspec.defstruct("DrawbridgeConfiguration", fields, bases=(File,), frozen=True, kw_only=True)
    assert issubclass(made, File)
    return made


WHOLE_FILE = _whole_file()
DEFAULT = WHOLE_FILE(api_version="drawbridge.dev/v1alpha1", kind="DrawbridgeConfiguration")


def contradictions(file: File) -> Iterable[Mistake]:
    """What fits the shape but makes no sense."""
    built_in = {one.table.name: one.table for one in VOCABULARIES}
    dialects = built_in | {table.name: table for table in file.dialects}
    targets = TARGETS | {target.name: target for target in file.targets}
    yield from unknown("/keys", file.keys, dialects, "dialect")
    yield from unknown("/disabled", file.disabled, dialects, "dialect")
    for dialect, renames in file.keys.items():
        if dialect in dialects:
            known = {row.name for row in dialects[dialect].keys}
            yield from unknown(f"/keys/{escape(dialect)}", renames, known, "key of the dialect")
    if not 0 <= file.canary <= 100:
        yield Mistake("/canary", f"{file.canary} is not a percentage", "write 0 to 100")
    yield from _meanings(file, dialects)
    yield from _mixed(file, dialects.values())
    yield from wrong_targets(file, targets)
    for i, model in enumerate(file.models):
        if not bytes_of(model.memory):
            yield Mistake(
                f"/models/{i}/memory", f"{model.memory!r} is not an amount of memory", "write a quantity such as 80Gi"
            )
    yield from wrong_tables(file, targets)
    yield from _joints(file, dialects.values())
    for name in built_in:
        for one in file.options(name).mistakes():
            yield one._replace(path=f"/{name}{one.path}")
        yield from _of_host(name, file.options(name), targets)
    if file.bridge is not None:
        yield from _placing(file.bridge.placement)
    for key, quota in file.quotas.items():
        if not quota:
            yield Mistake(
                f"/quotas/{escape(key)}", "no quota key is given", "e.g. <class>.deviceclass.resource.k8s.io/devices"
            )


def _of_host(dialect: str, options: Options, targets: Mapping[str, Target]) -> Iterable[Mistake]:
    """Resources of pods themselves, and kinds of device, that nobody knows."""
    for resource, target in options.of_host().items():
        path = f"/{dialect}/hostResources/{escape(resource)}"
        if resource != "cpu" and not resource.startswith("hugepages-"):
            yield Mistake(
                path, f"{resource!r} is not a resource of pods that claims are made for", "write cpu or hugepages-SIZE"
            )
        if target not in targets:
            hint = f"describe it under `targets`; there are {', '.join(targets)}"
            yield Mistake(path, f"unknown target {target!r}", hint)


def misnamed(kubernetes: Kubernetes) -> Iterable[Mistake]:
    """A version or gates that no server has. The rest of the file holds: these names come and go with versions, of ours too."""
    for gate, error in mistakes(kubernetes.version, kubernetes.feature_gates):
        where = f"featureGates/{escape(gate)}" if gate else "version"
        yield Mistake(f"/kubernetes/{where}", str(error), error.remedy)


def _placing(placing: Placing) -> Iterable[Mistake]:
    """Strategies that nobody knows, and numbers that are none."""
    path = "/bridge/placement"
    said = {"strategy": placing.strategy}
    for namespace, strategy in placing.namespaces.items():
        where = f"namespaces/{escape(namespace)}"
        said[where] = strategy
        if not _NAMESPACE(namespace):
            reason = f"{namespace!r} is not the name of a namespace"
            yield Mistake(f"{path}/{where}", reason, "write the whole name; patterns are not read")
    for where, strategy in said.items():
        try:
            read_placement(strategy)
        except UnknownStrategy as error:
            yield Mistake(f"{path}/{where}", str(error), "write NAME, or NAME=WEIGHT,NAME=WEIGHT (docs/simulate.md)")
    if placing.most_pods_per_node < 0:
        reason = f"{placing.most_pods_per_node} is not a number of pods"
        yield Mistake(f"{path}/mostPodsPerNode", reason, "write 0 for any number, or 1 and more")


def _meanings(file: File, dialects: Mapping[str, Dialect]) -> Iterable[Mistake]:
    """A meaning is a dialect's name, or one of the words of the dialects that read a bare name."""
    known = [one.bare for one in VOCABULARIES if one.bare]
    words = dict.fromkeys(", ".join(bare.words for bare in known).split(", "))
    names = ", ".join(dialects)
    for key, meaning in file.meanings.items():
        if meaning == "leave" or meaning in dialects:
            continue
        if any(bare.declared(meaning) for bare in known):
            continue
        path = f"/meanings/{escape(key)}"
        meant = shape.nearest(meaning, ["leave", *words, *dialects])
        hint = f"leave, {', '.join(words)}, or a dialect: {names}"
        if meant:
            hint = f"did you mean {meant}? {hint}"
        yield Mistake(path, f"unknown meaning {meaning!r}", hint)


def _mixed(file: File, dialects: Iterable[Dialect]) -> Iterable[Mistake]:
    """A policy is for a name that device plugins hand out, and says one thing."""
    known: set[str] = set()
    for names in file.keys.values():
        known.update(names.values())
    for dialect in dialects:
        known.update([row.name for row in dialect.keys if row.place is Position.RESOURCE])
    for key, policy in file.mixed.items():
        path = f"/mixed/{escape(key)}"
        if key not in known and not any(pattern(row)(key) for row in known if "<" in row):
            yield Mistake(path, f"no dialect knows the key {key!r}", "`drawbridge dialects` lists those there are")
        yield from _one_preference(path, policy)
        for namespace, own in policy.namespaces.items():
            where = f"{path}/namespaces/{escape(namespace)}"
            if not _NAMESPACE(namespace):
                reason = f"{namespace!r} is not the name of a namespace"
                yield Mistake(where, reason, "write the whole name; patterns are not read")
            yield from _one_preference(where, own)


def _one_preference(path: str, nodes: PreferredNodes) -> Iterable[Mistake]:
    said = [nodes.prefer is not None, nodes.percent is not None, bool(nodes.node_selector)]
    if sum(said) != 1:
        reason = (
            "nothing says which nodes are preferred"
            if not any(said)
            else "more than one word says which nodes are preferred"
        )
        yield Mistake(path, reason, "write one of prefer: dra, prefer: plugin, percent or nodeSelector")
    if nodes.percent is not None and not 0 <= nodes.percent <= 100:
        yield Mistake(f"{path}/percent", f"{nodes.percent} is not a percentage", "write 0 to 100")


def _joints(file: File, dialects: Iterable[Dialect]) -> Iterable[Mistake]:
    """Keys can only be put together if some table knows them."""
    known: set[str] = set()
    for names in file.keys.values():
        known.update(names.values())
    for dialect in dialects:
        for row in dialect.keys:
            if row.place is Position.RESOURCE:
                known.add(row.name)
    patterns = [name for name in known if "<" in name]
    for i, joint in enumerate(file.joint):
        for part in ("primary", "secondary"):
            name = getattr(joint, part)
            if name in known or any(pattern(row)(name) for row in patterns):
                continue
            hint = "describe it in a table of your own (`dialects`)"
            yield Mistake(f"/joint/{i}/{part}", f"no dialect knows the key {name!r}", hint)


def bytes_of(text: str) -> int:
    """Read an amount of memory; 0 if it is none."""
    try:
        return max(parse(text).value(), 0)
    except QuantityError:
        return 0
