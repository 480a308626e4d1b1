"""Device plugins behind the adapter: checks registrations, turns plugin devices into DRA devices, and allocations into CDI files.

Every process that can write into the registration folder can register as a plugin. The kubelet's rules for registrations apply
(pkg/kubelet/cm/devicemanager/plugin/v1beta1), and two more: the socket name must not lead out of the folder, and the resource name must fit
a DeviceClass.

All plugins of a node share one pool, with a device for each plugin device. If a plugin offers a card several times ("replicas",
`ID::NUMBER`), each replica is a device with the attribute `card`; the plugin decides what the replicas share. Devices that their plugin
reports unhealthy, and all devices of a disconnected plugin, get a NoSchedule taint: running pods keep these devices, new pods do not get
them.

A plugin's answer goes into a CDI file that the runtime applies as root, so it is validated: paths are absolute and without `..`, variable
names are valid, each request has an answer, and every size is bounded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from dra.objects import (
    CELDeviceSelector,
    Device,
    DeviceAttribute,
    DeviceClass,
    DeviceClassSpec,
    DeviceSelector,
    ObjectMeta,
)
from dra.wire import encode
from node.cdi import kind_of
from node.inventory import UNHEALTHY, DeviceAccess, Machine, PciDevice, label, taints_of
from node.messages import ContainerPreferenceRequest, PluginDevice, PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from node.checkpoint import Prepared
    from node.messages import AllocateResponse, Edits, PreferenceResponse, RegisterRequest

VERSION = "v1beta1"
OWN_SOCKET = "kubelet.sock"
_LONGEST_TEXT = 64  # characters in a string attribute; the DeviceClass selects devices by the attribute `resource`
_LONGEST_SOCKET = 100  # bytes of a socket's name; its path, with the folder, can have 107
_RESOURCE = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+/[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?"
).fullmatch
_SOCKET = re.compile(r"[A-Za-z0-9_][-._=+A-Za-z0-9]*").fullmatch  # some plugins encode their resource in base64


def refusal(request: RegisterRequest) -> str:
    """Return why a plugin's registration is refused; "" if it is accepted."""
    if request.version != VERSION:
        return f"API version {request.version!r} is not supported (expected {VERSION})"
    name = request.resource
    if not _RESOURCE(name) or len(name) > _LONGEST_TEXT:
        return f"{name[:100]!r} is not a valid resource name (expected DOMAIN/NAME, at most {_LONGEST_TEXT} characters)"
    domain = name.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return f"{name} is in a domain reserved by Kubernetes"
    if not _SOCKET(request.endpoint) or len(request.endpoint) > _LONGEST_SOCKET:
        return f"{request.endpoint[:100]!r} is not a valid socket name in the registration folder"
    if request.endpoint == OWN_SOCKET:
        return f"{OWN_SOCKET} is the adapter's own socket"
    return ""


HEALTHY = "Healthy"
_STANDARD = "resource.kubernetes.io"
_LONGEST_NAME = 63
_HASH_DIGITS = 8
_REPLICA = re.compile(r"(.+)::(\d+)").fullmatch
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]").fullmatch
_UUID = re.compile(r"((GPU|MIG|NPU)-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Facts about a device that its plugin does not report, from sysfs or from the facts file."""

    numa_node: int | None = None
    pci_bus_id: str = msgspec.field(default="", name="pciBusID")
    pcie_root: str = ""
    uuid: str = ""
    product: str = ""


class PluginState(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's current state. The devices are in the order in which the plugin prefers to allocate them."""

    resource: str
    devices: tuple[PluginDevice, ...] = ()
    connected: bool = True


class FactSources(msgspec.Struct, frozen=True):
    """Facts from the `file`, by id or card, and from `sysfs`, by PCI address."""

    file: Mapping[str, Facts] = {}
    sysfs: Mapping[str, Facts] = {}


def machine_of_plugins(driver: str, plugins: Iterable[PluginState], facts: FactSources) -> Machine:
    """Return the devices of all plugins of a node as one machine. Devices with an invalid id or a repeated name are left out."""
    all_devices: list[Device] = []
    for plugin in plugins:
        for plugin_device in plugin.devices:
            if not 0 < len(plugin_device.id) <= _LONGEST_TEXT or not plugin_device.id.isprintable():
                continue
            problem = "" if plugin_device.health == HEALTHY else UNHEALTHY
            if not plugin.connected:
                problem = "disconnected"
            device = Device(
                name=name_of(plugin.resource, plugin_device.id),
                attributes=_attributes(plugin.resource, plugin_device, facts),
                taints=taints_of(driver, problem),
            )
            all_devices.append(device)
    names = Counter(device.name for device in all_devices)
    devices = tuple(device for device in all_devices if names[device.name] == 1)
    return Machine(driver, devices, offers={device.name: DeviceAccess(device.name) for device in devices})


def facts_of(devices: Iterable[PciDevice]) -> dict[str, Facts]:
    """Return the location of PCI devices by address."""
    return {
        device.address: Facts(numa_node=device.numa_node, pci_bus_id=device.address, pcie_root=device.root)
        for device in devices
    }


def identify(plugins: Iterable[PluginState]) -> dict[str, tuple[str, str]]:
    """Map each device name to the plugin's resource and id."""
    ids = [(plugin.resource, device.id) for plugin in plugins for device in plugin.devices]
    return {name_of(*id_): id_ for id_ in ids}


def name_of(resource: str, id_: str) -> str:
    """Return a device's name. It depends only on resource and id, so restarts do not change it."""
    readable = f"{label(resource)}-{label(id_)}"
    if label(id_) == id_ and len(readable) <= _LONGEST_NAME:
        return readable
    digest = sha256(f"{resource}\0{id_}".encode()).hexdigest()[:_HASH_DIGITS]
    short = readable[: _LONGEST_NAME - _HASH_DIGITS - 1].rstrip("-")
    return f"{short}-{digest}"


def _attributes(resource: str, device: PluginDevice, facts: FactSources) -> dict[str, DeviceAttribute]:
    """Return a device's attributes: the file takes precedence over the plugin, and the plugin over sysfs."""
    replica = _REPLICA(device.id)
    card = replica[1] if replica else device.id
    from_file = facts.file.get(device.id) or facts.file.get(card) or Facts()
    bus_id = from_file.pci_bus_id or (card if _PCI(card) else "")
    from_sysfs = facts.sysfs.get(bus_id) or Facts()
    numa_node = from_file.numa_node
    plugin_numa_nodes = [node.number for node in device.topology.nodes]
    # One attribute cannot express that a device belongs to several NUMA nodes.
    if numa_node is None and len(plugin_numa_nodes) == 1:
        [numa_node] = plugin_numa_nodes
    if not plugin_numa_nodes and numa_node is None:
        numa_node = from_sysfs.numa_node
    texts = {
        "resource": resource,
        "id": device.id,
        "card": card if replica else "",
        "uuid": from_file.uuid or (card if _UUID(card) else ""),
        "product": from_file.product,
        f"{_STANDARD}/pciBusID": bus_id,
        f"{_STANDARD}/pcieRoot": from_file.pcie_root or from_sysfs.pcie_root,
    }
    attributes = {name: DeviceAttribute(string=text[:_LONGEST_TEXT]) for name, text in texts.items() if text}
    if numa_node is not None and numa_node >= 0:
        attributes[f"{_STANDARD}/numaNode"] = DeviceAttribute(int_=numa_node)
    return attributes


# GetPreferredAllocation calls to one plugin; further devices stay in the order of the plugin's list.
MAX_PREFERENCE_CALLS = 16


class PluginPreference:
    """Determines a plugin's preferred order of devices: asks for its best device, then its best two, and so on (GetPreferredAllocation)."""

    def __init__(self, devices: tuple[PluginDevice, ...]) -> None:
        self._devices = {device.id: device for device in devices}
        self._available = tuple(device.id for device in devices if device.health == HEALTHY)
        self._preferred: list[str] = []
        self._is_over = False

    def next_choice(self) -> ContainerPreferenceRequest | None:
        """Return the next request; None when the order is complete."""
        size = len(self._preferred) + 1
        if self._is_over or size >= len(self._available) or size > MAX_PREFERENCE_CALLS:
            return None
        return ContainerPreferenceRequest(available=self._available, included=tuple(self._preferred), size=size)

    def learn(self, answer: PreferenceResponse) -> None:
        """Record an answer. After an unusable answer there is no further request."""
        chosen = answer.containers[0].ids if len(answer.containers) == 1 else ()
        new = set(chosen).intersection(self._available).difference(self._preferred)
        if len(new) != 1:
            self._is_over = True
        else:
            self._preferred += new

    def ordered(self) -> tuple[PluginDevice, ...]:
        """Return the devices, preferred ones first."""
        others = [device for device in self._devices if device not in self._preferred]
        return tuple(self._devices[id_] for id_ in [*self._preferred, *others])


def class_of(driver: str, resource: str) -> DeviceClass:
    domain, _, name = resource.partition("/")
    expression = f'device.driver == "{driver}" && device.attributes["{driver}"].resource == "{resource}"'
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    return DeviceClass(
        metadata=ObjectMeta(name=f"{label(name)}.{domain}.{driver}"),
        spec=DeviceClassSpec(selectors=(selector,), extended_resource_name=resource),
    )


# Annotations in the adapter's CDI files, which the adapter reads after a restart: a device's request, and the CDI devices that the plugin
# named for this request.
ANNOTATED = "0.6.0"  # the first version of CDI whose devices may have annotations
REQUEST, NAMES = "drawbridge.dev/request", "drawbridge.dev/names"
_MAX = 256  # variables, mounts, device nodes, annotations or CDI names for one container
_LONGEST_PATH = 4096
_LONGEST_VALUE = 32 << 10
_VARIABLE = re.compile(r"[A-Za-z_][-._A-Za-z0-9]*").fullmatch
_CDI_NAME = re.compile(
    r"[A-Za-z0-9][-._A-Za-z0-9]*/[A-Za-z][-_A-Za-z0-9]*=[A-Za-z0-9]([-._:A-Za-z0-9]*[A-Za-z0-9])?"
).fullmatch


class _CdiDevice(msgspec.Struct, frozen=True):
    """The parts of a CDI file's device that the adapter reads."""

    name: str
    annotations: dict[str, str] = {}


class _CdiFile(msgspec.Struct, frozen=True):
    devices: tuple[_CdiDevice, ...] = ()


class PluginFault(Exception):  # noqa: N818  the plugin's, not ours
    """A plugin's answer, or the CDI file made of it, cannot be used."""


def read_answer(response: AllocateResponse, requests: Sequence[str]) -> dict[str, Edits]:
    """Return the edits for each request; raises PluginFault if the answer is invalid."""
    if len(response.containers) != len(requests):
        raise PluginFault(f"it answered {len(response.containers)} requests instead of {len(requests)}")
    for edits in response.containers:
        for entries in (edits.variables, edits.mounts, edits.nodes, edits.annotations, edits.cdi):
            if len(entries) > _MAX:
                raise PluginFault(f"its answer has {len(entries)} entries in one list, and {_MAX} is the maximum")
        for name, value in edits.variables.items():
            if not _VARIABLE(name) or "\0" in value or len(value) > _LONGEST_VALUE:
                raise PluginFault(f"{name[:100]!r} is not a valid environment variable")
        paths = [path for mount in edits.mounts for path in (mount.host_path, mount.container_path)]
        paths += (path for node in edits.nodes for path in (node.host_path, node.container_path))
        for path in paths:
            is_absolute = path.startswith("/") and ".." not in path.split("/")
            if not is_absolute or len(path) > _LONGEST_PATH or not path.isprintable():
                raise PluginFault(f"{path[:200]!r} is not an absolute path without ..")
        for node in edits.nodes:
            if set(node.permissions) - set("rwm"):
                raise PluginFault(f"{node.permissions[:20]!r} are not valid permissions: use r, w and m")
        for device in edits.cdi:
            if not _CDI_NAME(device.name):
                raise PluginFault(f"{device.name[:200]!r} is not a valid CDI device name")
    return dict(zip(requests, response.containers, strict=True))


def spec_of_answers(driver: str, record: Prepared, edits: Mapping[str, Edits]) -> bytes:
    """Encode the CDI file of a claim: a CDI device for each request, because a plugin answers for all devices of a request at once.

    Container annotations that a plugin asks for are left out: DRA has no way to set them.
    """
    devices: list[dict[str, Any]] = []
    for number, (request, answer_edits) in enumerate(edits.items()):
        container_edits: dict[str, Any] = {
            "env": [f"{name}={value}" for name, value in sorted(answer_edits.variables.items())]
        }
        if answer_edits.nodes:
            container_edits["deviceNodes"] = [
                {"path": node.container_path, "hostPath": node.host_path, "permissions": node.permissions or "mrw"}
                for node in answer_edits.nodes
            ]
        if answer_edits.mounts:
            container_edits["mounts"] = [
                {
                    "hostPath": mount.host_path,
                    "containerPath": mount.container_path,
                    "options": ["rbind", "ro" if mount.read_only else "rw"],
                }
                for mount in answer_edits.mounts
            ]
        annotations = {REQUEST: request, NAMES: ",".join(device.name for device in answer_edits.cdi)}
        devices.append(
            {"name": f"{record.uid}-{number}", "annotations": annotations, "containerEdits": container_edits}
        )
    return encode({"cdiVersion": ANNOTATED, "kind": kind_of(driver), "devices": devices})


def answer_from_spec(driver: str, record: Prepared, spec: bytes) -> PreparedClaim:
    """Return the answer to the kubelet about a claim, from its CDI file; raises PluginFault if it is not a file of the adapter."""
    try:
        file = msgspec.json.decode(spec, type=_CdiFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PluginFault(f"its CDI file cannot be read: {error}") from None
    # CDI device names by request: the adapter's device, and those that the plugin named.
    names: dict[str, tuple[str, ...]] = {}
    for device in file.devices:
        plugin_names = filter(None, device.annotations.get(NAMES, "").split(","))
        names[device.annotations.get(REQUEST, "")] = (f"{kind_of(driver)}={device.name}", *plugin_names)
    devices: list[PreparedDevice] = []
    for prepared_device in record.devices:
        request = prepared_device.request_name
        if request not in names:
            raise PluginFault(f"its CDI file has no device for the request {request}")
        # Only the first device of a request names the CDI devices, because a container gets all devices of its request.
        cdi, names[request] = names[request], ()
        devices.append(PreparedDevice(requests=(request,), pool=record.pool, device=prepared_device.device, cdi=cdi))
    return PreparedClaim(devices=tuple(devices))
