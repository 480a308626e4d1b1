"""The ledger: the devices reserved for each pod, the last seen state of claims, and the next writes. It does no I/O and has no clock."""

from allocator.reservations import effects, events
from allocator.reservations.effects import FINALIZER
from allocator.reservations.ledger import Hold, Ledger, Reservation, Terms, pools_of
from allocator.reservations.overlaps import overlaps
from allocator.reservations.step import invalidate_lost_write, step
from allocator.reservations.sweep import Suspect, sweep
from allocator.reservations.table import ReservationState

__all__ = [
    "FINALIZER",
    "Hold",
    "Ledger",
    "Reservation",
    "ReservationState",
    "Suspect",
    "Terms",
    "effects",
    "events",
    "invalidate_lost_write",
    "overlaps",
    "pools_of",
    "step",
    "sweep",
]
