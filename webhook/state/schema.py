"""The types of the configuration file. The comment above a field is its description in the schema and in docs/configuration.md.

`webhook.state.configuration` compiles the file. The options of each dialect are a field under the dialect's name, which comes from
`VOCABULARIES`, so this module names no dialect.
"""

from __future__ import annotations

from typing import Annotated, Literal, cast, get_args

import msgspec
from msgspec import Meta

from allocator.strategies import DEFAULT as ALLOCATORS_DEFAULT
from dra.objects import DeviceAttribute, DeviceCapacity
from dra.quantity import Quantity
from dra.server import DeclaredServer, mistakes, read_minor
from dra.wire import Opaque
from webhook.dialects import (
    AUTO,
    VOCABULARIES,
    Dialect,
    DialectOptions,
    SchedulerSupport,
    Target,
)

Mode = Literal["observe", "warn", "enforce", "off"]
LeaveOrTranslate = Literal["leave", "translate"]
# These limit the work for one refusal.
MAX_DEVICES = 128  # of one node template
MAX_TEMPLATES = 16
_Number = Annotated[int, Meta(ge=0)]
_Percentage = Annotated[int, Meta(ge=0, le=100)]


class _Declared(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The base of all types in the file."""


class Model(_Declared, frozen=True, kw_only=True):
    """A device model and its memory. If no node publishes the memory, a percentage of a device is converted to bytes by this value."""

    # The product name that the driver publishes.
    product: str
    # The memory that the driver publishes: 143771Mi for an H200 of 141 GB.
    memory: str


class Joint(_Declared, frozen=True, kw_only=True):
    """Two keys that belong together in a container. Their devices form groups, and the devices of a group share the value of an attribute."""

    # The key of one kind of device.
    primary: str
    # The key of the other kind.
    secondary: str
    # The attribute that both kinds publish; `auto` is the PCIe root, or else the NUMA node.
    attribute: str = AUTO
    # What happens if one count is not a multiple of the other, or if both kinds have no such attribute in common: `leave`
    # does not change the container, `refuse` refuses the pod.
    otherwise: Literal["leave", "refuse"] = "leave"


class Placing(_Declared, frozen=True, kw_only=True):
    """How the bridge places pods if neither the pod nor its Namespace has a strategy."""

    # A strategy, or several strategies with weights: NAME=WEIGHT,NAME=WEIGHT.
    strategy: str = ALLOCATORS_DEFAULT
    # The strategy for the pods of each namespace, by the name of the namespace.
    namespaces: dict[str, str] = {}
    # The maximum number of pods with devices that the bridge places on a node; 0 is no maximum.
    most_pods_per_node: _Number = 0


class BridgeSettings(_Declared, frozen=True, kw_only=True):
    """The scheduler with drawbridge's plugin, and the drivers whose devices it manages."""

    # The scheduler of translated pods that request devices of these drivers.
    scheduler_name: Annotated[str, Meta(min_length=1)]
    # Drivers whose devices the bridge manages.
    drivers: tuple[str, ...] = ()
    # Whether a DeviceTaintRule keeps other schedulers from these devices. The claims of the bridge's pods tolerate the taint.
    fence: bool = False
    # How to place pods if neither the pod nor its Namespace has a strategy.
    placement: Placing = Placing()


class Evidence(_Declared, frozen=True, kw_only=True):
    """The drivers and nodes that show what a key means and which device sizes exist. An empty list of drivers, or an empty selector, means all."""

    # Drivers whose slices count.
    drivers: tuple[str, ...] = ()
    # Labels of the nodes whose slices, labels and `allocatable` count.
    node_selector: dict[str, str] = {}
    # The namespaces of device plugins and autoscalers, whose DaemonSets, Deployments and ConfigMaps are read
    # (docs/translation.md#objects-of-device-plugins-and-autoscalers).
    namespaces: Annotated[tuple[str, ...], Meta(max_length=16)] = ()

    @property
    def is_restricted(self) -> bool:
        """Whether only some drivers or nodes count."""
        return bool(self.drivers or self.node_selector)


class PreferredNodes(_Declared, frozen=True, kw_only=True):
    """The nodes that are preferred for pods while a fleet migrates node by node. Exactly one field is set."""

    # The preferred nodes: those with a DRA driver (`dra`), or those whose device plugin offers the resource (`plugin`).
    prefer: Literal["dra", "plugin"] | None = None
    # Percentage of the workloads whose pods prefer nodes with a DRA driver.
    percent: _Percentage | None = None
    # Pods that require these node labels prefer nodes with a DRA driver.
    node_selector: dict[str, str] = {}


class MixedFleet(PreferredNodes, frozen=True, kw_only=True):
    """The preferred nodes for one resource, with exceptions for namespaces."""

    # `prefer`, `percent` or `nodeSelector` for the pods of each namespace, by the name of the namespace.
    namespaces: dict[str, PreferredNodes] = {}


class ExtendedResources(_Declared, frozen=True, kw_only=True):
    """Whether pods with an extended resource of a DeviceClass are left to the scheduler or translated.

    The first of these that is set decides: the pod's annotation, its Namespace, `autoscaled`, the driver, the default.
    """

    # The value for all other pods. If not set, it is `translate` for drivers that the bridge manages, and `leave` for others.
    default: LeaveOrTranslate | None = None
    # The value for pods that request devices of a driver, by the name of the driver.
    drivers: dict[str, LeaveOrTranslate] = {}
    # The value for the pods of each namespace, by its name. It takes precedence over `autoscaled`, which takes precedence over `drivers`.
    namespaces: dict[str, LeaveOrTranslate] = {}
    # The value for pods that may need a new node, if the autoscaler that would create this node ignores claims.
    autoscaled: LeaveOrTranslate | None = None

    def choose(
        self, driver: str, namespace: str, annotation: str, *, managed: bool, autoscaled: bool
    ) -> LeaveOrTranslate:
        """Return the choice for a pod. An annotation whose value is neither `leave` nor `translate` is ignored."""
        if annotation in get_args(LeaveOrTranslate):
            return cast("LeaveOrTranslate", annotation)
        usual = self.default or ("translate" if managed else "leave")
        rule = self.autoscaled if autoscaled else None
        return self.namespaces.get(namespace) or rule or self.drivers.get(driver) or usual


class CPUClaims(_Declared, frozen=True, kw_only=True):
    """Whether Guaranteed pods also get claims for the CPUs that the kubelet's static CPU manager would give them exclusively.

    The namespace takes precedence over the default.
    """

    # The value for all other namespaces.
    default: LeaveOrTranslate = "leave"
    # The value for the pods of each namespace, by the name of the namespace.
    namespaces: dict[str, LeaveOrTranslate] = {}

    def wanted(self, namespace: str) -> bool:
        return self.namespaces.get(namespace, self.default) == "translate"

    @property
    def anywhere(self) -> bool:
        return "translate" in (self.default, *self.namespaces.values())


class Kueue(_Declared, frozen=True, kw_only=True):
    """The DeviceClasses that Kueue counts. In Kueue they are in `deviceClassMappings`, and the feature gate for DRA is enabled."""

    # DeviceClasses under `deviceClassMappings` of Kueue. Pods in a queue are translated only if all of their claims are of
    # these classes (docs/translation.md#workloads-of-other-projects).
    device_classes: tuple[str, ...] = ()


class TemplateDevices(_Declared, frozen=True, kw_only=True):
    """A number of equal devices, in the form of a ResourceSlice."""

    # The driver, as in `spec.driver` of its ResourceSlices.
    driver: str
    # The number of these devices on a node.
    count: Annotated[int, Meta(ge=1, le=MAX_DEVICES)] = 1
    # The device's attributes, as in a ResourceSlice.
    attributes: dict[str, DeviceAttribute] = {}
    # The device's capacities, as in a ResourceSlice.
    capacity: dict[str, DeviceCapacity] = {}
    # Whether several claims can share the device, as in a ResourceSlice.
    allow_multiple_allocations: bool | None = None


class NodeTemplate(_Declared, frozen=True, kw_only=True):
    """Nodes that an autoscaler can create: what one of them publishes, and how many there may be."""

    # The name that warnings use for the template.
    name: str
    # Labels that all nodes of the template have, and that no other node has.
    labels: dict[str, str] = {}
    # The maximum number of the template's nodes. If not set, there is no maximum.
    max_nodes: _Number | None = None
    # The devices that drivers publish for one node.
    devices: tuple[TemplateDevices, ...] = ()
    # The resources that device plugins offer on one node, and their amounts.
    allocatable: dict[str, Quantity] = {}


class KubernetesSettings(_Declared, frozen=True, kw_only=True):
    """Values of the API server and its scheduler that drawbridge cannot read from them."""

    # The version as 1.N, for commands on files. A cluster reports its own version.
    version: str = ""
    # Whether each feature gate of the API server and the scheduler is on, by the name of the gate.
    feature_gates: dict[str, bool] = {}

    def declared(self) -> DeclaredServer:
        """Return the valid part of these settings, and the problems of the other part."""
        wrong = dict(mistakes(self.version, self.feature_gates))
        minor = read_minor(self.version) if self.version and "" not in wrong else 0
        good = {gate: on for gate, on in self.feature_gates.items() if gate not in wrong}
        return DeclaredServer(minor, good, tuple([f"{error} ({error.remedy})" for error in wrong.values()]))


class Metadata(_Declared, frozen=True, kw_only=True):
    name: str = ""


class File(_Declared, frozen=True, kw_only=True):
    """The file, without the options of dialects."""

    api_version: Literal["drawbridge.dev/v1alpha1"]
    kind: Literal["DrawbridgeConfiguration"]
    metadata: Metadata = Metadata()
    # The mode of namespaces without the label `drawbridge.dev/mode`; `drawbridge manifests` installs `observe` by default.
    mode: Mode = "enforce"
    # Percentage of the workloads whose pods are translated in namespaces with mode `enforce`. Pods of other workloads
    # only get warnings.
    canary: _Percentage = 100
    # Maximum number of missed pods that are evicted per minute; 0 evicts none. A missed pod was created without claims
    # while the webhook was down, and waits for a resource that no node has. Evictions need `manifests/missed/role.yaml`
    # (docs/operating.md#a-pod-stays-pending).
    evict_missed_pods: _Number = 0
    # What happens to requests that a claim can only approximate: `warn` translates them with a warning, `allow` without
    # one, and `leave` does not change the container (docs/translation.md#outcomes).
    approximations: Literal["allow", "warn", "leave"] = "warn"
    # Resource name: the nodes that its pods prefer while some nodes have device plugins and some have drivers
    # (docs/node-by-node.md#while-the-fleet-is-mixed).
    mixed: dict[str, MixedFleet] = {}
    # Whether pods with an extended resource that a DeviceClass serves are left to the scheduler (`leave`) or translated
    # (`translate`; docs/translation.md#names-that-kubernetes-serves).
    extended_resources: ExtendedResources = ExtendedResources()
    # Whether Guaranteed pods get claims for their exclusive CPUs (`translate`) or not (`leave`;
    # docs/configuration.md#cpus-of-guaranteed-pods-by-claim).
    cpu_claims: CPUClaims = CPUClaims()
    # What happens to requests for a percentage of a device whose size is unknown.
    unresolved: Literal["leave", "refuse"] = "leave"
    # What happens to requests whose claims the API server or the pod's scheduler would drop or misread.
    not_understood: Literal["leave", "refuse"] = "leave"
    # What happens to HAMi's binding to a NUMA node if the driver publishes no NUMA nodes: `leave` does not change the
    # container, `drop` translates it without the binding, and `refuse` refuses the pod.
    numa_bind: Literal["leave", "drop", "refuse"] = "leave"
    # What happens to pods that no node could serve even with all devices free. `auto` refuses them, but only warns if an
    # autoscaler may create a node that is not declared (docs/translation.md#autoscaled-nodes).
    impossible: Literal["auto", "refuse", "warn"] = "auto"
    # The scheduler of fully translated pods whose manifest names the scheduler of the system that used the keys;
    # `""` keeps the manifest's scheduler.
    target_scheduler: str = "default-scheduler"
    # Key that several systems use: its meaning, which is `whole`, `shared`, `mig:<profile>` or the name of a dialect (the
    # keys of one system). With `leave`, the key is not translated.
    meanings: dict[str, str] = {}
    # Target (a kind of device): its DeviceClass, if the class does not have the vendor's name.
    classes: dict[str, str] = {}
    # Target: the parameters for its driver in claims (`opaque.parameters`); `<i>` in a string is the number of the device
    # (docs/keys.md#keys-of-your-own).
    parameters: dict[str, Opaque] = {}
    # Targets of your own: kinds of device that drawbridge does not know (docs/keys.md#keys-of-your-own).
    targets: Annotated[tuple[Target, ...], Meta(max_length=64)] = ()
    # The memory of device models, if no node publishes it.
    models: tuple[Model, ...] = ()
    # The drivers and nodes that show what a key means; all by default (docs/translation.md#evidence).
    evidence: Evidence = Evidence()
    # Nodes that an autoscaler can create. A pod that such a node could serve is not refused
    # (docs/translation.md#autoscaled-nodes).
    node_templates: Annotated[tuple[NodeTemplate, ...], Meta(max_length=MAX_TEMPLATES)] = ()
    # Dialect: its keys, each with the name that this cluster uses instead; `""` disables a key.
    keys: dict[str, dict[str, str]] = {}
    # Disabled dialects, whose keys the webhook does not know.
    disabled: tuple[str, ...] = ()
    # Dialects of your own, as tables in the form that `drawbridge dialects -o yaml` prints (docs/keys.md#keys-of-your-own).
    dialects: tuple[Dialect, ...] = ()
    # Pairs of keys: if a container has both keys, their devices must share an attribute
    # (docs/keys.md#keys-of-your-own).
    joint: tuple[Joint, ...] = ()
    # Key that a ResourceQuota limits: the new key by which a ResourceQuota counts the claims that replace it. The webhook does not
    # translate a limited key until a ResourceQuota of the namespace limits its new key, and counts its claims. The new key is `CLASS.deviceclass.resource.k8s.io/devices`,
    # `requests.deviceclass.resource.kubernetes.io/CLASS`, `requests.NAME` of a class's `extendedResourceName`, or
    # `count/resourceclaims.resource.k8s.io`.
    quotas: dict[str, str] = {}
    # Scheduler: the features of claims that it supports, for example for a version of Volcano that allocates claims.
    schedulers: dict[str, SchedulerSupport] = {}
    # The bridge, if it is installed: drawbridge's allocator and the scheduler that calls it (docs/bridge.md#placement).
    bridge: BridgeSettings | None = None
    # The version and feature gates of the API server, if it does not report them (docs/versions.md).
    kubernetes: KubernetesSettings = KubernetesSettings()
    # Which claims Kueue counts.
    kueue: Kueue = Kueue()

    def options(self, dialect: str) -> DialectOptions:
        options = getattr(self, dialect)
        assert isinstance(options, DialectOptions)
        return options


def _whole_file() -> type[File]:
    """Return the type of the file with a field for each dialect's options."""
    fields = [(vocabulary.table.name, vocabulary.options, vocabulary.options()) for vocabulary in VOCABULARIES]
    file_type = msgspec.defstruct("DrawbridgeConfiguration", fields, bases=(File,), frozen=True, kw_only=True)
    assert issubclass(file_type, File)
    return file_type


WHOLE_FILE = _whole_file()
DEFAULT = WHOLE_FILE(api_version="drawbridge.dev/v1alpha1", kind="DrawbridgeConfiguration")
