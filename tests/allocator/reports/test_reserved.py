"""Reservations on a node whose allocations are not written to the API server yet."""

from msgspec.structs import replace

from allocator.reports import reserved_on
from allocator.reservations import Hold, Ledger, Reservation, ReservationState
from tests.allocator.reports.test_shares import claim_holding

WANTED = claim_holding("c", {"device": "d0"}, {"device": "d1", "adminAccess": True}, {"device": "d2", "shareID": "s"})
GIVEN = WANTED.status.allocation
BARE = replace(WANTED, status=replace(WANTED.status, allocation=None))


def ledger(hold, *, node="n", state=ReservationState.COMMITTING):
    mine = Reservation("t", "p", "team/p", node, ("c",), state)
    return Ledger(holds={"c": hold}, ahead={"c": WANTED}, reservations={"p": mine})


def test_an_unwritten_allocation_is_reserved_on_its_node():
    hold = Hold(BARE, intent=GIVEN, users=frozenset({"p", "forgotten"}))
    [reservation] = reserved_on(ledger(hold), "n")
    assert (reservation.namespace, reservation.claim, reservation.uid, reservation.in_doubt) == (
        "team",
        "c",
        "c",
        False,
    )
    assert [(device.device, device.share_id) for device in reservation.devices] == [("d0", ""), ("d2", "s")]
    assert list(reserved_on(ledger(hold), "m")) == []


def test_an_allocation_in_the_status_is_not_a_reservation():
    hold = Hold(WANTED, intent=GIVEN, users=frozenset({"p"}))
    assert list(reserved_on(ledger(hold), "n")) == []


def test_an_unanswered_write_is_reported_in_doubt():
    hold = Hold(BARE, intent=GIVEN, users=frozenset({"p"}))
    for state, lost, doubt in (
        (ReservationState.ASSUMED, False, False),
        (ReservationState.DOUBT, False, True),
        (ReservationState.RELEASED, True, True),
    ):
        [reservation] = reserved_on(ledger(replace(hold, lost=lost), state=state), "n")
        assert reservation.in_doubt is doubt
