"""The sweep: a stale reservation or allocation is a suspect at first, and is reported and repaired if the next sweep finds it again."""

from msgspec.structs import replace

from allocator.reservations import Ledger, step, sweep
from allocator.reservations.effects import PatchReservedFor, Unallocate
from allocator.reservations.events import BecameLeader, ClaimSeen, PodSeen
from dra.objects import ResourceClaimConsumerReference
from tests.allocator.reservations.server import FINALIZER, claim, granted, pod


def reserved(name, *pods):
    unallocated = claim(name, finalizers=[FINALIZER])
    consumers = tuple(ResourceClaimConsumerReference(resource="pods", name=uid, uid=uid) for uid in pods)
    return replace(unallocated, status=replace(unallocated.status, allocation=granted("d0"), reserved_for=consumers))


def ledger(*events):
    new_ledger = Ledger()
    for event in (*events, BecameLeader()):
        step(new_ledger, event, 0)
    return new_ledger


def test_a_reservation_of_a_vanished_pod_ends_when_seen_twice():
    stored = reserved("c", "a")
    book = ledger(ClaimSeen(stored))
    first = sweep(book, {"b"})
    assert (first.sentences, first.effects) == ((), ())
    second = sweep(book, {"b"}, first.suspects)
    assert second.sentences == ("claim team/c is reserved for pod a, which no longer exists",)
    assert second.effects == (Unallocate(stored),)


def test_a_deleted_pod_is_removed_from_a_shared_claim():
    stored = reserved("c", "a", "b")
    book = ledger(ClaimSeen(stored))
    first = sweep(book, {"b"})
    assert sweep(book, {"b"}, first.suspects).effects == (PatchReservedFor(stored, stored.status.reserved_for[1:]),)


def test_a_pod_unknown_to_the_cache_is_not_swept():
    book = ledger(ClaimSeen(reserved("c", "a")))
    first = sweep(book, set())
    assert sweep(book, {"a"}, first.suspects).effects == ()


def test_a_pod_that_the_ledger_knows_is_not_a_ghost():
    book = ledger(ClaimSeen(reserved("c", "a")), PodSeen(pod("a", "c")))
    assert sweep(book, set()).suspects == frozenset()


def test_other_consumers_and_advance_allocations_are_left_alone():
    other = ResourceClaimConsumerReference(api_group="x", resource="groups", name="g", uid="g")
    stored = reserved("c")
    group = replace(stored, status=replace(stored.status, reserved_for=(other,)))
    assert sweep(ledger(ClaimSeen(group)), set()).suspects == frozenset()
    assert sweep(ledger(ClaimSeen(reserved("e"))), set()).suspects == frozenset()


def test_a_sweep_on_a_follower_has_no_effects():
    book = replace(ledger(ClaimSeen(reserved("c", "a"))), leading=False)
    first = sweep(book, set())
    assert len(first.suspects) == 1
    assert sweep(book, set(), first.suspects).effects == ()
