"""Reads the sources on a node: the kubelet and files. A missing, broken or huge source does not prevent reading the other sources.

Only root can write the files. Of CDI files only the names are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from grpclib.client import UnaryUnaryMethod

from node.audit import (
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
ANSWER_TIMEOUT = 5.0  # seconds
OURS = b"drawbridge-checkpoint "
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
    for driver in _names_in(f"{paths.kubelet}/plugins", unread):
        for name, checkpoint in _CHECKPOINTS.items():
            path = f"{paths.state(driver)}/{name}"
            try:
                data = _read(path)
                prepared += checkpoint(data, driver) if data is not None else ()
            except UnknownForm as error:
                unknown[plain(path)] = plain(str(error))
            except (UnreadableFile, BrokenCheckpoint, OSError) as error:
                unread[plain(path)] = plain(_error_text(error))
    names = _names_in(paths.cdi, unread)
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
                prepared_device.given.device if prepared_device.given is not None else None,
            )


_CHECKPOINTS: Mapping[str, Callable[[bytes, str], Iterable[PreparedDeviceRecord]]] = {
    "checkpoint": _own_records,
    "checkpoint.json": read_other_driver,
}


def _read(path: str) -> bytes | None:
    """Return a file of limited size; None if there is no file."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > MAX_BYTES:
        raise UnreadableFile(f"it has more than {MAX_BYTES} bytes")
    return data


def _names_in(folder: str, unread: dict[str, str]) -> list[str]:
    try:
        return sorted(path.name for path in Path(folder).iterdir())
    except FileNotFoundError:
        return []
    except PermissionError as error:
        unread[folder] = _error_text(error)
        return []


def _error_text(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
