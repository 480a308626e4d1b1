"""What the claims and the pod of a reservation signal, read off from the ledger; and what a pod or an allocation amounts to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.reservations.ledger import PodFact, same_devices
from allocator.reservations.table import Signal, State
from dra.objects import claim_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from allocator.reservations.ledger import Hold, Ledger, Reservation
    from dra.objects import AllocationResult, Pod
    from dra.stock import PoolId


def pod_fact(pod: Pod) -> PodFact:
    """Take from a pod what matters. A pod that is being deleted and has no node will never have one."""
    namespace = pod.metadata.namespace or "default"
    claims = tuple(f"{namespace}/{name}" for name in claim_names(pod))
    return PodFact(pod.metadata.key, pod.spec.node_name, pod.is_done, claims)


def pools_of(allocation: AllocationResult | None) -> frozenset[PoolId]:
    """Name the pools in which an allocation holds something."""
    if allocation is None:
        return frozenset()
    results = allocation.devices.results
    return frozenset((result.driver, result.pool) for result in results if not result.admin_access)


def signals(ledger: Ledger, reservation: Reservation) -> Iterator[Signal]:
    """List what the facts signal, the weightiest first. What a state does not know, it ignores."""
    pod = reservation.pod
    fact = ledger.pods.get(pod)
    done = pod in ledger.gone or (fact is not None and fact.done)
    if done:
        yield Signal.DONE
    holds = [ledger.holds.get(uid) for uid in reservation.claims]
    present = [hold for hold in holds if hold is not None]
    whole = len(present) == len(holds)
    reserved = all(pod in hold.consumers for hold in present)
    held = whole and reserved
    # A pod that has ended is on its node no more. Said together, the two would send a reservation to and fro for ever.
    if fact is not None and fact.node and not done:
        if reservation.node in ("", fact.node):
            if held:
                yield Signal.PLACED
        else:
            yield Signal.ASTRAY
    if not whole or any(_is_moot(hold, reservation) for hold in present):
        yield Signal.MOOT
    if held:
        yield Signal.HELD
    if any(hold.lost for hold in present):
        yield Signal.UNKNOWN
    else:
        yield Signal.KNOWN
    if whole and all(hold.claim.status.allocation is not None for hold in present):
        yield Signal.ALLOCATED
    waited_for = any(hold.unsettled for hold in present)
    listed = any(pod in hold.consumers for hold in present)
    if reservation.started or not (waited_for or listed):
        yield Signal.CLEAN


def _is_moot(hold: Hold, reservation: Reservation) -> bool:
    """Say whether a claim cannot become, or is not any more, what a reservation needs."""
    claim, pod = hold.claim, reservation.pod
    reserved = pod in hold.consumers
    if reservation.state in (State.RESERVED, State.BINDING) and not reserved:
        return True
    if claim.metadata.deletion_timestamp and not reserved:
        return True
    if hold.intent is None:
        return True
    allocation = claim.status.allocation
    return allocation is not None and not same_devices(allocation, hold.intent)
