"""Reads an allocator's answer, which lists the reservations on a node, and compares two answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from node.audit.snapshot import NodeReservation

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 253  # characters of a text that a message quotes


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
        raise InvalidAnswer(f"the answer is not a list of reservations: {str(error)[:_LONGEST]}") from None
    if answer.node != node:
        raise InvalidAnswer(f"the answer is about the node {answer.node[:_LONGEST]!r}, and not about this node")
    return answer.reservations


def in_both(before: Iterable[NodeReservation], after: Iterable[NodeReservation]) -> tuple[NodeReservation, ...]:
    """Return the reservations that are in both answers. A reservation is in doubt only if it is in doubt in both."""
    earlier = {(reservation.uid, reservation.devices): reservation for reservation in before}
    kept: list[NodeReservation] = []
    for reservation in after:
        earlier_reservation = earlier.get((reservation.uid, reservation.devices))
        if earlier_reservation is not None:
            kept.append(reservation if earlier_reservation.in_doubt else earlier_reservation)
    return tuple(kept)
