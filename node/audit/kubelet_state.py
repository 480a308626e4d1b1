"""The kubelet's own memory of prepared claims, `dra_manager_state` (pkg/kubelet/cm/dra/state): JSON in JSON, with a sum over the inner one."""

from __future__ import annotations

from zlib import crc32

import msgspec

from node.audit.snapshot import DeviceId, PreparedThere

MEMORY = "the kubelet's memory"


class UnreadableState(Exception):  # noqa: N818  what the file is
    """The file is not one that a kubelet wrote; the message says why."""


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


def read_state(data: bytes) -> tuple[PreparedThere, ...]:
    try:
        file = msgspec.json.decode(data, type=_StateFile)
        inner = file.data.encode()
        if crc32(inner) != file.checksum:
            raise UnreadableState("its checksum is not that of its content")
        claims = msgspec.json.decode(inner, type=_StateData).claim_info_state_list
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise UnreadableState(f"it is not as a kubelet writes it: {error}") from None
    found: list[PreparedThere] = []
    for claim in claims or ():
        for driver, state in (claim.driver_state or {}).items():
            for one in state.devices or ():
                where = DeviceId(driver, one.pool_name, one.device_name)
                found.append(
                    PreparedThere(MEMORY, claim.namespace, claim.claim_name, where, claim.claim_uid, one.share or "")
                )
    return tuple(found)
