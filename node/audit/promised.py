"""What an allocator answers about a node, and what of two answers stood all the while between them. Pure.

The answer comes over a network from a process that may be anybody's: what is not as it should be is refused as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.audit.sight import DeviceId, Promise, PromisedDevice

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 4096  # claims and devices in one answer: a node has a few hundred
LONGEST = 253  # of a name


class Unlikely(Exception):  # noqa: N818  what the answer is
    """No answer that an allocator gives; the message says why."""


class _DeviceRow(msgspec.Struct, frozen=True, rename="camel"):
    driver: str
    pool: str
    device: str
    share_id: str = ""


class _ClaimRow(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    claim: str
    uid: str
    in_doubt: bool
    devices: tuple[_DeviceRow, ...]


class _Told(msgspec.Struct, frozen=True):
    node: str
    promises: tuple[_ClaimRow, ...]


def read_promises(data: bytes, node: str) -> tuple[Promise, ...]:
    """Read what an allocator says is promised on a node."""
    try:
        answer = msgspec.json.decode(data, type=_Told)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Unlikely(f"the answer is not one about promises: {str(error)[:LONGEST]}") from None
    if answer.node != node:
        raise Unlikely(f"the answer is about {answer.node[:LONGEST]!r}, and not about this node")
    rows = answer.promises
    numbers = [1 + len(row.devices) for row in rows]
    if sum(numbers) > MOST:
        raise Unlikely(f"the answer is about more than {MOST} claims and devices")
    return tuple(_read(row) for row in rows)


def _read(row: _ClaimRow) -> Promise:
    _demand_names(row.namespace, row.claim, row.uid)
    devices = [_read_device(one) for one in row.devices]
    return Promise(row.namespace, row.claim, row.uid, row.in_doubt, tuple(devices))


def _read_device(row: _DeviceRow) -> PromisedDevice:
    _demand_names(row.driver, row.pool, row.device, row.share_id or "-")
    where = DeviceId(row.driver, row.pool, row.device)
    return PromisedDevice(where, row.share_id)


def _demand_names(*names: str) -> None:
    for name in names:
        if not 0 < len(name) <= LONGEST or not name.isprintable():
            raise Unlikely(f"the answer has a name that is none: {name[:LONGEST]!r}")


def that_stood(before: Iterable[Promise], after: Iterable[Promise]) -> tuple[Promise, ...]:
    """Keep what was promised in both answers; in doubt is what was in doubt in both."""
    earlier = {_identity(one): one for one in before}
    found: list[Promise] = []
    for one in after:
        known = earlier.get(_identity(one))
        if known is not None:
            surer = one if known.in_doubt else known
            found.append(surer)
    return tuple(found)


def _identity(one: Promise) -> tuple[object, ...]:
    return one.uid, one.devices
