"""A plugin's answer to a request for devices, as a CDI file.

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
    from node.messages import AllocateResponse, Edits

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


def spec_of(driver: str, record: Prepared, edits: Mapping[str, Edits]) -> bytes:
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


def answer_of(driver: str, record: Prepared, spec: bytes) -> PreparedClaim:
    """Tell the kubelet what is in the file of a claim; PluginFault if it is not ours as it stands."""
    try:
        file = msgspec.json.decode(spec, type=_CdiFile)
    except msgspec.DecodeError as error:
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
