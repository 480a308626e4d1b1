"""Reads the sources on a node: the kubelet and files. A missing, broken or huge source does not prevent reading the other sources.

Files are read up to a size limit. Only regular files are read, so that no pipe or device blocks the agent. Links to files and to drivers'
folders are not followed. Of CDI files only the names are read.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from grpclib.client import UnaryUnaryMethod

from node.audit import (
    BadCheckpoint,
    DeviceId,
    NodePluginDevice,
    PreparedDeviceRecord,
    UnknownForm,
    UnreadableState,
    plain,
    read_other_driver,
    read_state,
)
from node.checkpoint import BrokenCheckpoint, decode
from node.messages import Empty, PluginsOffer, PodHoldings
from node.service.grpc import BROKEN, channel_to

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from node.service.settings import NodePaths

MAX_BYTES = 4 << 20  # bytes of one file: the agent has little memory, and decoded content takes more
MAX_PREPARED = 20_000  # devices of all drivers together
MAX_NAMES = 10_000
MAX_DRIVERS = 256
ANSWER_TIMEOUT = 5.0  # seconds
OURS = b"drawbridge-checkpoint "
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTER = "/v1.PodResourcesLister"


class KubeletAway(Exception):  # noqa: N818  names the problem
    """The kubelet's pod resources API does not answer; the message says why."""


class UnreadableFile(Exception):  # noqa: N818  names the problem
    """The file must not be read; the message says why."""


class NodeFiles(msgspec.Struct, frozen=True):
    """The content of files, and the files that could not be read (`unread`), with the reason."""

    prepared: tuple[PreparedDeviceRecord, ...] = ()
    names: tuple[str, ...] = ()  # the names of CDI files
    unread: dict[str, str] = {}
    unknown: dict[str, str] = {}  # files in an unknown format


class KubeletAnswer(msgspec.Struct, frozen=True):
    holdings: PodHoldings
    offered: tuple[NodePluginDevice, ...] = ()


async def ask_kubelet(socket: str, seconds: float = ANSWER_TIMEOUT) -> KubeletAnswer:
    """Read from the kubelet which devices containers have; raises KubeletAway if it does not answer."""
    channel = channel_to(socket)
    try:
        holdings = await _call(channel, "List", PodHoldings, seconds)
        offer = await _call(channel, "GetAllocatableResources", PluginsOffer, seconds)
    except BROKEN as error:
        why = str(error) or type(error).__name__
        raise KubeletAway(f"{socket}: {why}") from None
    finally:
        channel.close()
    offered = tuple(NodePluginDevice(device.resource, id_) for device in offer.devices for id_ in device.ids)
    return KubeletAnswer(holdings, offered)


async def _call(channel: Any, method: str, answers: type[Any], seconds: float) -> Any:
    call = UnaryUnaryMethod(channel, f"{_LISTER}/{method}", Empty, answers)
    return await call(Empty(), timeout=seconds)


def read_files(paths: NodePaths) -> NodeFiles:
    """Read the kubelet's state file, drivers' checkpoints, and the names in the CDI folder."""
    prepared: list[PreparedDeviceRecord] = []
    unread: dict[str, str] = {}
    unknown: dict[str, str] = {}
    memory = f"{paths.kubelet}/dra_manager_state"
    try:
        data = _read(memory)
        prepared += read_state(data) if data is not None else ()
    except (UnreadableFile, UnreadableState, OSError) as error:
        unread[memory] = _error_text(error)
    for driver in _folder(f"{paths.kubelet}/plugins", MAX_DRIVERS, unread):
        for name, checkpoint in _CHECKPOINTS.items():
            path = plain(f"{paths.state(driver)}/{name}")
            try:
                data = _read_in(paths.state(driver), name)
                driver_records = checkpoint(data, driver) if data is not None else ()
                room = MAX_PREPARED - len(prepared)
                records = list(islice(driver_records, room + 1))
                prepared += records[:room]
                if len(records) > room:
                    unread[path] = f"drivers name more than {MAX_PREPARED} devices; the rest is ignored"
            except UnknownForm as error:
                unknown[path] = plain(str(error))
            except (UnreadableFile, BrokenCheckpoint, BadCheckpoint, OSError) as error:
                unread[path] = plain(_error_text(error))
    names = _folder(paths.cdi, MAX_NAMES, unread)
    return NodeFiles(tuple(prepared), tuple(names), unread, unknown)


def _own_records(data: bytes, driver: str) -> Iterator[PreparedDeviceRecord]:
    records = decode(data).claims.values() if data.startswith(OURS) else ()
    for record in records:
        for prepared_device in record.devices:
            yield PreparedDeviceRecord(
                f"the driver {driver}",
                record.namespace,
                record.name,
                DeviceId(driver, record.pool, prepared_device.device),
                record.uid,
                prepared_device.share_id or "",
                prepared_device.admin,
                prepared_device.consumed,
            )


_CHECKPOINTS: Mapping[str, Callable[[bytes, str], Iterable[PreparedDeviceRecord]]] = {
    "checkpoint": _own_records,
    "checkpoint.json": read_other_driver,
}


def _read_in(folder: str, name: str) -> bytes | None:
    """Return a file of a driver's folder; None if there is no file. The folder must not be a link."""
    if Path(folder).is_symlink():
        raise UnreadableFile("its folder is a link")
    try:
        folder_descriptor = os.open(folder, _FLAGS | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return _read(name, folder_descriptor)
    finally:
        os.close(folder_descriptor)


def _read(path: str, inside: int | None = None) -> bytes | None:
    """Return a regular file of limited size; None if there is no file."""
    try:
        descriptor = os.open(path, _FLAGS, dir_fd=inside)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableFile("it is not a regular file")
        if status.st_size > MAX_BYTES:
            raise UnreadableFile(f"it has {status.st_size} bytes, and {MAX_BYTES} is the maximum")
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise UnreadableFile("it grows while it is read")
    return data


def _folder(path: str, max_entries: int, unread: dict[str, str]) -> list[str]:
    names: list[str] = []
    with suppress(FileNotFoundError):
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if len(names) == max_entries:
                        unread[path] = f"it has more than {max_entries} entries; the rest is ignored"
                        break
                    names.append(entry.name)
        except PermissionError as error:
            unread[path] = _error_text(error)
    return sorted(names)


def _error_text(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
