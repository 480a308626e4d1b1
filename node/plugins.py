"""Device plugins: registrations are checked, lists become devices of one driver, and answers become CDI files.

Every process that can write into the folder of sockets can register. The kubelet's rules apply (pkg/kubelet/cm/devicemanager/plugin/v1beta1),
and two of our own: a name must not lead out of the folder, and a resource must be one that a DeviceClass can stand for.

All plugins of a node share one pool, with a device for each id. A plugin that hands out one card several times ("replicas", `ID::NUMBER`)
has a device for each time, all with the attribute `card`; the plugin decides what they share. A device that its plugin calls unhealthy is
tainted, and so are all devices of a plugin that is gone: running pods go on, and no new ones come.

A plugin's answer is written into a file that a runtime obeys as root, so it is read with care: paths are absolute and lead nowhere else,
variables are variables, each request has an answer, and everything is of bounded size.
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
    DeviceTaint,
    ObjectMeta,
)
from dra.wire import encode
from node.cdi import kind_of
from node.inventory import Machine, Offer, PciDevice, label
from node.messages import OneChoice, PluginDevice, PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from node.checkpoint import Prepared
    from node.messages import AllocateResponse, Edits, PreferenceResponse, RegisterRequest

VERSION = "v1beta1"
OWN_SOCKET = "kubelet.sock"
_LONGEST_TEXT = 64  # of an attribute: by one the class of a resource finds its devices
_LONGEST_SOCKET = 100  # of the 107 bytes of a socket's path some are the folder's
_RESOURCE = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+/[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?"
).fullmatch
_SOCKET = re.compile(r"[A-Za-z0-9_][-._=+A-Za-z0-9]*").fullmatch  # some plugins encode their resource in base64


def refusal(request: RegisterRequest) -> str:
    """Say why a plugin is not taken; "" if it is."""
    if request.version != VERSION:
        return f"the version of the API is {request.version!r}, and only {VERSION} is spoken"
    name = request.resource
    if not _RESOURCE(name) or len(name) > _LONGEST_TEXT:
        return f"{name[:100]!r} is not the name of a resource: DOMAIN/NAME is expected, in {_LONGEST_TEXT} characters at most"
    domain = name.partition("/")[0]
    if domain == "kubernetes.io" or domain.endswith(".kubernetes.io"):
        return f"{name} is in a domain of Kubernetes' own"
    if not _SOCKET(request.endpoint) or len(request.endpoint) > _LONGEST_SOCKET:
        return f"{request.endpoint[:100]!r} is not the name of a socket in the registration folder"
    if request.endpoint == OWN_SOCKET:
        return f"{OWN_SOCKET} is where we listen ourselves"
    return ""


HEALTHY = "Healthy"
_STANDARD = "resource.kubernetes.io"
_LONGEST_NAME = 63
_SIGNS = 8
_REPLICA = re.compile(r"(.+)::(\d+)").fullmatch
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]").fullmatch
_UUID = re.compile(r"((GPU|MIG|NPU)-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What is known of a device besides what its plugin says: from sysfs, or from a file."""

    numa_node: int | None = None
    pci_bus_id: str = msgspec.field(default="", name="pciBusID")
    pcie_root: str = ""
    uuid: str = ""
    product: str = ""


class Plugged(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin as it is now: its devices, in the order in which it would rather hand them out."""

    resource: str
    devices: tuple[PluginDevice, ...] = ()
    connected: bool = True


class PluginDeviceId(msgspec.Struct, frozen=True):
    resource: str
    id: str


class Lore(msgspec.Struct, frozen=True):
    """What is known besides what plugins say: `told` in a file, by id or card, and `found` in sysfs, by PCI address."""

    told: Mapping[str, Facts] = {}
    found: Mapping[str, Facts] = {}


def machine_of_plugins(driver: str, plugins: Iterable[Plugged], lore: Lore) -> Machine:
    """Say what all plugins of a node offer together. Devices with a repeated or an invalid id are left out."""
    found: list[Device] = []
    for plugin in plugins:
        for one in plugin.devices:
            if not 0 < len(one.id) <= _LONGEST_TEXT or not one.id.isprintable():
                continue
            why = "" if one.health == HEALTHY else "unhealthy"
            if not plugin.connected:
                why = "disconnected"
            device = Device(
                name=name_of(plugin.resource, one.id),
                attributes=_attributes(plugin.resource, one, lore),
                taints=(DeviceTaint(key=f"{driver}/{why}", effect="NoSchedule"),) if why else (),
            )
            found.append(device)
    names = Counter(one.name for one in found)
    devices = tuple(one for one in found if names[one.name] == 1)
    return Machine(driver, devices, offers={device.name: Offer(device.name) for device in devices})


def facts_of(devices: Iterable[PciDevice]) -> dict[str, Facts]:
    """Say by their addresses where devices are plugged in."""
    return {one.address: Facts(numa_node=one.numa_node, pci_bus_id=one.address, pcie_root=one.root) for one in devices}


def identify(plugins: Iterable[Plugged]) -> dict[str, PluginDeviceId]:
    """Say by which resource and id a plugin knows each device."""
    return {
        name_of(plugin.resource, one.id): PluginDeviceId(plugin.resource, one.id)
        for plugin in plugins
        for one in plugin.devices
    }


def name_of(resource: str, id_: str) -> str:
    """Name a device. The name depends on nothing else, so it is the same after every restart."""
    readable = f"{label(resource)}-{label(id_)}"
    if label(id_) == id_ and len(readable) <= _LONGEST_NAME:
        return readable
    sign = sha256(f"{resource}\0{id_}".encode()).hexdigest()[:_SIGNS]
    short = readable[: _LONGEST_NAME - _SIGNS - 1].rstrip("-")
    return f"{short}-{sign}"


def _attributes(resource: str, one: PluginDevice, lore: Lore) -> dict[str, DeviceAttribute]:
    """What is known of a device: the file counts before the plugin, and the plugin before what sysfs has at its address."""
    replica = _REPLICA(one.id)
    card = replica[1] if replica else one.id
    told = lore.told.get(one.id) or lore.told.get(card) or Facts()
    bus_id = told.pci_bus_id or (card if _PCI(card) else "")
    found = lore.found.get(bus_id) or Facts()
    numa_node = told.numa_node
    near = [node.number for node in one.topology.nodes]
    # A device between two NUMA nodes has none that one attribute could say.
    if numa_node is None and len(near) == 1:
        [numa_node] = near
    if not near and numa_node is None:
        numa_node = found.numa_node
    texts = {
        "resource": resource,
        "id": one.id,
        "card": card if replica else "",
        "uuid": told.uuid or (card if _UUID(card) else ""),
        "product": told.product,
        f"{_STANDARD}/pciBusID": bus_id,
        f"{_STANDARD}/pcieRoot": told.pcie_root or found.pcie_root,
    }
    attributes = {name: DeviceAttribute(string=text[:_LONGEST_TEXT]) for name, text in texts.items() if text}
    if numa_node is not None and numa_node >= 0:
        attributes[f"{_STANDARD}/numaNode"] = DeviceAttribute(int_=numa_node)
    return attributes


# A question each; beyond that many the rest stays in the plugin's own order.
MOST_QUESTIONS = 16


class PluginPreference:
    def __init__(self, devices: tuple[PluginDevice, ...]) -> None:
        self._devices = {one.id: one for one in devices}
        self._available = tuple(one.id for one in devices if one.health == HEALTHY)
        self._first: list[str] = []
        self._over = False

    def next_choice(self) -> OneChoice | None:
        """Say what to ask next; None when nothing more is to be learned."""
        size = len(self._first) + 1
        if self._over or size >= len(self._available) or size > MOST_QUESTIONS:
            return None
        return OneChoice(available=self._available, included=tuple(self._first), size=size)

    def learn(self, answer: PreferenceResponse) -> None:
        """Take an answer; one that cannot be used ends the questions."""
        chosen = answer.containers[0].ids if len(answer.containers) == 1 else ()
        new = [one for one in chosen if one in self._available and one not in self._first]
        if len(new) != 1:
            self._over = True
        else:
            self._first += new

    def ordered(self) -> tuple[PluginDevice, ...]:
        """Give the devices, those first that were preferred."""
        rest = [one for one in self._devices if one not in self._first]
        return tuple(self._devices[one] for one in [*self._first, *rest])


def class_of(driver: str, resource: str) -> DeviceClass:
    domain, _, name = resource.partition("/")
    expression = f'device.driver == "{driver}" && device.attributes["{driver}"].resource == "{resource}"'
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    return DeviceClass(
        metadata=ObjectMeta(name=f"{label(name)}.{domain}.{driver}"),
        spec=DeviceClassSpec(selectors=(selector,), extended_resource_name=resource),
    )


# What stands in our CDI files for ourselves: which request a device is of, and what the plugin named besides.
ANNOTATED = "0.6.0"  # the first version of CDI whose devices may have annotations
REQUEST, NAMES = "drawbridge.dev/request", "drawbridge.dev/names"
_MOST = 256  # variables, mounts, nodes, names of each
_LONGEST_PATH = 4096
_LONGEST_VALUE = 32 << 10
_VARIABLE = re.compile(r"[A-Za-z_][-._A-Za-z0-9]*").fullmatch
_CDI_NAME = re.compile(
    r"[A-Za-z0-9][-._A-Za-z0-9]*/[A-Za-z][-_A-Za-z0-9]*=[A-Za-z0-9]([-._:A-Za-z0-9]*[A-Za-z0-9])?"
).fullmatch


class _CdiDevice(msgspec.Struct, frozen=True):
    """A device of a CDI file, as far as we need it again."""

    name: str
    annotations: dict[str, str] = {}


class _CdiFile(msgspec.Struct, frozen=True):
    devices: tuple[_CdiDevice, ...] = ()


class PluginFault(Exception):  # noqa: N818  the plugin's, not ours
    """What a plugin answered cannot be used."""


def read_answer(response: AllocateResponse, requests: Sequence[str]) -> dict[str, Edits]:
    """Say what each request gets; PluginFault if that cannot be used."""
    if len(response.containers) != len(requests):
        raise PluginFault(f"it was asked for {len(requests)} requests, and answered for {len(response.containers)}")
    for edits in response.containers:
        for many in (edits.variables, edits.mounts, edits.nodes, edits.annotations, edits.cdi):
            if len(many) > _MOST:
                raise PluginFault(f"it answered with {len(many)} of one kind, and {_MOST} are the most")
        for name, value in edits.variables.items():
            if not _VARIABLE(name) or "\0" in value or len(value) > _LONGEST_VALUE:
                raise PluginFault(f"{name[:100]!r} is not a variable (expected NAME=VALUE)")
        paths = [path for one in edits.mounts for path in (one.host_path, one.container_path)]
        paths += (path for one in edits.nodes for path in (one.host_path, one.container_path))
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
    """Write the file of a claim: a CDI device for each request, because a plugin answers for all devices of a request at once.

    Annotations that a plugin wants on the container are not in it: what a claim prepares has no way to annotate containers.
    """
    devices: list[dict[str, Any]] = []
    for number, (request, wanted) in enumerate(edits.items()):
        made: dict[str, Any] = {"env": [f"{name}={value}" for name, value in sorted(wanted.variables.items())]}
        if wanted.nodes:
            made["deviceNodes"] = [
                {"path": one.container_path, "hostPath": one.host_path, "permissions": one.permissions or "mrw"}
                for one in wanted.nodes
            ]
        if wanted.mounts:
            made["mounts"] = [
                {
                    "hostPath": one.host_path,
                    "containerPath": one.container_path,
                    "options": ["rbind", "ro" if one.read_only else "rw"],
                }
                for one in wanted.mounts
            ]
        annotations = {REQUEST: request, NAMES: ",".join(one.name for one in wanted.cdi)}
        devices.append({"name": f"{record.uid}-{number}", "annotations": annotations, "containerEdits": made})
    return encode({"cdiVersion": ANNOTATED, "kind": kind_of(driver), "devices": devices})


def answer_from_spec(driver: str, record: Prepared, spec: bytes) -> PreparedClaim:
    """Tell the kubelet what is in the file of a claim; PluginFault if it is not ours as it stands."""
    try:
        file = msgspec.json.decode(spec, type=_CdiFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PluginFault(f"its CDI file cannot be read: {error}") from None
    # The names of CDI devices by request: our own, and those that the plugin named besides.
    names: dict[str, tuple[str, ...]] = {}
    for one in file.devices:
        others = filter(None, one.annotations.get(NAMES, "").split(","))
        names[one.annotations.get(REQUEST, "")] = (f"{kind_of(driver)}={one.name}", *others)
    devices: list[PreparedDevice] = []
    for held in record.devices:
        request = held.asked
        if request not in names:
            raise PluginFault(f"its CDI file has nothing for the request {request}")
        # Once is enough: the container gets what any device of its request names.
        cdi, names[request] = names[request], ()
        devices.append(PreparedDevice(requests=(request,), pool=record.pool, device=held.device, cdi=cdi))
    return PreparedClaim(devices=tuple(devices))
