"""The shape of the configuration file. The comment above a field is its description in the schema and in docs/configuration.md.

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

    # As the driver publishes it.
    product: str
    # As the driver publishes it: 143771Mi for an H200 of 141 GB.
    memory: str


class Joint(_Declared, frozen=True, kw_only=True):
    """Keys that belong together in a container: devices of both come in pairs under one value of an attribute."""

    # The key of one kind of device.
    primary: str
    # The key of the other kind.
    secondary: str
    # The attribute that both kinds publish; `auto` is the PCIe root, or else the NUMA node.
    attribute: str = AUTO
    # If the counts do not divide, or no attribute is common: leave the container, or refuse the pod.
    otherwise: Literal["leave", "refuse"] = "leave"


class Placing(_Declared, frozen=True, kw_only=True):
    """How the bridge places pods that say nothing about it themselves, and whose Namespace does not."""

    # A strategy, or several with weights: NAME=WEIGHT,NAME=WEIGHT.
    strategy: str = ALLOCATORS_DEFAULT
    # Namespace: the strategy for its pods.
    namespaces: dict[str, str] = {}
    # The maximum of pods with devices on a node, placed by the bridge; 0 is no maximum.
    most_pods_per_node: int = 0


class BridgeSettings(_Declared, frozen=True, kw_only=True):
    """The scheduler with our bridge, and the drivers whose devices it manages."""

    # The scheduler of translated pods that request devices of these drivers.
    scheduler_name: str
    # Drivers whose devices the bridge manages.
    drivers: tuple[str, ...] = ()
    # Whether a DeviceTaintRule keeps other schedulers from these devices; claims for the bridge tolerate it.
    fence: bool = False
    # How to place pods if neither the pod nor its Namespace has a strategy.
    placement: Placing = Placing()


class Evidence(_Declared, frozen=True, kw_only=True):
    """Which drivers and nodes decide what a name means and which sizes there are; empty members leave it to all."""

    # Drivers whose slices count.
    drivers: tuple[str, ...] = ()
    # Labels of the nodes whose slices, labels and `allocatable` count.
    node_selector: dict[str, str] = {}
    # The namespaces of device plugins and autoscalers, whose DaemonSets, Deployments and ConfigMaps are read
    # (docs/translation.md#objects-of-device-plugins-and-autoscalers).
    namespaces: tuple[str, ...] = ()

    @property
    def chooses(self) -> bool:
        return bool(self.drivers or self.node_selector)


class PreferredNodes(_Declared, frozen=True, kw_only=True):
    """Which nodes are preferred for pods, while a fleet moves node by node. One of the three is said."""

    # Nodes with a driver (`dra`), or nodes with a device plugin for the name (`plugin`).
    prefer: Literal["dra", "plugin"] | None = None
    # Percentage of the workloads that prefer nodes with a driver.
    percent: int | None = None
    # Pods that require these node labels prefer nodes with a driver.
    node_selector: dict[str, str] = {}


class MixedFleet(PreferredNodes, frozen=True, kw_only=True):
    """The same, for a name; and for pods of some namespaces otherwise."""

    # Namespace: any of the three above, for its pods.
    namespaces: dict[str, PreferredNodes] = {}


class ExtendedResources(_Declared, frozen=True, kw_only=True):
    """What becomes of pods that the scheduler itself can serve, because a DeviceClass has the name they ask by.

    The pod's annotation counts before its Namespace, that before `autoscaled`, then come the driver and the default.
    """

    # The default. Left out: translate for drivers that the bridge manages, leave for all others.
    default: Serving | None = None
    # Driver: the same for pods that request its devices.
    drivers: dict[str, Serving] = {}
    # Namespace: the same for its pods; it takes precedence over `autoscaled`, which takes precedence over the driver.
    namespaces: dict[str, Serving] = {}
    # Pods that an autoscaler may make nodes for, if it ignores claims.
    autoscaled: Serving | None = None

    def choose(self, driver: str, namespace: str, annotation: str, *, managed: bool, autoscaled: bool) -> Serving:
        """Choose between the two; an annotation with any other value is ignored."""
        if annotation in get_args(Serving):
            return cast("Serving", annotation)
        usual = self.default or ("translate" if managed else "leave")
        rule = self.autoscaled if autoscaled else None
        return self.namespaces.get(namespace) or rule or self.drivers.get(driver) or usual


class CPUClaims(_Declared, frozen=True, kw_only=True):
    """Whether the whole CPUs of Guaranteed pods are asked for by claims as well: what the kubelet's static CPU manager gives alone.

    The namespace counts before the default.
    """

    # Namespaces that are not named.
    default: Serving = "leave"
    # Namespace: the same for its pods.
    namespaces: dict[str, Serving] = {}

    def wanted(self, namespace: str) -> bool:
        return self.namespaces.get(namespace, self.default) == "translate"

    @property
    def anywhere(self) -> bool:
        return "translate" in (self.default, *self.namespaces.values())


class Kueue(_Declared, frozen=True, kw_only=True):
    """What Kueue can account for: classes that its `deviceClassMappings` name, with its webhook for DRA on."""

    # Classes under `deviceClassMappings` of Kueue: pods that Kueue counts by themselves are translated to these classes only
    # (docs/translation.md#workloads-of-other-projects).
    device_classes: tuple[str, ...] = ()


class TemplateDevices(_Declared, frozen=True, kw_only=True):
    """So many equal devices, written as in a ResourceSlice."""

    # As in `spec.driver` of a ResourceSlice.
    driver: str
    # The number of these devices on a node.
    count: int = 1
    # As in a ResourceSlice.
    attributes: dict[str, DeviceAttribute] = {}
    # As in a ResourceSlice.
    capacity: dict[str, DeviceCapacity] = {}
    # As in a ResourceSlice.
    allow_multiple_allocations: bool | None = None


class NodeTemplate(_Declared, frozen=True, kw_only=True):
    """Nodes that an autoscaler can make: what one of them publishes, and how many there may be."""

    # The name in warnings.
    name: str
    # Labels of all its nodes, and of no other nodes.
    labels: dict[str, str] = {}
    # The maximum of such nodes; no maximum if not set.
    max_nodes: int | None = None
    # The devices that drivers publish for one node.
    devices: tuple[TemplateDevices, ...] = ()
    # The resources of device plugins on one node.
    allocatable: dict[str, Quantity] = {}


class KubernetesSettings(_Declared, frozen=True, kw_only=True):
    """The API server and its scheduler, where they do not tell: what they tell counts for more."""

    # 1.N, for files; a cluster reports its version.
    version: str = ""
    # Feature gates of both: name, and whether it is on.
    feature_gates: dict[str, bool] = {}

    def declared(self) -> Declared:
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
    # The mode of namespaces without the label `drawbridge.dev/mode`; `drawbridge manifests` installs `observe` by default.
    mode: Mode = "enforce"
    # Percentage of the workloads that are translated in namespaces that enforce; the others are only warned.
    canary: int = 100
    # Pods evicted per minute that were created without claims while the webhook was unavailable, and wait for a resource that
    # no node has; 0 evicts none. It needs `manifests/missed/role.yaml` (docs/operating.md#a-pod-stays-pending).
    evict_missed_pods: int = 0
    # Requests that a claim can only approximate: `warn` and `allow` translate them, `leave` leaves the container
    # (docs/translation.md#outcomes).
    approximations: Literal["allow", "warn", "leave"] = "warn"
    # Resource name: which nodes its pods prefer while some nodes have moved from device plugins to drivers
    # (docs/migrate.md#while-the-fleet-is-mixed).
    mixed: dict[str, MixedFleet] = {}
    # Pods that request a name that a DeviceClass serves: left to the scheduler, or translated
    # (docs/translation.md#names-that-core-serves).
    extended_resources: ExtendedResources = ExtendedResources()
    # Guaranteed pods with whole CPUs, which can have claims of them as well
    # (docs/configuration.md#cpus-of-guaranteed-pods-by-claim).
    cpu_claims: CPUClaims = CPUClaims()
    # Percentages of a device whose size is not known.
    unresolved: Literal["leave", "refuse"] = "leave"
    # Claims that the API server or the pod's scheduler would drop or misread.
    not_understood: Literal["leave", "refuse"] = "leave"
    # HAMi's binding to a NUMA node, if the driver publishes none: leave the container, drop the binding, or refuse the pod.
    numa_bind: Literal["leave", "drop", "refuse"] = "leave"
    # Claims that no node could serve even if idle; `auto` refuses them unless an autoscaler may make a node that is not
    # declared (docs/translation.md#autoscaled-nodes).
    impossible: Literal["auto", "refuse", "warn"] = "auto"
    # The scheduler of fully translated pods that named their system's scheduler; `""` keeps it.
    target_scheduler: str = "default-scheduler"
    # Name that several systems use: its meaning. `leave`, a dialect, `whole`, `shared` or `mig:<profile>`.
    meanings: dict[str, str] = {}
    # Target: its DeviceClass, if the name differs from the vendor's.
    classes: dict[str, str] = {}
    # Target: the parameters for its driver in claims (`opaque.parameters`); `<i>` in a text is the number of the device
    # (docs/keys.md#keys-of-your-own).
    parameters: dict[str, Opaque] = {}
    # Kinds of device of your own (docs/keys.md#keys-of-your-own).
    targets: tuple[Target, ...] = ()
    # The memory of models that no node publishes.
    models: tuple[Model, ...] = ()
    # Which drivers and nodes count as evidence; all by default (docs/translation.md#evidence).
    evidence: Evidence = Evidence()
    # Nodes that an autoscaler can make: a pod that such a node could serve is not refused as impossible
    # (docs/translation.md#autoscaled-nodes).
    node_templates: tuple[NodeTemplate, ...] = ()
    # Dialect: its keys, and the names that this cluster uses instead; `""` turns a key off.
    keys: dict[str, dict[str, str]] = {}
    # Dialects that are off.
    disabled: tuple[str, ...] = ()
    # Tables of your own, in the form that `drawbridge dialects -o yaml` prints (docs/keys.md#keys-of-your-own).
    dialects: tuple[Dialect, ...] = ()
    # Pairs of keys of a container whose devices must share an attribute (docs/keys.md#keys-of-your-own).
    joint: tuple[Joint, ...] = ()
    # Key that a ResourceQuota limits: the key that counts its claims instead; without it the key is left.
    # `CLASS.deviceclass.resource.k8s.io/devices`, `requests.deviceclass.resource.kubernetes.io/CLASS`, `requests.NAME`
    # of a class's `extendedResourceName`, or `count/resourceclaims.resource.k8s.io`. Pods get a warning if no
    # ResourceQuota of their namespace limits that key, or if it does not count their claims.
    quotas: dict[str, str] = {}
    # Scheduler: what it supports of claims, for instance a Volcano that allocates them.
    schedulers: dict[str, Scheduler] = {}
    # The scheduler that calls our allocator, if it is installed (docs/bridge.md#placement).
    bridge: BridgeSettings | None = None
    # The version and feature gates of the server, if it does not report them (docs/versions.md).
    kubernetes: KubernetesSettings = KubernetesSettings()
    # What Kueue counts.
    kueue: Kueue = Kueue()

    def options(self, dialect: str) -> Options:
        options = getattr(self, dialect)
        assert isinstance(options, Options)
        return options


def _whole_file() -> type[File]:
    """Make the file's type with a field for each dialect's options."""
    fields = [(vocabulary.table.name, vocabulary.options, vocabulary.options()) for vocabulary in VOCABULARIES]
    file_type = msgspec.defstruct("DrawbridgeConfiguration", fields, bases=(File,), frozen=True, kw_only=True)
    assert issubclass(file_type, File)
    return file_type


WHOLE_FILE = _whole_file()
DEFAULT = WHOLE_FILE(api_version="drawbridge.dev/v1alpha1", kind="DrawbridgeConfiguration")
