"""The prepared claims of a node as a file, and the steps by which a file changes.

    drawbridge-checkpoint 1 1 LENGTH SHA256
    {"claims":{UID:{...}}}

The first number is the version that wrote it, the second the oldest that may read it. The checksum is over both, the length and all that
follows, so no byte can be lost or changed without notice. A record is written back as it was read until it changes: what a later
version has added to it survives a downgrade.
"""

from __future__ import annotations

import hashlib
import re
from typing import NamedTuple

import msgspec

from dra import wire
from dra.quantity import Quantity
from dra.wire import Wire, WireError

VERSION = 1
OLDEST = 1  # version that may read what we write
_HEAD = re.compile(rb"drawbridge-checkpoint (\d{1,4}) (\d{1,4}) (\d{1,10}) ([0-9a-f]{64})\n")


class HeldDevice(Wire, frozen=True, kw_only=True):
    """A device, or the share of one, that a request of a claim was given; `cpus` are those that were chosen for it."""

    request: str
    device: str
    share_id: str | None = None
    admin: bool = False
    consumed: dict[str, Quantity] = {}
    cpus: str = ""

    @property
    def asked(self) -> str:
        """The request, without the alternative that was chosen."""
        return self.request.partition("/")[0]


class Prepared(Wire, frozen=True, kw_only=True):
    """A claim that is prepared. `pool` is the one pool of this node."""

    uid: str
    namespace: str
    name: str
    # What the pod calls a claim that was made from a template.
    entry: str = ""
    pool: str
    devices: tuple[HeldDevice, ...] = ()


class BrokenCheckpoint(Exception):  # noqa: N818  what the file is
    """The file is not as it was written, or a later version wrote it; the message says which."""


class Checkpoint(msgspec.Struct, frozen=True):
    """Everything that is prepared, by the uid of its claim."""

    claims: dict[str, Prepared] = {}
    # Records as they were read.
    read: dict[str, msgspec.Raw] = {}

    def with_(self, *records: Prepared) -> Checkpoint:
        added = {record.uid: record for record in records}
        kept = {uid: raw for uid, raw in self.read.items() if uid not in added}
        return Checkpoint({**self.claims, **added}, kept)

    def without(self, *uids: str) -> Checkpoint:
        claims = {uid: record for uid, record in self.claims.items() if uid not in uids}
        read = {uid: raw for uid, raw in self.read.items() if uid not in uids}
        return Checkpoint(claims, read)


class _Payload(msgspec.Struct, frozen=True):
    claims: dict[str, msgspec.Raw]


def encode(checkpoint: Checkpoint, version: int = VERSION, oldest: int = OLDEST) -> bytes:
    claims: dict[str, msgspec.Raw] = {}
    for uid, record in sorted(checkpoint.claims.items()):
        claims[uid] = checkpoint.read.get(uid) or msgspec.Raw(wire.encode(record))
    body = msgspec.json.encode(_Payload(claims)) + b"\n"
    numbers = b"%d %d %d" % (version, oldest, len(body))
    return b"drawbridge-checkpoint %s %s\n%s" % (numbers, _sum(numbers, body), body)


def decode(data: bytes) -> Checkpoint:
    """Read a checkpoint, or say why that cannot be done. An empty file is a broken one."""
    head = _HEAD.match(data)
    if head is None:
        raise BrokenCheckpoint("it does not begin as a checkpoint does")
    body = data[head.end() :]
    numbers = b" ".join(head.group(1, 2, 3))
    if len(body) != int(head[3]):
        raise BrokenCheckpoint(f"it has {len(body)} bytes where {int(head[3])} were written")
    if _sum(numbers, body) != head[4]:
        raise BrokenCheckpoint("its checksum is not that of its content")
    if int(head[2]) > VERSION:
        raise BrokenCheckpoint(
            f"version {int(head[1])} wrote it, and a reader must be of version {int(head[2])} at least"
        )
    try:
        read = msgspec.json.decode(body, type=_Payload).claims
        claims = {uid: wire.decode(bytes(raw), Prepared) for uid, raw in read.items()}
    except (WireError, msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BrokenCheckpoint(f"a record in it is not valid: {error}") from None
    return Checkpoint(claims, read)


def _sum(numbers: bytes, body: bytes) -> bytes:
    return hashlib.sha256(numbers + b"\n" + body).hexdigest().encode()


# A kill between any two steps leaves the old file or the new one, and never a part. `service.disk` takes them one after the other.

TEMPORARY = ".new"
PRIVATE = 0o600
FOR_ALL = 0o644


class Write(NamedTuple):
    """Write a file that no reader knows yet."""

    path: str
    data: bytes
    mode: int = PRIVATE


class SyncFile(NamedTuple):
    """Wait until the disk has a file's content."""

    path: str


class Rename(NamedTuple):
    """Put a file in the place of another, at once."""

    path: str
    onto: str


class SyncFolder(NamedTuple):
    """Wait until the disk has a folder's names."""

    path: str


class Remove(NamedTuple):
    path: str


Step = Write | SyncFile | Rename | SyncFolder | Remove


def written(path: str, data: bytes) -> tuple[Step, ...]:
    """Say how a file gets a content that outlives a loss of power."""
    new = path + TEMPORARY
    folder = path.rpartition("/")[0] or "/"
    return Write(new, data), SyncFile(new), Rename(new, path), SyncFolder(folder)


def shown(path: str, data: bytes, mode: int = PRIVATE) -> tuple[Step, ...]:
    """Say how a file gets a content that others read, and that can be made again: no disk is waited for."""
    new = path + TEMPORARY
    return Write(new, data, mode), Rename(new, path)
