"""Reads prepared claims from the kubelet's `dra_manager_state` and from other vendors' `checkpoint.json`.

Two formats of checkpoints are supported:

- That of the kubelet's checkpoint manager (NVIDIA's GPU and compute domain drivers, HAMi's, AMD's, and many derived from Kubernetes' example):
  an object with `checksum`, and `v1` or `v2`, each with `preparedClaims` by claim UID. `v2` has a checksum of its own. In `v2` a claim has
  a state (only completed claims are prepared) and, if the driver is recent, name and namespace. The devices are nested in the claim, with
  pool and name.
- An API object of kind Checkpoint (newer versions of Kubernetes' example driver): a list of UIDs.

The checksum of a `checkpoint.json` is FNV-1a over the bytes as Go prints them, with the checksum itself set to 0; the checksum of
`dra_manager_state` is CRC-32. A file with a wrong checksum is not used, and no file is read beyond a size limit. Whatever the content, the
readers raise only BadCheckpoint (`checkpoint.json`) or UnreadableState (`dra_manager_state`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec
from msgspec.structs import replace

from dra.raw import mapping, text
from node.audit.snapshot import DeviceId, PreparedDeviceRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dra.objects import ResourceClaim
    from node.audit.snapshot import ClaimName

MAX_BYTES = 1 << 20  # the checksum of a file of this size takes half a second, and is cached
MAX_DEVICES = 4096
DEEPEST = 12  # levels of nesting within a claim
LONGEST = 200
COMPLETED = "PrepareCompleted"
_V2_SUM = re.compile(rb'\A\{"checksum":\d{1,20}')
_NOTHING = msgspec.Raw()
_NONE = (_NOTHING, msgspec.Raw(b"null"))
_NUMBERS = tuple(b"%d" % number for number in range(256))
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?").fullmatch
_UID = re.compile(r"[-A-Za-z0-9]{1,64}").fullmatch
_NAMES = (("PoolName", "DeviceName", "ShareID"), ("pool_name", "device_name", "share_id"))


class BadCheckpoint(Exception):  # noqa: N818  what the file is
    """The file cannot be used; the message says why."""


class UnknownForm(BadCheckpoint):
    """The file has a format that this module does not know. This is not a fault of the driver."""


class _Inner(msgspec.Struct, frozen=True, rename="camel"):
    """`v1`, which has no checksum inside, or `v2`."""

    checksum: int | None = None
    prepared_claims: dict[str, Any] | None = None


class _Uid(msgspec.Struct, frozen=True):
    uid: str = ""


class _CheckpointFile(msgspec.Struct, frozen=True):
    checksum: int | None = None
    v1: msgspec.Raw = _NOTHING
    v2: msgspec.Raw = _NOTHING
    kind: str = ""
    claims: list[_Uid] | None = msgspec.field(name="preparedClaims", default=None)


def read_other_driver(data: bytes, driver: str) -> tuple[PreparedDeviceRecord, ...]:
    """Return a driver's prepared claims. If the file has only a claim's UID, the names are empty; the device may be empty as well."""
    if len(data) > MAX_BYTES:
        raise BadCheckpoint(f"it has {len(data)} bytes, and {MAX_BYTES} is the maximum")
    try:
        file = msgspec.json.decode(data, type=_CheckpointFile)
        if file.kind == "Checkpoint" and file.claims is not None:
            uids = [claim.uid for claim in file.claims if _UID(claim.uid)]
            return tuple(_record_of(driver, uid) for uid in uids[:MAX_DEVICES])
        # If the file has v1 and v2, v2 counts.
        if file.v2 not in _NONE:
            content = bytes(file.v2)
            version = msgspec.json.decode(content, type=_Inner)
            checksum, checksummed = version.checksum, _V2_SUM.sub(b'{"checksum":0', content, count=1)
        elif file.v1 not in _NONE and file.checksum is not None:
            content = bytes(file.v1)
            checksum, checksummed = file.checksum, b'{"checksum":0,"v1":%s}' % content
            version = _Inner()
        else:
            raise UnknownForm("it has neither a v1 with a checksum, nor a v2, nor a list of uids")
        if sum_of(checksummed) != checksum:
            raise BadCheckpoint("its checksum does not match its content")
        if file.v2 in _NONE:
            version = msgspec.json.decode(content, type=_Inner)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UnknownForm(str(error)[:LONGEST]) from None
    records: list[PreparedDeviceRecord] = []
    for uid, claim in (version.prepared_claims or {}).items():
        claim_fields = mapping(claim)
        if not _UID(uid) or claim_fields.get("checkpointState", COMPLETED) != COMPLETED:
            continue
        namespace, name = text(claim_fields.get("namespace")), text(claim_fields.get("name"))
        if not (_NAME(namespace) and _NAME(name)):
            namespace = name = ""
        devices = list(_devices(claim_fields.get("preparedDevices", claim), DEEPEST))
        records += [_record_of(driver, uid, namespace, name, *device) for device in devices or [("", "", "")]]
        if len(records) > MAX_DEVICES:
            raise BadCheckpoint(f"it names more than {MAX_DEVICES} devices")
    return tuple(records)


@lru_cache(maxsize=16)
def sum_of(data: bytes) -> int:
    """Return the checksum of the kubelet's checkpoint manager: FNV-1a, 32 bits, over `([]uint8)[123 34 ...]`."""
    text = b"([]uint8)[%s]" % b" ".join(map(_NUMBERS.__getitem__, data))
    value = 0x811C9DC5
    for byte in text:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _devices(value: Any, levels: int) -> Iterator[tuple[str, str, str]]:
    """Yield the devices at any depth: objects with a pool and a device name, in one of the spellings of `_NAMES`."""
    if levels == 0:
        return
    if isinstance(value, list):
        for member in value:
            yield from _devices(member, levels - 1)
    if not isinstance(value, dict):
        return
    for names in _NAMES:
        pool, device, share = (text(value.get(name)) for name in names)
        if pool and device:
            yield pool, device, share
            return
    for member in value.values():
        yield from _devices(member, levels - 1)


def with_names(
    prepared: Iterable[PreparedDeviceRecord], claims: Mapping[ClaimName, ResourceClaim | None]
) -> tuple[PreparedDeviceRecord, ...]:
    """Fill in the names of claims that a driver's file has only by UID, if the claims are among `claims`."""
    name_of = {claim.metadata.uid: key for key, claim in claims.items() if claim is not None}
    records: list[PreparedDeviceRecord] = []
    for record in prepared:
        namespace, name = name_of.get(record.uid, ("", ""))
        records.append(replace(record, namespace=namespace, claim=name) if name and not record.claim else record)
    return tuple(records)


def _record_of(driver: str, uid: str, namespace: str = "", name: str = "", *device: str) -> PreparedDeviceRecord:
    pool, device_name, share = device or ("", "", "")
    device_id = DeviceId(driver, pool, device_name)
    return PreparedDeviceRecord(f"the driver {driver}", namespace, name, device_id, uid, share)


MEMORY = "the kubelet's memory"


class UnreadableState(Exception):  # noqa: N818  what the file is
    """The kubelet's file cannot be used; the message says why."""


class _StateDevice(msgspec.Struct, frozen=True, rename="pascal"):
    pool_name: str = ""
    device_name: str = ""
    share: str | None = msgspec.field(name="ShareID", default=None)


class _PreparedByDriver(msgspec.Struct, frozen=True, rename="pascal"):
    devices: tuple[_StateDevice, ...] | None = None


class _StateClaim(msgspec.Struct, frozen=True, rename="pascal"):
    claim_uid: str = msgspec.field(name="ClaimUID", default="")
    claim_name: str = ""
    namespace: str = ""
    driver_state: dict[str, _PreparedByDriver] | None = None


class _StateData(msgspec.Struct, frozen=True, rename="pascal"):
    claim_info_state_list: tuple[_StateClaim, ...] | None = None


class _StateFile(msgspec.Struct, frozen=True, rename="pascal"):
    data: str
    checksum: int


def read_state(data: bytes) -> tuple[PreparedDeviceRecord, ...]:
    try:
        file = msgspec.json.decode(data, type=_StateFile)
        inner = file.data.encode()
        if crc32(inner) != file.checksum:
            raise UnreadableState("its checksum does not match its content")
        claims = msgspec.json.decode(inner, type=_StateData).claim_info_state_list
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UnreadableState(f"it is not a valid kubelet state file: {error}") from None
    records: list[PreparedDeviceRecord] = []
    for claim in claims or ():
        for driver, state in (claim.driver_state or {}).items():
            for device in state.devices or ():
                device_id = DeviceId(driver, device.pool_name, device.device_name)
                records.append(
                    PreparedDeviceRecord(
                        MEMORY, claim.namespace, claim.claim_name, device_id, claim.claim_uid, device.share or ""
                    )
                )
    return tuple(records)
