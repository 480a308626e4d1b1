"""An allocator's answer about a node, and the reservations that stand in two answers. Pure.

The answer comes over a network from a process that is not trusted: an answer with any mistake is refused as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.audit.snapshot import DeviceId, NodeReservation, NodeReservedDevice

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST = 4096  # claims and devices in one answer: a node has a few hundred
LONGEST = 253  # of a name


class Unlikely(Exception):  # noqa: N818  what the answer is
    """The answer is not one that an allocator gives; the message says why."""


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


class _ReservationsAnswer(msgspec.Struct, frozen=True):
    node: str
    promises: tuple[_ClaimRow, ...]


def read_reservations(data: bytes, node: str) -> tuple[NodeReservation, ...]:
    """Read an allocator's answer about a node; Unlikely if it is not such an answer."""
    try:
        answer = msgspec.json.decode(data, type=_ReservationsAnswer)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise Unlikely(f"the answer is not a list of reservations: {str(error)[:LONGEST]}") from None
    if answer.node != node:
        raise Unlikely(f"the answer is about {answer.node[:LONGEST]!r}, and not about this node")
    if sum(1 + len(row.devices) for row in answer.promises) > MOST:
        raise Unlikely(f"the answer is about more than {MOST} claims and devices")
    found: list[NodeReservation] = []
    for row in answer.promises:
        _demand_names(row.namespace, row.claim, row.uid)
        devices: list[NodeReservedDevice] = []
        for one in row.devices:
            _demand_names(one.driver, one.pool, one.device, one.share_id or "-")
            devices.append(NodeReservedDevice(DeviceId(one.driver, one.pool, one.device), one.share_id))
        found.append(NodeReservation(row.namespace, row.claim, row.uid, row.in_doubt, tuple(devices)))
    return tuple(found)


def _demand_names(*names: str) -> None:
    for name in names:
        if not 0 < len(name) <= LONGEST or not name.isprintable():
            raise Unlikely(f"the answer has an invalid name: {name[:LONGEST]!r}")


def in_both(before: Iterable[NodeReservation], after: Iterable[NodeReservation]) -> tuple[NodeReservation, ...]:
    """Keep the reservations of both answers; in doubt is what was in doubt in both."""
    earlier = {(one.uid, one.devices): one for one in before}
    found: list[NodeReservation] = []
    for one in after:
        known = earlier.get((one.uid, one.devices))
        if known is not None:
            found.append(one if known.in_doubt else known)
    return tuple(found)
