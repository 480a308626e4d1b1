"""The sweep, which repairs what any program left behind: if two sweeps in succession find a stale reservation, it is removed."""

from msgspec.structs import replace

from allocator.reservations import Ledger, step, sweep
from allocator.reservations.effects import PatchReservedFor, Unallocate
from allocator.reservations.events import BecameLeader, ClaimSeen, PodSeen
from dra.objects import ResourceClaimConsumerReference
from tests.allocator.reservations.server import FINALIZER, allocation_of, claim, pod


def reserved_claim(name, *pods):
    unallocated = claim(name, finalizers=[FINALIZER])
    consumers = tuple(ResourceClaimConsumerReference(resource="pods", name=uid, uid=uid) for uid in pods)
    return replace(
        unallocated, status=replace(unallocated.status, allocation=allocation_of("d0"), reserved_for=consumers)
    )


def ledger_after(*events):
    new_ledger = Ledger()
    for event in (*events, BecameLeader()):
        step(new_ledger, event, 0)
    return new_ledger


def test_a_vanished_pods_reservation_ends_with_the_second_sweep():
    stored = reserved_claim("c", "a")
    ledger = ledger_after(ClaimSeen(stored))
    first_sweep = sweep(ledger, {"b"})
    assert (first_sweep.sentences, first_sweep.effects) == ((), ())
    second_sweep = sweep(ledger, {"b"}, first_sweep.suspects)
    assert second_sweep.sentences == ("claim team/c is reserved for pod a, which has ended or no longer exists",)
    assert second_sweep.effects == (Unallocate(stored),)


def test_a_deleted_pod_is_removed_from_a_shared_claim():
    stored = reserved_claim("c", "a", "b")
    ledger = ledger_after(ClaimSeen(stored))
    first_sweep = sweep(ledger, {"b"})
    assert sweep(ledger, {"b"}, first_sweep.suspects).effects == (
        PatchReservedFor(stored, stored.status.reserved_for[1:]),
    )


def test_a_pod_that_exists_at_the_second_sweep_stays_reserved():
    ledger = ledger_after(ClaimSeen(reserved_claim("c", "a")))
    first_sweep = sweep(ledger, set())
    assert sweep(ledger, {"a"}, first_sweep.suspects).effects == ()


def test_a_pod_that_the_ledger_knows_is_no_suspect():
    ledger = ledger_after(ClaimSeen(reserved_claim("c", "a")), PodSeen(pod("a", "c")))
    assert sweep(ledger, set()).suspects == frozenset()


def test_consumers_other_than_pods_and_unreserved_allocations_stay():
    group_consumer = ResourceClaimConsumerReference(api_group="x", resource="groups", name="g", uid="g")
    stored = reserved_claim("c")
    claim_of_group = replace(stored, status=replace(stored.status, reserved_for=(group_consumer,)))
    assert sweep(ledger_after(ClaimSeen(claim_of_group)), set()).suspects == frozenset()
    assert sweep(ledger_after(ClaimSeen(reserved_claim("e"))), set()).suspects == frozenset()


def test_a_sweep_on_a_follower_has_no_effects():
    ledger = replace(ledger_after(ClaimSeen(reserved_claim("c", "a"))), leading=False)
    first_sweep = sweep(ledger, set())
    assert len(first_sweep.suspects) == 1
    assert sweep(ledger, set(), first_sweep.suspects).effects == ()
