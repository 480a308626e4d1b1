"""Reads an allocator's answer, which lists the reservations on a node, and compares two answers.

The answer comes over the network from an untrusted process, so an answer with any mistake is rejected as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.audit.snapshot import NodeReservation

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_ENTRIES = 4096  # claims and devices in one answer: a node has a few hundred
LONGEST = 253  # characters of a name


class InvalidAnswer(Exception):  # noqa: N818  names the problem
    """The allocator's answer is not valid; the message says why."""


class _ReservationsAnswer(msgspec.Struct, frozen=True):
    node: str
    reservations: tuple[NodeReservation, ...]


def read_reservations(data: bytes, node: str) -> tuple[NodeReservation, ...]:
    """Return the reservations of an allocator's answer about a node."""
    try:
        answer = msgspec.json.decode(data, type=_ReservationsAnswer)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InvalidAnswer(f"the answer is not a list of reservations: {str(error)[:LONGEST]}") from None
    if answer.node != node:
        raise InvalidAnswer(f"the answer is about the node {answer.node[:LONGEST]!r}, and not about this node")
    if sum(1 + len(row.devices) for row in answer.reservations) > MAX_ENTRIES:
        raise InvalidAnswer(f"the answer is about more than {MAX_ENTRIES} claims and devices")
    for row in answer.reservations:
        _demand_names(row.namespace, row.claim, row.uid)
        for device in row.devices:
            _demand_names(device.driver, device.pool, device.device, device.share_id or "-")
    return answer.reservations


def _demand_names(*names: str) -> None:
    for name in names:
        if not 0 < len(name) <= LONGEST or not name.isprintable():
            raise InvalidAnswer(f"the answer has an invalid name: {name[:LONGEST]!r}")


def in_both(before: Iterable[NodeReservation], after: Iterable[NodeReservation]) -> tuple[NodeReservation, ...]:
    """Return the reservations that are in both answers. A reservation is in doubt only if it is in doubt in both."""
    earlier = {(reservation.uid, reservation.devices): reservation for reservation in before}
    kept: list[NodeReservation] = []
    for reservation in after:
        earlier_reservation = earlier.get((reservation.uid, reservation.devices))
        if earlier_reservation is not None:
            kept.append(reservation if earlier_reservation.in_doubt else earlier_reservation)
    return tuple(kept)
