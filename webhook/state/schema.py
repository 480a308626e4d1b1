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

    # Key of the one kind of device.
    primary: str
    # Key of the other.
    secondary: str
    # That both have in common; `auto` is the PCIe root, or the NUMA node where that is not published.
    attribute: str = AUTO
    # Counts that do not divide, or no common attribute: leave the container, or refuse the pod.
    otherwise: Literal["leave", "refuse"] = "leave"


class Placing(_Declared, frozen=True, kw_only=True):
    """How the bridge places pods that say nothing about it themselves, and whose Namespace does not."""

    # A name, or several with weights: NAME=WEIGHT,NAME=WEIGHT.
    strategy: str = ALLOCATORS_DEFAULT
    # Namespace: another strategy for its pods.
    namespaces: dict[str, str] = {}
    # Pods with devices, placed by the bridge; 0 for any number.
    most_pods_per_node: int = 0


class BridgeSettings(_Declared, frozen=True, kw_only=True):
    """The scheduler with our bridge, and the drivers whose devices it manages."""

    # Given to translated pods that ask for devices of these drivers.
    scheduler_name: str
    # Drivers whose devices the bridge manages.
    drivers: tuple[str, ...] = ()
    # Whether a DeviceTaintRule keeps all other schedulers from these devices: claims that go to the bridge tolerate it.
    fence: bool = False
    # How pods are placed that say nothing themselves, and whose Namespace does not.
    placement: Placing = Placing()


class Evidence(_Declared, frozen=True, kw_only=True):
    """Which drivers and nodes decide what a name means and which sizes there are; empty members leave it to all."""

    # Drivers whose slices count.
    drivers: tuple[str, ...] = ()
    # Labels of the nodes whose slices, labels and `allocatable` count.
    node_selector: dict[str, str] = {}
    # Where device plugins and autoscalers run: of these namespaces their DaemonSets, Deployments and ConfigMaps are read
    # (docs/translation.md#objects-of-device-plugins-and-autoscalers).
    namespaces: tuple[str, ...] = ()

    @property
    def chooses(self) -> bool:
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

    # Namespace: one of the three, for its pods.
    namespaces: dict[str, PreferredNodes] = {}


class ExtendedResources(_Declared, frozen=True, kw_only=True):
    """What becomes of pods that the scheduler itself can serve, because a DeviceClass has the name they ask by.

    The pod's annotation counts before its Namespace, that before `autoscaled`, then come the driver and the default.
    """

    # Where nothing else is said. Left out: translate for drivers that the bridge manages, leave for all others.
    default: Serving | None = None
    # Driver: what becomes of pods that ask for its devices.
    drivers: dict[str, Serving] = {}
    # Namespace: what becomes of its pods; it counts before `autoscaled`, and that before the driver.
    namespaces: dict[str, Serving] = {}
    # Pods whose nodes an autoscaler makes that does not consider claims.
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

    # In namespaces that are not named.
    default: Serving = "leave"
    # Namespace: what becomes of its pods.
    namespaces: dict[str, Serving] = {}

    def wanted(self, namespace: str) -> bool:
        return self.namespaces.get(namespace, self.default) == "translate"

    @property
    def anywhere(self) -> bool:
        return "translate" in (self.default, *self.namespaces.values())


class Kueue(_Declared, frozen=True, kw_only=True):
    """What Kueue can account for: classes that its `deviceClassMappings` name, with its webhook for DRA on."""

    # Classes under `deviceClassMappings` of Kueue: pods that it counts one by one are translated to no others
    # (docs/translation.md#workloads-of-other-projects).
    device_classes: tuple[str, ...] = ()


class TemplateDevices(_Declared, frozen=True, kw_only=True):
    """So many equal devices, written as in a ResourceSlice."""

    # As in `spec.driver` of a ResourceSlice.
    driver: str
    # How many of these devices a node has.
    count: int = 1
    # As in a ResourceSlice.
    attributes: dict[str, DeviceAttribute] = {}
    # As in a ResourceSlice.
    capacity: dict[str, DeviceCapacity] = {}
    # As in a ResourceSlice.
    allow_multiple_allocations: bool | None = None


class NodeTemplate(_Declared, frozen=True, kw_only=True):
    """Nodes that an autoscaler can make: what one of them publishes, and how many there may be."""

    # By which warnings call it.
    name: str
    # That all its nodes have, and no others.
    labels: dict[str, str] = {}
    # How many such nodes there may be; not limited if not set.
    max_nodes: int | None = None
    # What its drivers publish of one node.
    devices: tuple[TemplateDevices, ...] = ()
    # What device plugins hand out there.
    allocatable: dict[str, Quantity] = {}


class KubernetesSettings(_Declared, frozen=True, kw_only=True):
    """The API server and its scheduler, where they do not tell: what they tell counts for more."""

    # 1.N, for files; a cluster tells its version.
    version: str = ""
    # As both are started with: name, and whether it is on.
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
    # What is done in namespaces without the label `drawbridge.dev/mode`; `drawbridge manifests` installs `observe` where no
    # mode is said.
    mode: Mode = "enforce"
    # Percent of the workloads in namespaces that enforce; the others are only warned.
    canary: int = 100
    # How many pods a minute are evicted that were created without claims while the webhook was away, and wait for
    # what no node hands out; 0 evicts none. It needs `manifests/missed/role.yaml` (docs/operating.md#a-pod-stays-pending).
    evict_missed_pods: int = 0
    # Requests that a claim can express only roughly: `warn` and `allow` translate them, `leave` keeps the container
    # (docs/translation.md#outcomes).
    approximations: Literal["allow", "warn", "leave"] = "warn"
    # Name: which nodes are preferred for pods that ask by it, where some nodes have moved from device plugins to drivers
    # (docs/migrate.md#while-the-fleet-is-mixed).
    mixed: dict[str, MixedFleet] = {}
    # Pods that ask by a name that a DeviceClass serves: left to the scheduler, or translated
    # (docs/translation.md#names-that-core-serves).
    extended_resources: ExtendedResources = ExtendedResources()
    # Pods whose whole CPUs are asked for by claims as well, of a driver that gives CPUs out
    # (docs/configuration.md#cpus-of-guaranteed-pods-by-claim).
    cpu_claims: CPUClaims = CPUClaims()
    # Percentages where no device size is known.
    unresolved: Literal["leave", "refuse"] = "leave"
    # Claims that the API server or the pod's scheduler would drop or misread.
    not_understood: Literal["leave", "refuse"] = "leave"
    # HAMi's binding to a NUMA node, where the driver publishes none: the container stays, the binding is dropped, or the pod
    # is refused.
    numa_bind: Literal["leave", "drop", "refuse"] = "leave"
    # Claims that no node could serve even if idle; `auto` refuses where no autoscaler, or only declared nodes, could make one
    # that does (docs/translation.md#autoscaled-nodes).
    impossible: Literal["auto", "refuse", "warn"] = "auto"
    # The scheduler of fully translated pods that named the scheduler of their dialect; `""` keeps theirs.
    target_scheduler: str = "default-scheduler"
    # Name that several systems use: what it means. `leave`, a dialect, or a word of the dialect that reads it bare: `whole`,
    # `shared`, `mig:<profile>`.
    meanings: dict[str, str] = {}
    # Target: the DeviceClass that serves it, where it has another name than its vendor's.
    classes: dict[str, str] = {}
    # Target: what its driver is told of each device in a claim (`opaque.parameters`); `<i>` in a text is the device's number
    # (docs/keys.md#keys-of-your-own).
    parameters: dict[str, Opaque] = {}
    # Kinds of device beside ours (docs/keys.md#keys-of-your-own).
    targets: tuple[Target, ...] = ()
    # Memory of models that the fleet does not show.
    models: tuple[Model, ...] = ()
    # Which drivers and nodes are believed, where not all are (docs/translation.md#evidence).
    evidence: Evidence = Evidence()
    # What an autoscaler can make: no pod is refused as impossible that such a node could serve
    # (docs/translation.md#autoscaled-nodes).
    node_templates: tuple[NodeTemplate, ...] = ()
    # Dialect: its keys under the names this cluster uses; `""` switches a key off.
    keys: dict[str, dict[str, str]] = {}
    # Dialects that are switched off.
    disabled: tuple[str, ...] = ()
    # Tables of your own, in the form that `drawbridge dialects -o yaml` prints (docs/keys.md#keys-of-your-own).
    dialects: tuple[Dialect, ...] = ()
    # Keys of one container whose devices belong under one switch (docs/keys.md#keys-of-your-own).
    joint: tuple[Joint, ...] = ()
    # Key that a ResourceQuota limits: the key by which a ResourceQuota counts its claims from now on; until then the key is
    # left. `CLASS.deviceclass.resource.k8s.io/devices`, `requests.deviceclass.resource.kubernetes.io/CLASS`, `requests.NAME`
    # of a class's `extendedResourceName`, or `count/resourceclaims.resource.k8s.io`. Pods are warned where no ResourceQuota
    # of their namespace limits that key, or where it does not count their claims.
    quotas: dict[str, str] = {}
    # Name: what that scheduler makes of claims, for instance a Volcano that serves them.
    schedulers: dict[str, Scheduler] = {}
    # The scheduler that asks our allocator, where it is installed (docs/bridge.md#placement).
    bridge: BridgeSettings | None = None
    # What the API server does not tell of its version and gates (docs/versions.md).
    kubernetes: KubernetesSettings = KubernetesSettings()
    # What Kueue can count.
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
