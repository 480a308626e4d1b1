"""The checkpoint file of prepared claims, and the steps that replace a file safely.

    drawbridge-checkpoint 1 1 LENGTH SHA256
    {"claims":{UID:{...}}}

The first number is the version of the format in which the file was written, the second number the oldest version that can read it. The
checksum covers both numbers, the length and the body, so any lost or changed byte is noticed. A record that was read is written back byte
for byte until it changes, so fields of a later version survive a downgrade.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

import msgspec

from dra import wire
from dra.objects import Device
from dra.quantity import Quantity
from dra.wire import Wire, WireError
from node.inventory import DeviceAccess

VERSION = 2
OLDEST = 1  # oldest version that can read the file
_HEAD = re.compile(rb"drawbridge-checkpoint (\d{1,4}) (\d{1,4}) (\d{1,10}) ([0-9a-f]{64})\n")


class Given(Wire, frozen=True, kw_only=True):
    """What a claim was given: a device as it was offered then. The inventory may offer its hardware under another name later, or not at all."""

    device: Device
    access: DeviceAccess
    visible: str = ""  # the name of the `visibleDevices` variable, if it lists the device
    hardware: tuple[tuple[str, ...], ...] = ()  # the identities of the device and of all devices that exclude it


class HeldDevice(Wire, frozen=True, kw_only=True):
    """A device, or a share of one, prepared for a request of a claim; `cpus` are the CPUs chosen for it.

    `given` is None in a record of version 1 whose hardware is not known.
    """

    request: str
    device: str
    share_id: str | None = None
    admin: bool = False
    consumed: dict[str, Quantity] = {}
    cpus: str = ""
    given: Given | None = None

    @property
    def access(self) -> DeviceAccess:
        return self.given.access if self.given is not None else DeviceAccess("")

    @property
    def request_name(self) -> str:
        """The request without its chosen alternative."""
        return self.request.partition("/")[0]


class Prepared(Wire, frozen=True, kw_only=True):
    """A prepared claim. `pool` is the node's only pool of devices."""

    uid: str
    namespace: str
    name: str
    entry: str = ""  # the name in the pod's resourceClaims, for a claim made from a template
    pool: str
    devices: tuple[HeldDevice, ...] = ()
    pods: tuple[str, ...] = ()  # the UIDs of the pods that may use it

    @property
    def is_known(self) -> bool:
        """Whether the hardware of all devices is known."""
        return all(held.given is not None for held in self.devices)


class BrokenCheckpoint(Exception):  # noqa: N818  what the file is
    """The file is damaged, or only a later version of drawbridge can read it; the message says which."""


class Checkpoint(msgspec.Struct, frozen=True):
    """The prepared claims by UID."""

    claims: dict[str, Prepared] = {}
    read: dict[str, msgspec.Raw] = {}  # unchanged records as they were read

    def with_records(self, *records: Prepared) -> Checkpoint:
        added = {record.uid: record for record in records}
        unchanged = {uid: raw for uid, raw in self.read.items() if uid not in added}
        return Checkpoint({**self.claims, **added}, unchanged)

    def without(self, *uids: str) -> Checkpoint:
        claims = {uid: record for uid, record in self.claims.items() if uid not in uids}
        read = {uid: raw for uid, raw in self.read.items() if uid not in uids}
        return Checkpoint(claims, read)


class _Payload(msgspec.Struct, frozen=True):
    claims: dict[str, msgspec.Raw]


def encode(checkpoint: Checkpoint) -> bytes:
    claims: dict[str, msgspec.Raw] = {}
    for uid, record in sorted(checkpoint.claims.items()):
        claims[uid] = checkpoint.read.get(uid) or msgspec.Raw(wire.encode(record))
    body = msgspec.json.encode(_Payload(claims)) + b"\n"
    header_numbers = b"%d %d %d" % (VERSION, OLDEST, len(body))
    return b"drawbridge-checkpoint %s %s\n%s" % (header_numbers, _sum(header_numbers, body), body)


def decode(data: bytes) -> Checkpoint:
    """Read a checkpoint. An empty file raises BrokenCheckpoint, too."""
    head = _HEAD.match(data)
    if head is None:
        raise BrokenCheckpoint("it does not begin with a checkpoint header")
    body = data[head.end() :]
    header_numbers = b" ".join(head.group(1, 2, 3))
    if len(body) != int(head[3]):
        raise BrokenCheckpoint(f"it has {len(body)} bytes, but {int(head[3])} were written")
    if _sum(header_numbers, body) != head[4]:
        raise BrokenCheckpoint("its checksum does not match its content")
    if int(head[2]) > VERSION:
        raise BrokenCheckpoint(
            f"it has version {int(head[1])} of the format, which only version {int(head[2])} or later can read"
        )
    try:
        raw_records = msgspec.json.decode(body, type=_Payload).claims
        claims = {uid: wire.decode(bytes(raw), Prepared) for uid, raw in raw_records.items()}
    except (WireError, msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BrokenCheckpoint(f"a record in it is not valid: {error}") from None
    return Checkpoint(claims, raw_records)


def _sum(numbers: bytes, body: bytes) -> bytes:
    return hashlib.sha256(numbers + b"\n" + body).hexdigest().encode()


# A process that is killed between two of these steps leaves the old file or the new file, never a part. `node.service.disk` takes the steps.

TEMPORARY = ".new"
PRIVATE = 0o600
FOR_ALL = 0o644


class WriteFile(NamedTuple):
    """Write a temporary file that nothing reads yet."""

    path: str
    data: bytes
    mode: int = PRIVATE


class SyncFile(NamedTuple):
    """Flush a file's content to disk."""

    path: str


class Rename(NamedTuple):
    """Replace a file atomically."""

    path: str
    onto: str


class SyncFolder(NamedTuple):
    """Flush a folder's entries to disk."""

    path: str


class Remove(NamedTuple):
    path: str


FileStep = WriteFile | SyncFile | Rename | SyncFolder | Remove


def durable_steps(path: str, data: bytes) -> tuple[FileStep, ...]:
    """Return the steps that replace a file so that its new content survives a loss of power."""
    new = path + TEMPORARY
    folder = path.rpartition("/")[0] or "/"
    return WriteFile(new, data), SyncFile(new), Rename(new, path), SyncFolder(folder)


def unflushed_steps(path: str, data: bytes, mode: int = PRIVATE) -> tuple[FileStep, ...]:
    """Return the steps that replace a file that other processes read. Nothing is flushed, because the file can be rebuilt."""
    new = path + TEMPORARY
    return WriteFile(new, data, mode), Rename(new, path)
