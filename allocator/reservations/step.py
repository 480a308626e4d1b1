"""One step of the ledger, in four stages:

    handle          record the event as facts about claims and pods; events of callers send signals
    apply_facts     derive signals from the facts; signals move reservations along `TABLE`
    write_claims    compare each claim with what its reservations need; the difference becomes a write
    update_overlay  pass the intended claims to decisions, and record which pools and namespaces have changed

Only `handle` sees events, and only `write_claims` creates writes. So reservations and writes do not depend on which event brought a fact,
how late, or how often. If a step raises, the ledger is unchanged. The numbered rules are those of `allocator.reservations.table`.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from msgspec.structs import replace

from allocator.reservations.effects import (
    FINALIZER,
    Declined,
    Dropped,
    Exceeded,
    Freed,
    OverlayClaim,
    PatchAllocation,
    PatchFinalizer,
    PatchReservedFor,
    PodEvent,
    Ready,
    Requeue,
    Reread,
    RereadPod,
    Unallocate,
)
from allocator.reservations.events import (
    Assume,
    BecameFollower,
    BecameLeader,
    ClaimGone,
    ClaimRead,
    ClaimSeen,
    Commit,
    CommitConfirmed,
    Conflicted,
    Denied,
    Lost,
    Overlapped,
    PodGone,
    PodRead,
    PodSeen,
    TakeBack,
    Tick,
    Unreserve,
    Written,
)
from allocator.reservations.ledger import (
    FORGOTTEN,
    MAX_CHANGED,
    MAX_CONSUMERS,
    Busy,
    Ledger,
    PodFact,
    Reservation,
    hold_of,
    pools_of,
    same_devices,
    with_consumers,
)
from allocator.reservations.table import TABLE, ReservationState, Signal
from dra.objects import claim_keys, is_news, node_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allocator.reservations.effects import ClaimWrite, Effect
    from allocator.reservations.events import Event
    from allocator.reservations.ledger import Hold
    from dra.objects import Pod, ResourceClaim
    from dra.stock import PoolId

V = TypeVar("V")

# From the least to the most advanced state: `yield_order` compares the positions.
_BEFORE_BOUND = (
    ReservationState.ASSUMED,
    ReservationState.COMMITTING,
    ReservationState.COMMITTED,
    ReservationState.DOUBT,
    ReservationState.RESERVED,
    ReservationState.BINDING,
)
_WHY = {
    Signal.UNRESERVE: "its scheduler released it",
    Signal.UNUSABLE: "its devices cannot be used",
    Signal.EXPIRED: "its devices were reserved for too long without being used",
    Signal.MOOT: "a claim was deleted or changed meanwhile",
    Signal.DENIED: "a claim cannot be written",
    Signal.CONTESTED: "another claim holds the same devices; this pod was not bound yet, so it gave them up",
    Signal.ASTRAY: "it was bound to another node",
    Signal.DONE: "it is finished or gone",
    Signal.FOLLOWED: "another replica leads",
}
# Limit for the transitions of a reservation in one step, so that contradictory facts cannot cause an endless loop.
MAX_MOVES = 2 * len(ReservationState)
_OF_THE_POD = {Signal.DONE}  # signals that do not depend on claims
_SILENT = (
    Signal.UNRESERVE,
    Signal.DONE,
    Signal.FOLLOWED,
)  # signals that release a reservation without an event about the pod
_BEING_WRITTEN = (ReservationState.COMMITTING, ReservationState.COMMITTED, ReservationState.DOUBT)


def step(
    ledger: Ledger,
    event: Event,
    now: float,
    table: Mapping[ReservationState, Mapping[Signal, ReservationState]] = TABLE,
) -> tuple[Effect, ...]:
    """Apply one event to the ledger and return the effects. `now` is a monotonic time."""
    transition = _Transition(ledger, now, table)
    try:
        transition.handle(event)
        transition.apply_facts()
        transition.write_claims()
        transition.update_overlay()
    except BaseException:
        transition.undo_changes()
        raise
    return tuple(transition.effects)


class _Transition:
    """The work of one step."""

    def __init__(
        self, ledger: Ledger, now: float, table: Mapping[ReservationState, Mapping[Signal, ReservationState]]
    ) -> None:
        self.ledger = ledger
        self.now = now
        self.table = table
        self.effects: list[Effect] = []
        self.pods: set[str] = set()  # uids: the pod or its reservation may have changed
        self.claims: set[str] = set()  # uids: the hold or its reservations may have changed
        self.former: dict[str, Hold | None] = {}  # by uid: each changed hold as it was before the step
        self.leading_and_generation = ledger.leading, ledger.generation
        self.journal: list[tuple[dict[str, Any], str, Any]] = []  # old entries of mappings, for `undo_changes`

    def change(self, mapping: dict[str, V], key: str, value: V | None) -> None:
        """Set an entry of a mapping of the ledger; None removes it."""
        self.journal.append((mapping, key, mapping.get(key)))
        if value is None:
            mapping.pop(key, None)
        else:
            mapping[key] = value

    def undo_changes(self) -> None:
        """Restore the ledger as it was before the step."""
        self.ledger.leading, self.ledger.generation = self.leading_and_generation
        for mapping, key, value in reversed(self.journal):
            if value is None:
                mapping.pop(key, None)
            else:
                mapping[key] = value

    # ---- handle: an event becomes facts

    def handle(self, event: Event) -> None:
        match event:
            case Assume():
                self.assume(event)
            case Commit(token):
                self.commit(token)
            case Unreserve(token):
                self.unreserve(token)
            case CommitConfirmed(token):
                self.signal(self.ledger.tokens.get(token, ""), Signal.CONFIRMED)
            case TakeBack(pod, claims, sentence):
                self.take_back(pod, claims, sentence)
            case Written(version, claim):
                if self.finish_write(claim.metadata.uid, version):
                    self.forget_refusals(claim.metadata.uid)
                self.see_claim(claim)
            case Conflicted(uid, version):
                if self.finish_write(uid, version):
                    self.reread_claim(uid)
            case Denied(uid, version, sentence):
                if self.finish_write(uid, version):
                    self.deny_write(uid, sentence)
            case Lost(uid, version):
                self.lose_write(uid, version)
            case ClaimSeen(claim):
                self.see_claim(claim, from_informer=True)
            case ClaimRead(claim):
                self.see_claim(claim)
                self.finish_reading(claim)
            case ClaimGone(key, uid):
                self.forget_claim(key, uid)
            case PodSeen(pod):
                if pod.metadata.uid not in self.ledger.deleted:
                    self.update_pod(pod.metadata.uid, pod_fact(pod))
            case PodRead(pod):
                self.read_pod(pod)
            case PodGone(uid):
                self.forget_pod(uid)
            case Overlapped(claims):
                self.resolve_overlap(claims)
            case Tick():
                self.tick()
            case BecameLeader():
                self.become_leader()
            case BecameFollower():
                self.become_follower()
            case _:
                assert_never(event)

    def assume(self, event: Assume) -> None:
        pod = event.pod.metadata.uid
        old = self.ledger.reservations.get(pod)
        if old is not None and old.state in _BEFORE_BOUND:
            is_repeated = old.token == event.token and old.node == event.node
            if is_repeated:
                return
        if objection := self.objection(event, old):
            self.effects.append(Declined(event.token, objection))
            return
        for line in event.quota:
            if line.exceeded:
                self.effects.append(Exceeded(event.token, line))
                return
        claims = tuple(part.claim.metadata.uid for part in event.parts)
        if old is not None and old.state in (ReservationState.ASSUMED, ReservationState.BOUND):
            self.remove_reservation(old)
            old = None
        if old is not None and set(old.claims) != set(claims):  # the pod's status names other claims than before
            self.end_reservation(old, Signal.MOOT)
            self.effects.append(Declined(event.token, "the pod's former claims are being released"))
            return
        new_reservation = Reservation(event.token, pod, event.pod.metadata.key, event.node, claims, started=event.bound)
        if old is not None:  # RESERVED or BINDING: the new reservation keeps the state
            self.change(self.ledger.tokens, old.token, None)
            new_reservation = replace(new_reservation, state=old.state)
        self.change(self.ledger.tokens, event.token, pod)
        self.put_reservation(new_reservation)
        self.update_pod(pod, pod_fact(event.pod))
        reserved = True
        for part in event.parts:
            uid = part.claim.metadata.uid
            if uid not in self.ledger.holds:
                self.see_claim(part.claim)
            hold = self.ledger.holds[uid]
            intended = self.ledger.as_intended(hold)
            intent = intended.status.allocation or part.allocation
            users = hold.users | {pod}
            self.put_hold(replace(hold, intent=intent, users=users))
            if pod not in hold.consumers:
                reserved = False
        signal = Signal.RETRY if reserved else Signal.ASSUME
        self.signal(pod, signal)

    def objection(self, event: Assume, old: Reservation | None) -> str:
        """Return why an `Assume` is declined; "" if it is accepted."""
        ledger = self.ledger
        if not ledger.leading:
            return "another replica leads"
        fact = ledger.pods.get(event.pod.metadata.uid)
        expected_node = event.node if event.bound else ""
        if event.pod.metadata.uid in ledger.deleted or (fact is not None and (fact.done or fact.node != expected_node)):
            return "the pod is bound, finished or gone"
        replaceable = (
            (ReservationState.BOUND,)
            if event.bound
            else (ReservationState.ASSUMED, ReservationState.RESERVED, ReservationState.BINDING)
        )
        if old is not None and old.state not in replaceable:
            return f"the pod's reservation is {old.state}"
        for part in event.parts:
            objection = self.objection_to_claim(part.claim, part.allocation is None, event.pod.metadata.uid)
            if objection:
                return f"claim {part.claim.metadata.key} {objection}"
            for pool in pools_of(part.allocation):
                if ledger.changed_at("/".join(pool)) > event.generation:
                    return f"pool {pool[1]} of {pool[0]} has changed since the decision"
        namespace = event.pod.metadata.namespace or "default"
        if event.quota and ledger.changed_at(namespace) > event.generation:
            return f"the usage of namespace {namespace} has changed since the decision"
        return ""

    def objection_to_claim(self, claim: ResourceClaim, reserve_only: bool, pod: str) -> str:
        ledger = self.ledger
        uid = claim.metadata.uid
        if uid in ledger.deleted:
            return "is gone"
        hold = ledger.holds.get(uid) or hold_of(claim)
        latest = hold.claim
        if latest.metadata.deletion_timestamp and pod not in hold.consumers:
            return "is being deleted"
        if hold.unsettled and not ledger.needs(hold):
            return "is being released"
        if hold.refusal:
            return f"cannot be written for now: {hold.refusal}"
        intended = ledger.as_intended(hold).status.allocation
        if reserve_only != (intended is not None):
            return "was allocated meanwhile" if intended else "is not allocated any more"
        consumers = hold.consumers | hold.users | {pod}
        if len(consumers) > MAX_CONSUMERS:
            return "already has the maximum number of pods"
        return ""

    def commit(self, token: str) -> None:
        reservation = self.ledger.reservations.get(self.ledger.tokens.get(token, ""))
        if reservation is None:
            unknown = "the reservation is not known"
            self.effects.append(Dropped(token, "", unknown))
            return
        pod = reservation.pod
        if not self.ledger.leading:
            self.effects.append(Dropped(token, pod, _WHY[Signal.FOLLOWED]))
            return
        if reservation.state in (ReservationState.RESERVED, ReservationState.BINDING):
            if not reservation.planned_end:  # the scheduler still waits for devices to become ready
                until = self.now + self.ledger.terms.reserved
                self.put_reservation(replace(reservation, until=until))
            self.effects.append(Ready(token, pod, reservation.node))
            return
        if reservation.state is ReservationState.BOUND:
            self.effects.append(Ready(token, pod, reservation.node))
            return
        if reservation.state is ReservationState.RELEASED:
            self.effects.append(Dropped(token, pod, reservation.sentence))
            return
        until = self.now + self.ledger.terms.committing
        self.put_reservation(replace(reservation, awaited=True, until=until))
        self.signal(pod, Signal.COMMIT)

    def see_claim(self, claim: ResourceClaim, *, from_informer: bool = False) -> None:
        """Record an observed claim, unless a later version of it is known."""
        uid = claim.metadata.uid
        version = claim.metadata.resource_version
        if uid in self.ledger.deleted:
            return
        key = claim.metadata.key
        former = self.ledger.keys.get(key)
        if former is not None and former != uid:
            former_hold = self.ledger.holds[former]
            if not is_news(version, former_hold.last_version):
                return
            self.forget_claim(key, former)
            former = None
        if former is None:
            self.change(self.ledger.keys, key, uid)
        hold = self.ledger.holds.get(uid) or hold_of(claim)
        if from_informer and (not hold.informer_version or is_news(version, hold.informer_version)):
            hold = replace(hold, informer_version=version)
        known_version = hold.claim.metadata.resource_version
        if version != known_version and is_news(version, known_version):
            # A new version settles every write that was conditioned on an earlier version: the write has landed, or never will.
            was_deallocated = hold.claim.status.allocation is not None and claim.status.allocation is None
            if claim.status.allocation is None:
                self.drop_rivals(hold)
            hold = replace(
                hold,
                claim=claim,
                consumers=frozenset(consumer.uid for consumer in claim.status.reserved_for),
                lost=False,
                is_ours=hold.is_ours and not was_deallocated,
                intent=None if was_deallocated else hold.intent,
                busy=Busy.IDLE if hold.busy is Busy.READING else hold.busy,
            )
        self.put_hold(hold)

    def finish_reading(self, claim: ResourceClaim) -> None:
        """End a read. If the claim still has the version of a lost write and can be allocated, the write may still land."""
        hold = self.ledger.holds.get(claim.metadata.uid)
        if hold is None or hold.busy is not Busy.READING:
            return
        if claim.metadata.resource_version != hold.last_version:
            return
        has_finalizer = FINALIZER in claim.metadata.finalizers
        allocatable = has_finalizer and claim.status.allocation is None
        lost = hold.lost and allocatable
        self.put_hold(replace(hold, busy=Busy.IDLE, lost=lost))

    def finish_write(self, uid: str, version: str) -> bool:
        """End a write; return whether it is the current one."""
        hold = self.ledger.holds.get(uid)
        if hold is None or hold.busy is not Busy.WRITING or hold.version != version:
            return False
        self.put_hold(replace(hold, busy=Busy.IDLE))
        return True

    def reread_claim(self, uid: str) -> None:
        """Read a claim, unless a version later than the one in our write is already known."""
        hold = self.ledger.holds[uid]
        if is_news(hold.last_version, hold.version):
            return
        self.put_hold(replace(hold, busy=Busy.READING, since=self.now))
        self.effects.append(Reread(hold.claim))

    def lose_write(self, uid: str, version: str) -> None:
        if self.finish_write(uid, version):
            hold = self.ledger.holds[uid]
            if not is_news(hold.last_version, version):
                self.put_hold(replace(hold, lost=True))
                self.reread_claim(uid)

    def deny_write(self, uid: str, sentence: str) -> None:
        """Send DENIED to the reservations of a claim that cannot be written.

        After the first rejection the claim may be written again at once, then after growing pauses.
        """
        hold = self.ledger.holds[uid]
        needing = list(self.ledger.needing(hold))
        if hold.refusals:
            pause = min(2.0 ** min(hold.refusals - 1, 16), self.ledger.terms.rest)
            hold = replace(hold, refusal=sentence, retry_at=self.now + pause)
        self.put_hold(replace(hold, refusals=hold.refusals + 1))
        for reservation in needing:
            self.signal(reservation.pod, Signal.DENIED, sentence)

    def forget_refusals(self, uid: str) -> None:
        """Forget that the API server rejected writes of a claim."""
        self.put_hold(replace(self.ledger.holds[uid], refusals=0, refusal="", retry_at=0))

    def forget_claim(self, key: str, uid: str) -> None:
        """Remove a claim, and remember its uid so that late events about the claim are ignored."""
        if uid in self.ledger.deleted:
            return
        ledger = self.ledger
        self.change(ledger.deleted, uid, self.now)
        if ledger.keys.get(key) == uid:
            self.change(ledger.keys, key, None)
        hold = ledger.holds.get(uid)
        if hold is None:
            return
        self.drop_rivals(hold)
        self.pods |= hold.users
        self.claims.add(uid)
        self.former.setdefault(uid, hold)
        self.change(ledger.holds, uid, None)

    def drop_rivals(self, hold: Hold) -> None:
        for rival in sorted(hold.rivals):
            other = self.ledger.holds.get(rival)
            if other is not None:
                other_rivals = other.rivals - {hold.uid}
                self.put_hold(replace(other, rivals=other_rivals))

    def update_pod(self, pod: str, fact: PodFact) -> None:
        """Record an observed pod. A finished pod stays finished, and a bound pod stays on its node."""
        old = self.ledger.pods.get(pod)
        if old is not None:
            node = old.node or fact.node
            done = old.done or fact.done
            claims = fact.claims or old.claims
            fact = replace(fact, node=node, done=done, claims=claims)
        if fact != old:
            self.change(self.ledger.pods, pod, fact)
        self.pods.add(pod)

    def forget_pod(self, pod: str) -> None:
        """Remove a pod, and remember its uid so that late events about the pod are ignored."""
        self.change(self.ledger.pods, pod, None)
        self.change(self.ledger.deleted, pod, self.now)
        self.pods.add(pod)

    def resolve_overlap(self, claims: frozenset[str]) -> None:
        """Choose one of the conflicting claims that can yield, and end its reservations.

        A claim that is not allocated yet is chosen first, then the claim whose pods are least advanced. If no claim can yield, record the
        claims as rivals and write an event about their pods.
        """
        holds: list[Hold] = []
        for uid in sorted(claims):
            hold = self.ledger.holds.get(uid)
            if hold is None or self.ledger.as_intended(hold).status.allocation is None:
                return  # the overlap has ended
            holds.append(hold)
        if any(hold.users and not self.ledger.needs(hold) for hold in holds):
            return  # one of the claims is being released
        candidates = [hold for hold in holds if self.can_yield(hold)]
        if candidates:
            yielding_claim = min(candidates, key=self.yield_order)
            for reservation in list(self.ledger.needing(yielding_claim)):
                if not reservation.planned_end:
                    self.end_reservation(reservation, Signal.CONTESTED)
            return
        for hold in holds:
            rivals = hold.rivals | claims - {hold.uid}
            if rivals == hold.rivals:
                continue
            self.put_hold(replace(hold, rivals=rivals))
            others = [other.claim.metadata.key for other in holds if other is not hold]
            name = hold.claim.metadata.key
            sentence = f"claim {name} holds the same devices as {', '.join(others)}; no pod of these claims can give the devices up"
            for user in self.ledger.needing(hold):
                self.effects.append(PodEvent(user.pod, sentence))

    def can_yield(self, hold: Hold) -> bool:
        """Return whether this allocator reserved the claim for all of its pods, and none of these pods has started."""
        users = list(self.ledger.needing(hold))
        strangers = hold.consumers - {user.pod for user in users}
        return bool(users) and not strangers and all(user.state in _BEFORE_BOUND for user in users)

    def yield_order(self, hold: Hold) -> tuple[bool, int, str]:
        most_advanced = max(_BEFORE_BOUND.index(user.state) for user in self.ledger.needing(hold))
        return hold.claim.status.allocation is not None, most_advanced, hold.uid

    def tick(self) -> None:
        now = self.now
        terms = self.ledger.terms
        for uid in [uid for uid, went in self.ledger.deleted.items() if now - went >= terms.memory]:
            self.change(self.ledger.deleted, uid, None)
        for uid, hold in self.ledger.holds.items():
            if now - hold.since < terms.answer:
                continue
            if hold.busy is Busy.WRITING:
                self.lose_write(uid, hold.version)
            elif hold.busy is Busy.READING:
                self.reread_claim(uid)
        if not self.ledger.leading:
            return
        self.retry_refused_writes()
        for reservation in list(self.ledger.reservations.values()):
            if now >= reservation.until:
                self.end_reservation(reservation, Signal.EXPIRED)

    def retry_refused_writes(self) -> None:
        """Allow writes to claims again when the pause after a rejection is over, and requeue the pods of these claims."""
        retried_keys: set[str] = set()
        for hold in self.ledger.holds.values():
            if hold.refusal and self.now >= hold.retry_at:
                self.put_hold(replace(hold, refusal=""))
                retried_keys.add(hold.claim.metadata.key)
        if not retried_keys:
            return
        facts = self.ledger.pods
        waiting_pods = (pod for pod in facts if not retried_keys.isdisjoint(facts[pod].claims) and not facts[pod].node)
        self.effects.append(Requeue(frozenset(waiting_pods)))

    def end_reservation(self, reservation: Reservation, signal: Signal) -> None:
        """End a reservation; if its pod may be bound by now, read the pod first (rule 4)."""
        pod = reservation.pod
        if reservation.state is not ReservationState.BINDING:
            self.signal(pod, signal)
            return
        until = self.now + self.ledger.terms.answer
        planned_end = reservation.planned_end or signal
        self.put_reservation(replace(reservation, until=until, planned_end=planned_end))
        self.effects.append(RereadPod(pod, reservation.name))

    def read_pod(self, pod: Pod) -> None:
        """Record a pod that was read; if the pod is not bound, end its reservation as planned in `planned_end`."""
        uid = pod.metadata.uid
        if uid in self.ledger.deleted:
            return
        self.update_pod(uid, pod_fact(pod))
        reservation = self.ledger.reservations.get(uid)
        if reservation is not None and reservation.planned_end and not self.ledger.pods[uid].node:
            self.signal(uid, Signal(reservation.planned_end))

    def become_leader(self) -> None:
        """Derive all reservations except BOUND ones from claims and pods. Keep the holds, which record writes that may still land."""
        if self.ledger.leading:
            return
        self.ledger.leading = True
        for uid, hold in self.ledger.holds.items():
            if hold.refusals:
                self.forget_refusals(uid)
        bound: set[str] = set()
        for reservation in list(self.ledger.reservations.values()):
            if reservation.state is ReservationState.BOUND:
                bound.add(reservation.pod)
            else:
                self.remove_reservation(reservation)
        # BOUND reservations stay: only DONE changes them, and their claims need no write.
        self.pods.update(pod for pod in self.ledger.pods if pod not in bound)
        for uid, hold in self.ledger.holds.items():
            if hold.unsettled or not hold.users or not hold.users <= bound:
                self.claims.add(uid)

    def become_follower(self) -> None:
        if not self.ledger.leading:
            return
        self.ledger.leading = False
        for pod in sorted(self.ledger.reservations):
            self.signal(pod, Signal.FOLLOWED)

    # ---- apply_facts: facts become signals, signals move reservations

    def apply_facts(self) -> None:
        """Send the signals that facts imply, until no reservation changes any more."""
        waiting = deque(sorted(self.pods | self.affected_pods(self.claims)))
        moves_left = dict.fromkeys(waiting, MAX_MOVES)
        while waiting:
            pod = waiting.popleft()
            if not moves_left.setdefault(pod, MAX_MOVES):
                continue
            moves_left[pod] -= 1
            if pod not in self.ledger.reservations:
                self.find_reservation(pod)
            before = self.ledger.reservations.get(pod)
            if before is None:
                continue
            for signal in signals(self.ledger, before):
                self.signal(pod, signal)
                if self.ledger.reservations.get(pod) != before:
                    waiting.append(pod)
                    break

    def affected_pods(self, claims: set[str]) -> set[str]:
        """Return the pods that use one of the claims or are in its `reservedFor`, except pods whose state does not depend on claims."""
        users: set[str] = set()
        for uid in claims:
            hold = self.ledger.holds.get(uid)
            if hold is not None:
                users |= hold.users | hold.consumers
        reservations = self.ledger.reservations
        return {
            pod
            for pod in users
            if pod not in reservations or not self.table[reservations[pod].state].keys() <= _OF_THE_POD
        }

    def find_reservation(self, pod: str) -> None:
        """If claims are reserved for a pod that has no reservation in the ledger, add this reservation."""
        fact = self.ledger.pods.get(pod)
        if fact is None or fact.done:
            return
        reserved: list[Hold] = []
        for key in fact.claims:
            uid = self.ledger.keys.get(key, "")
            hold = self.ledger.holds.get(uid)
            if hold is not None and pod in hold.consumers:
                reserved.append(hold)
        if not reserved:
            return
        claims = tuple(hold.claim.metadata.uid for hold in reserved)
        node = fact.node
        for hold in reserved:
            node = node or node_of(hold.claim.status.allocation)
        self.put_reservation(Reservation("", pod, fact.name, node, claims))
        for hold in reserved:
            allocation = hold.claim.status.allocation
            users = hold.users | {pod}
            self.put_hold(replace(hold, intent=allocation, users=users, is_ours=True))
        self.signal(pod, Signal.FOUND)

    def unreserve(self, token: str) -> None:
        reservation = self.ledger.reservations.get(self.ledger.tokens.get(token, ""))
        if reservation is None:
            return
        self.shorten_binding(reservation, self.ledger.terms.grace)
        self.signal(reservation.pod, Signal.UNRESERVE)

    def take_back(self, pod: str, claims: tuple[str, ...], sentence: str) -> None:
        reservation = self.ledger.reservations.get(pod)
        if reservation is not None:
            self.shorten_binding(reservation, self.ledger.terms.unusable)
            self.signal(pod, Signal.UNUSABLE, sentence)
        for uid in claims:
            hold = self.ledger.holds.get(uid)
            if hold is not None and not hold.consumers and not self.ledger.needs(hold):
                self.put_hold(replace(hold, is_ours=True))

    def shorten_binding(self, reservation: Reservation, seconds: float) -> None:
        """Shorten the time of a reservation whose pod may be bound at any moment (rule 4)."""
        if reservation.state is ReservationState.BINDING:
            until = min(reservation.until, self.now + seconds)
            self.put_reservation(replace(reservation, until=until, awaited=False))

    def signal(self, pod: str, signal: Signal, sentence: str = "") -> None:
        """Apply a signal to a reservation as `TABLE` says, and add the effects of the transition."""
        old = self.ledger.reservations.get(pod)
        if old is None:
            return
        state = self.table[old.state].get(signal, old.state)
        if state is old.state and signal not in (Signal.ASSUME, Signal.RETRY):
            return
        terms = self.ledger.terms
        match state:
            case ReservationState.PENDING:
                self.remove_reservation(old)
                fact = self.ledger.pods.get(pod)
                is_refused = any(hold.refusal for hold in self.ledger.holds_of(old))
                if fact is not None and not fact.done and not fact.node and not is_refused:
                    self.effects.append(Requeue(frozenset((pod,))))
                return
            case ReservationState.ASSUMED:
                until = self.now + terms.assumed
                new = replace(old, state=state, until=until, awaited=False, planned_end="")
            case ReservationState.RESERVED | ReservationState.BINDING:
                seconds = terms.found if signal is Signal.FOUND else terms.reserved
                until = self.now + seconds
                new = replace(old, state=state, until=until, awaited=False, planned_end="")
                if old.awaited:
                    self.effects.append(Ready(old.token, pod, old.node))
            case ReservationState.BOUND:
                new = replace(old, state=state, until=inf, started=True, sentence="", planned_end="")
            case ReservationState.RELEASED:
                sentence = sentence or _WHY[signal]
                new = replace(old, state=state, until=inf, awaited=False, sentence=sentence, planned_end="")
                if old.token and not old.started:
                    self.effects.append(Dropped(old.token, pod, sentence))
                if signal not in _SILENT:
                    self.effects.append(PodEvent(pod, sentence))
            case _:
                new = replace(old, state=state)
        self.put_reservation(new)

    def put_reservation(self, reservation: Reservation) -> None:
        self.change(self.ledger.reservations, reservation.pod, reservation)
        self.pods.add(reservation.pod)
        self.claims.update(reservation.claims)

    def remove_reservation(self, reservation: Reservation) -> None:
        """Remove a reservation; the holds that it used stay."""
        self.change(self.ledger.reservations, reservation.pod, None)
        self.change(self.ledger.tokens, reservation.token, None)
        for hold in self.ledger.holds_of(reservation):
            self.put_hold(replace(hold, users=hold.users - {reservation.pod}))
        self.claims.update(reservation.claims)

    def put_hold(self, hold: Hold) -> None:
        uid = hold.claim.metadata.uid
        old = self.ledger.holds.get(uid)
        if hold != old:
            self.former.setdefault(uid, old)
            self.change(self.ledger.holds, uid, hold)
        self.claims.add(uid)

    # ---- write_claims and update_overlay

    def write_claims(self) -> None:
        if not self.ledger.leading:
            return
        for uid in sorted(self.claims):
            hold = self.ledger.holds.get(uid)
            next_write = self.next_write(hold) if hold is not None else None
            if hold is None or next_write is None:
                continue
            self.effects.append(next_write)
            is_ours = hold.is_ours or isinstance(next_write, PatchAllocation)
            version = hold.claim.metadata.resource_version
            self.put_hold(replace(hold, busy=Busy.WRITING, version=version, since=self.now, is_ours=is_ours))

    def next_write(self, hold: Hold) -> ClaimWrite | None:
        """Return the next write to a claim: the difference between what its reservations need and its last seen state.

        A claim has at most one write at a time, conditioned on the version that was seen (rules 1 and 2 of `allocator.reservations.table`).
        """
        if hold.busy or hold.refusal:
            return None
        claim = hold.claim
        to_add: list[Reservation] = []
        leaving: set[str] = set()
        is_needed = False
        for pod in sorted(hold.users):
            user = self.ledger.reservations[pod]
            if user.state is not ReservationState.RELEASED:
                is_needed = True
            elif not user.started:
                leaving.add(pod)
            if user.state in _BEING_WRITTEN and pod not in hold.consumers:
                to_add.append(user)
        consumers = claim.status.reserved_for
        staying = tuple(consumer for consumer in consumers if consumer.uid not in leaving)
        finalizers = claim.metadata.finalizers
        if to_add and not claim.metadata.deletion_timestamp:
            reserved_for = with_consumers(staying, to_add)
            if claim.status.allocation is not None:
                return PatchReservedFor(claim, reserved_for)
            if hold.intent is None:
                return None
            if FINALIZER not in finalizers:
                return PatchFinalizer(claim, (*finalizers, FINALIZER))
            return PatchAllocation(claim, hold.intent, reserved_for)
        if len(staying) < len(consumers):
            if is_needed and not staying and FINALIZER in finalizers:
                # The leaving pod stays in the list until a pod that needs the claim replaces it, or that pod leaves, too (rule 3).
                return None
            if staying or FINALIZER not in finalizers:
                return PatchReservedFor(claim, staying)
            return Unallocate(claim)
        if is_needed:
            return None
        if hold.is_ours and claim.status.allocation is not None and not staying:
            return Unallocate(claim)
        return invalidate_lost_write(claim) if hold.lost else None

    def update_overlay(self) -> None:
        """Emit `OverlayClaim` for claims whose intended state has changed, and `Freed` for pools in which devices were freed.

        Record the pools and namespaces whose allocations have changed.
        """
        ledger = self.ledger
        freed: set[PoolId] = set()
        changed: set[str] = set()
        for uid in sorted(self.claims):
            hold = ledger.holds.get(uid)
            idle = hold is not None and not (hold.lost or hold.busy)
            if hold is not None and idle and hold.intent is not None and not ledger.needs(hold):
                hold = replace(hold, intent=None)
                self.put_hold(hold)
            overlay = ledger.ahead.get(uid)
            former_hold = self.former.get(uid, hold)
            former_claim = overlay or (former_hold.claim if former_hold is not None else None)
            intended = ledger.as_intended(hold) if hold is not None else None
            is_current = hold is None or (intended is hold.claim and hold.informer_version == hold.last_version)
            ahead = None if is_current else intended
            if ahead != overlay:
                self.change(ledger.ahead, uid, ahead)
                self.effects.append(OverlayClaim(uid, ahead))
            claim = intended or former_claim
            former_allocation = None if former_claim is None else former_claim.status.allocation
            allocation = None if intended is None else intended.status.allocation
            if claim is None or former_allocation is allocation or same_devices(former_allocation, allocation):
                continue
            former_pools = pools_of(former_allocation)
            pools = pools_of(allocation)
            freed |= former_pools - pools
            changed.add(claim.metadata.namespace or "default")
            changed.update("/".join(pool) for pool in former_pools | pools)
        if freed:
            self.effects.append(Freed(frozenset(freed)))
        if changed:
            ledger.generation += 1
            if len(ledger.changed) >= MAX_CHANGED:
                for name in tuple(ledger.changed):
                    self.change(ledger.changed, name, None)
                self.change(ledger.changed, FORGOTTEN, ledger.generation)
            for name in changed:
                self.change(ledger.changed, name, ledger.generation)


def signals(ledger: Ledger, reservation: Reservation) -> list[Signal]:
    """Return the signals that facts imply, the most important first. States ignore signals that are not in their row of `TABLE`."""
    pod = reservation.pod
    fact = ledger.pods.get(pod)
    result: list[Signal] = []
    done = pod in ledger.deleted or (fact is not None and fact.done)
    if done:
        result.append(Signal.DONE)
    present = ledger.holds_of(reservation)
    has_all_holds = len(present) == len(reservation.claims)
    has_all = has_all_holds and all(pod in hold.consumers for hold in present)
    # DONE and PLACED together would move a reservation between RELEASED and BOUND forever, so a finished pod is not PLACED.
    if fact is not None and fact.node and not done:
        if reservation.node not in ("", fact.node):
            result.append(Signal.ASTRAY)
        elif has_all:
            result.append(Signal.PLACED)
    moot = not has_all_holds
    for hold in present:  # MOOT: the claim is not, and cannot become, what the reservation needs
        allocation = hold.claim.status.allocation
        must_list_pod = (
            reservation.state in (ReservationState.RESERVED, ReservationState.BINDING)
            or hold.claim.metadata.deletion_timestamp
        )
        moot = moot or (must_list_pod and pod not in hold.consumers) or hold.intent is None
        moot = moot or (allocation is not None and not same_devices(allocation, hold.intent))
    if moot:
        result.append(Signal.MOOT)
    if has_all:
        result.append(Signal.HELD)
    result.append(Signal.UNKNOWN if any(hold.lost for hold in present) else Signal.KNOWN)
    if has_all_holds and all(hold.claim.status.allocation is not None for hold in present):
        result.append(Signal.ALLOCATED)
    is_unsettled = any(hold.lost or hold.busy for hold in present)
    is_listed = any(pod in hold.consumers for hold in present)
    if reservation.started or not (is_unsettled or is_listed):
        result.append(Signal.CLEAN)
    return result


def pod_fact(pod: Pod) -> PodFact:
    """Return the facts about a pod. A pod that is being deleted and has no node is done, because it will never run."""
    return PodFact(pod.metadata.key, pod.spec.node_name, pod.is_done, tuple(claim_keys(pod)))


def invalidate_lost_write(claim: ResourceClaim) -> PatchFinalizer | None:
    """Return a write that changes the version of a claim, so that an allocation whose write has no answer can no longer land.

    Return None if no such allocation can land anyway.
    """
    if claim.status.allocation is not None or FINALIZER not in claim.metadata.finalizers:
        return None
    other_finalizers = tuple(name for name in claim.metadata.finalizers if name != FINALIZER)
    return PatchFinalizer(claim, other_finalizers)
