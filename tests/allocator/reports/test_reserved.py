"""The reservations on a node: allocations that are not written to the API server yet."""

from msgspec.structs import replace

from allocator.reports import reserved_on
from allocator.reservations import Hold, Ledger, Reservation, ReservationState
from tests.allocator.reports.test_shares import claim_holding

ALLOCATED_CLAIM = claim_holding(
    "c", {"device": "d0"}, {"device": "d1", "adminAccess": True}, {"device": "d2", "shareID": "s"}
)
ALLOCATION = ALLOCATED_CLAIM.status.allocation
CLAIM_WITHOUT_ALLOCATION = replace(ALLOCATED_CLAIM, status=replace(ALLOCATED_CLAIM.status, allocation=None))


def ledger_with(hold, *, node="n", state=ReservationState.COMMITTING):
    reservation = Reservation("t", "p", "team/p", node, ("c",), state)
    return Ledger(holds={"c": hold}, ahead={"c": ALLOCATED_CLAIM}, reservations={"p": reservation})


def test_an_unwritten_allocation_is_reserved_on_its_node():
    hold = Hold(CLAIM_WITHOUT_ALLOCATION, intent=ALLOCATION, users=frozenset({"p", "forgotten"}))
    [reservation] = reserved_on(ledger_with(hold), "n")
    assert (reservation.namespace, reservation.claim, reservation.uid, reservation.in_doubt) == (
        "team",
        "c",
        "c",
        False,
    )
    assert [(device.device, device.share_id) for device in reservation.devices] == [("d0", ""), ("d2", "s")]
    assert list(reserved_on(ledger_with(hold), "m")) == []


def test_an_allocation_that_is_written_is_no_longer_a_reservation():
    hold = Hold(ALLOCATED_CLAIM, intent=ALLOCATION, users=frozenset({"p"}))
    assert list(reserved_on(ledger_with(hold), "n")) == []


def test_a_reservation_is_in_doubt_while_its_write_is_unanswered():
    hold = Hold(CLAIM_WITHOUT_ALLOCATION, intent=ALLOCATION, users=frozenset({"p"}))
    for state, is_lost, is_in_doubt in (
        (ReservationState.ASSUMED, False, False),
        (ReservationState.DOUBT, False, True),
        (ReservationState.RELEASED, True, True),
    ):
        [reservation] = reserved_on(ledger_with(replace(hold, lost=is_lost), state=state), "n")
        assert reservation.in_doubt is is_in_doubt
