"""The ledger of the bridge: what is held for which pod, what of it is written, and what has to be written next. Pure."""

from allocator.reservations import effects, events
from allocator.reservations.effects import FINALIZER
from allocator.reservations.ledger import Hold, Ledger, Reservation, Terms, pools_of
from allocator.reservations.overlaps import overlaps
from allocator.reservations.step import fence, step
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
    "fence",
    "overlaps",
    "pools_of",
    "step",
    "sweep",
]
