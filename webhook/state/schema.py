"""The configuration file: its shape, and what fits the shape but makes no sense.

Data only. What it compiles to is `webhook.state.configuration`. Each dialect's own options are a field of the file under the
dialect's name, put there from `VOCABULARIES`: nothing here names one.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

import msgspec

from allocator.strategies import DEFAULT as ALLOCATORS_DEFAULT
from dra.objects import DeviceAttribute, DeviceCapacity
from dra.quantity import Quantity
from dra.server import Declared, mistakes, read_minor
from dra.wire import Opaque
from webhook.dialects import (
    AUTO,
    VOCABULARIES,
    Dialect,
    Options,
    Scheduler,
    Target,
)

Mode = Literal["observe", "warn", "enforce", "off"]
Serving = Literal["leave", "translate"]


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


class BridgeSettings(_Declared, frozen=True, kw_only=True):
    """The scheduler with our bridge, and the drivers whose devices it manages."""

    scheduler_name: str
    drivers: tuple[str, ...] = ()
    # Whether a DeviceTaintRule keeps all other schedulers from these devices: claims that go to the bridge tolerate it.
    fence: bool = False
    placement: Placing = Placing()


class Evidence(_Declared, frozen=True, kw_only=True):
    """Which drivers and nodes decide what a name means and which sizes there are; empty members leave it to all."""

    # Drivers whose slices count.
    drivers: tuple[str, ...] = ()
    # Labels that the nodes have whose slices, labels and hand-outs count.
    node_selector: dict[str, str] = {}
    # Where device plugins and autoscalers run: of these namespaces their DaemonSets, Deployments and ConfigMaps are read.
    namespaces: tuple[str, ...] = ()

    @property
    def chooses(self) -> bool:
        """Whether only some drivers or nodes count."""
        return bool(self.drivers or self.node_selector)


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


class ExtendedResources(_Declared, frozen=True, kw_only=True):
    """What becomes of pods that the scheduler itself can serve, because a DeviceClass has the name they ask by.

    The pod's annotation counts before its Namespace, that before `autoscaled`, then come the driver and the default.
    """

    # Where nothing else is said. Left out: translate for drivers that the bridge manages, leave for all others.
    default: Serving | None = None
    drivers: dict[str, Serving] = {}
    namespaces: dict[str, Serving] = {}
    # Pods whose nodes an autoscaler makes that does not consider claims.
    autoscaled: Serving | None = None

    def choose(self, driver: str, namespace: str, annotation: str, *, managed: bool, autoscaled: bool) -> Serving:
        """Say which of the two counts; an annotation that is neither says nothing."""
        if annotation in get_args(Serving):
            return cast("Serving", annotation)
        usual = self.default or ("translate" if managed else "leave")
        rule = self.autoscaled if autoscaled else None
        return self.namespaces.get(namespace) or rule or self.drivers.get(driver) or usual


class CPUClaims(_Declared, frozen=True, kw_only=True):
    """Whether the whole CPUs of Guaranteed pods are asked for by claims as well: what the kubelet's static CPU manager gives alone.

    The namespace counts before the default.
    """

    default: Serving = "leave"
    namespaces: dict[str, Serving] = {}

    def wanted(self, namespace: str) -> bool:
        """Say whether they are for pods of a namespace."""
        return self.namespaces.get(namespace, self.default) == "translate"

    @property
    def anywhere(self) -> bool:
        """Whether they are for any pod."""
        return "translate" in (self.default, *self.namespaces.values())


class Kueue(_Declared, frozen=True, kw_only=True):
    """What Kueue can account for: classes that its `deviceClassMappings` name, with its webhook for DRA on."""

    device_classes: tuple[str, ...] = ()


class TemplateDevices(_Declared, frozen=True, kw_only=True):
    """So many equal devices, written as in a ResourceSlice."""

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
    # What device plugins hand out there.
    allocatable: dict[str, Quantity] = {}


class KubernetesSettings(_Declared, frozen=True, kw_only=True):
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
    # How many pods a minute are evicted that were created without claims while the webhook was away; 0 evicts none.
    evict_missed_pods: int = 0
    # What claims can only say roughly.
    approximations: Literal["allow", "warn", "leave"] = "warn"
    # Name: which nodes are preferred for pods that ask by it, where some nodes have moved from device plugins to drivers.
    mixed: dict[str, MixedFleet] = {}
    # Pods that ask by a name that a DeviceClass serves: left to the scheduler, or translated.
    extended_resources: ExtendedResources = ExtendedResources()
    # Pods whose whole CPUs are asked for by claims as well, of a driver that gives CPUs out.
    cpu_claims: CPUClaims = CPUClaims()
    # Percentages where no device size is known.
    unresolved: Literal["leave", "refuse"] = "leave"
    # Claims that the pod's scheduler would not understand.
    not_understood: Literal["leave", "refuse"] = "leave"
    # HAMi's binding to a NUMA node, which a claim cannot say.
    numa_bind: Literal["leave", "drop", "refuse"] = "leave"
    # Claims that no node could serve even if idle; `auto` refuses where no autoscaler, or only declared nodes, could make one that does.
    impossible: Literal["auto", "refuse", "warn"] = "auto"
    # The scheduler of fully translated pods that named the scheduler of their dialect.
    target_scheduler: str = "default-scheduler"
    # What a name means that several systems use: leave, a dialect, or what the dialect knows that reads it bare.
    meanings: dict[str, str] = {}
    # Target: the DeviceClass that serves it.
    classes: dict[str, str] = {}
    # Target: what its driver is told of each device in a claim (`opaque.parameters`); `<i>` in a text is the device's number.
    parameters: dict[str, Opaque] = {}
    # Kinds of device beside ours.
    targets: tuple[Target, ...] = ()
    # Sizes of models that the fleet does not show.
    models: tuple[Model, ...] = ()
    # Which drivers and nodes are believed, where not all are.
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
    bridge: BridgeSettings | None = None
    # What the API server does not tell of its version and gates.
    kubernetes: KubernetesSettings = KubernetesSettings()
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
