"""Reads prepared claims from the kubelet's `dra_manager_state` and from other vendors' `checkpoint.json`.

Two formats of checkpoints are supported:

- That of the kubelet's checkpoint manager (NVIDIA's GPU and compute domain drivers, HAMi's, AMD's, and many derived from Kubernetes' example):
  an object with `v1` or `v2`, each with `preparedClaims` by claim UID. In `v2` a claim has a state (only completed claims are prepared) and,
  if the driver is recent, name and namespace. The devices are nested in the claim, with pool and name.
- An API object of kind Checkpoint (newer versions of Kubernetes' example driver): a list of UIDs.

The files have checksums for the programs that wrote them; this module does not compare them. Whatever the content, the readers raise only
UnknownForm (`checkpoint.json`) or UnreadableState (`dra_manager_state`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from dra.raw import mapping, text
from node.audit.snapshot import MEMORY, PreparedDeviceRecord
from node.hardware import DeviceId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dra.objects import ResourceClaim
    from node.audit.snapshot import ClaimName

_LONGEST = 200
_COMPLETED = "PrepareCompleted"
_NAMES = (("PoolName", "DeviceName", "ShareID"), ("pool_name", "device_name", "share_id"))


class UnknownForm(Exception):  # noqa: N818  what the file is
    """The file has a format that this module does not know. This is not a fault of the driver."""


class _PreparedClaims(msgspec.Struct, frozen=True, rename="camel"):
    """`v1` or `v2`."""

    prepared_claims: dict[str, Any] | None = None


class _Uid(msgspec.Struct, frozen=True):
    uid: str = ""


class _CheckpointFile(msgspec.Struct, frozen=True):
    v1: _PreparedClaims | None = None
    v2: _PreparedClaims | None = None
    kind: str = ""
    claims: list[_Uid] | None = msgspec.field(name="preparedClaims", default=None)


def read_other_driver(data: bytes, driver: str) -> tuple[PreparedDeviceRecord, ...]:
    """Return a driver's prepared claims. If the file has only a claim's UID, the names are empty; the device may be empty as well."""
    try:
        file = msgspec.json.decode(data, type=_CheckpointFile)
        if file.kind == "Checkpoint" and file.claims is not None:
            return tuple(_record_of(driver, claim.uid) for claim in file.claims if claim.uid)
        version = file.v2 or file.v1  # if the file has both, v2 counts
        if version is None:
            raise UnknownForm("it has neither v1 nor v2, nor a list of uids")
        records: list[PreparedDeviceRecord] = []
        for uid, claim in (version.prepared_claims or {}).items():
            fields = mapping(claim)
            if fields.get("checkpointState", _COMPLETED) == _COMPLETED:
                names = text(fields.get("namespace")), text(fields.get("name"))
                devices = list(_devices(fields.get("preparedDevices", claim)))
                records += [_record_of(driver, uid, *names, *device) for device in devices or [("", "", "")]]
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UnknownForm(str(error)[:_LONGEST]) from None
    return tuple(records)


def _devices(value: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the devices at any depth: objects with a pool and a device name, in one of the spellings of `_NAMES`."""
    if isinstance(value, dict):
        for names in _NAMES:
            pool, device, share = (text(value.get(name)) for name in names)
            if pool and device:
                yield pool, device, share
                return
        value = list(value.values())
    for member in value if isinstance(value, list) else ():
        yield from _devices(member)


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


def read_state(data: bytes) -> tuple[PreparedDeviceRecord, ...]:
    try:
        file = msgspec.json.decode(data, type=_StateFile)
        claims = msgspec.json.decode(file.data, type=_StateData).claim_info_state_list
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
