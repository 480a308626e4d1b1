"""What a plugin answers when it is asked for devices, as a CDI file.

A plugin runs with rights of its own, but what it answers is written into a file that a runtime obeys as root, so it is read with care: paths are
absolute and go nowhere else, variables are variables, there is an answer for each request, and all of it is of bounded size.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from dra.wire import encode
from node.cdi import kind_of
from node.messages import PreparedClaim, PreparedDevice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from node.checkpoint import Prepared
    from node.messages import AllocateResponse, Edits, PluginMount, PluginNode

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
        _judge(edits)
    return dict(zip(requests, response.containers, strict=True))


def spec_of(driver: str, record: Prepared, edits: Mapping[str, Edits]) -> bytes:
    """Write the file of a claim: a CDI device for each request, because a plugin answers for all devices of a request at once.

    Annotations that a plugin wants on the container are not in it: what a claim prepares has no way to annotate containers.
    """
    devices = [
        {
            "name": f"{record.uid}-{number}",
            "annotations": {REQUEST: request, NAMES: ",".join(one.name for one in edits[request].cdi)},
            "containerEdits": _edits(edits[request]),
        }
        for number, request in enumerate(edits)
    ]
    return encode({"cdiVersion": ANNOTATED, "kind": kind_of(driver), "devices": devices})


def answer_of(driver: str, record: Prepared, spec: bytes) -> PreparedClaim:
    """Tell the kubelet what is in the file of a claim; PluginFault if it is not ours as it stands."""
    names = _names(driver, spec)
    devices: list[PreparedDevice] = []
    for held in record.devices:
        request = held.asked
        if request not in names:
            raise PluginFault(f"its CDI file has nothing for the request {request}")
        # Once is enough: the container gets what any device of its request names.
        cdi, names[request] = names[request], ()
        one = PreparedDevice(requests=(request,), pool=record.pool, device=held.device, cdi=cdi)
        devices.append(one)
    return PreparedClaim(devices=tuple(devices))


def _names(driver: str, spec: bytes) -> dict[str, tuple[str, ...]]:
    """Read the names of CDI devices by request: our own, and what the plugin named besides."""
    try:
        file = msgspec.json.decode(spec, type=_CdiFile)
    except msgspec.DecodeError as error:
        raise PluginFault(f"its CDI file cannot be read: {error}") from None
    found: dict[str, tuple[str, ...]] = {}
    for one in file.devices:
        request = one.annotations.get(REQUEST, "")
        others = filter(None, one.annotations.get(NAMES, "").split(","))
        ours = f"{kind_of(driver)}={one.name}"
        found[request] = (ours, *others)
    return found


def _judge(edits: Edits) -> None:
    for many in (edits.variables, edits.mounts, edits.nodes, edits.annotations, edits.cdi):
        if len(many) > _MOST:
            raise PluginFault(f"it answered with {len(many)} of one kind, and {_MOST} are the most")
    for name, value in edits.variables.items():
        if not _VARIABLE(name) or "\0" in value or len(value) > _LONGEST_VALUE:
            raise PluginFault(f"{name[:100]!r} is no variable")
    for path in _paths(edits):
        if not _is_plain(path):
            raise PluginFault(f"{path[:200]!r} is no path: an absolute one is wanted, without ..")
    for node in edits.nodes:
        if set(node.permissions) - set("rwm"):
            raise PluginFault(f"{node.permissions[:20]!r} are no permissions: r, w and m are")
    for device in edits.cdi:
        if not _CDI_NAME(device.name):
            raise PluginFault(f"{device.name[:200]!r} is no name of a CDI device")


def _paths(edits: Edits) -> list[str]:
    both: list[PluginMount | PluginNode] = [*edits.mounts, *edits.nodes]
    return [path for one in both for path in (one.host_path, one.container_path)]


def _is_plain(path: str) -> bool:
    """Say whether a path is one place, whoever follows it from the root."""
    return path.startswith("/") and len(path) <= _LONGEST_PATH and path.isprintable() and ".." not in path.split("/")


def _edits(edits: Edits) -> dict[str, Any]:
    made: dict[str, Any] = {"env": [f"{name}={value}" for name, value in sorted(edits.variables.items())]}
    if edits.nodes:
        made["deviceNodes"] = [_node(node) for node in edits.nodes]
    if edits.mounts:
        made["mounts"] = [_mount(mount) for mount in edits.mounts]
    return made


def _node(node: PluginNode) -> dict[str, str]:
    return {"path": node.container_path, "hostPath": node.host_path, "permissions": node.permissions or "mrw"}


def _mount(mount: PluginMount) -> dict[str, Any]:
    options = ["rbind", "ro" if mount.read_only else "rw"]
    return {"hostPath": mount.host_path, "containerPath": mount.container_path, "options": options}
