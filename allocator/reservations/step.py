"""One step of the ledger: an event is recorded as facts, facts become signals, signals move reservations along the table,
and what claims then lack becomes a write each.

Only the first of these knows events, only the last knows writes. So it does not matter which event brought a fact, or whether it
came late or twice: the same facts lead to the same reservations and the same writes.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from allocator.reservations.effects import (
    FINALIZER,
    Declined,
    Dropped,
    Exceeded,
    Freed,
    PatchAllocation,
    Ready,
    Reread,
    RereadPod,
    Tell,
    Wake,
)
from allocator.reservations.events import (
    Assume,
    ClaimGone,
    ClaimRead,
    ClaimSeen,
    Commit,
    Conflicted,
    Denied,
    Followed,
    Led,
    Lost,
    Overlapped,
    PodGone,
    PodRead,
    PodSeen,
    Tick,
    Unreserve,
    Written,
)
from allocator.reservations.facts import node_of, pod_fact, pools_of, signals
from allocator.reservations.ledger import (
    MAX_CONSUMERS,
    Busy,
    Hold,
    Ledger,
    Reservation,
    claim_key,
    newer,
    pod_key,
    same_devices,
)
from allocator.reservations.table import TABLE, Signal, State, after
from allocator.reservations.writes import next_write
from dra.objects import is_reserved_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from allocator.reservations.effects import Effect
    from allocator.reservations.events import Event
    from allocator.reservations.ledger import PodFact
    from dra.objects import Pod, ResourceClaim

_OPEN = (State.ASSUMED, State.COMMITTING, State.COMMITTED, State.DOUBT, State.RESERVED)
_WHY = {
    Signal.UNRESERVE: "its scheduler let go of it",
    Signal.EXPIRED: "its devices were reserved for too long without being used",
    Signal.MOOT: "a claim was deleted, or given something else, meanwhile",
    Signal.DENIED: "a claim cannot be written",
    Signal.CONTESTED: "somebody else was given the same devices; what was not started yet yields",
    Signal.ASTRAY: "it was bound to another node",
    Signal.DONE: "it is finished or gone",
    Signal.FOLLOWED: "another replica leads",
}
# One event moves a reservation by a few states. Facts that would send it to and fro must not hold the loop: it rests where it is.
MOST_MOVES = 2 * len(State)
_SILENT = (Signal.UNRESERVE, Signal.DONE, Signal.FOLLOWED)


def step(
    ledger: Ledger, event: Event, now: float, table: Mapping[State, Mapping[Signal, State]] = TABLE
) -> tuple[Ledger, tuple[Effect, ...]]:
    """Take one event in. `now` is any clock that does not go back."""
    turn = _Turn(ledger, now, table)
    turn.hear(event)
    turn.settle()
    turn.write()
    return turn.end(), tuple(turn.effects)


class _Turn:
    """A ledger being changed by one event. Lives for one step."""

    def __init__(self, ledger: Ledger, now: float, table: Mapping[State, Mapping[Signal, State]]) -> None:
        self.before = ledger
        self.ledger = ledger
        self.now = now
        self.table = table
        self.effects: list[Effect] = []
        self.pods: set[str] = set()  # whose facts may have changed
        self.claims: set[str] = set()

    # An event becomes facts.

    def hear(self, event: Event) -> None:
        match event:
            case Assume():
                self.assume(event)
            case Commit(token):
                self.commit(token)
            case Unreserve(token):
                self.signal_token(token, Signal.UNRESERVE)
            case Written(version, claim):
                self.outcome(claim.metadata.uid, version)
                self.see(claim)
            case Conflicted(uid, version):
                if self.outcome(uid, version):
                    self.look(uid)
            case Denied(uid, version, sentence):
                if self.outcome(uid, version):
                    self.deny(uid, sentence)
            case Lost(uid, version):
                self.lose(uid, version)
            case ClaimSeen(claim):
                self.see(claim, told=True)
            case ClaimRead(claim):
                self.see(claim)
                self.read(claim)
            case ClaimGone(key, uid):
                self.miss(key, uid)
            case PodSeen(pod):
                if pod.metadata.uid not in self.ledger.gone:
                    self.know(pod.metadata.uid, pod_fact(pod))
            case PodRead(pod):
                self.read_pod(pod)
            case PodGone(uid):
                self.forget_pod(uid)
            case Overlapped(claims):
                self.contest(claims)
            case Tick():
                self.tick()
            case Led():
                self.lead()
            case Followed():
                self.follow()
            case _:
                assert_never(event)

    def assume(self, event: Assume) -> None:
        pod = event.pod.metadata.uid
        old = self.ledger.reservations.get(pod)
        again = old is not None and (old.token, old.node) == (event.token, event.node)
        if again and old is not None and old.state in _OPEN:
            return
        refusal = self.refusal(event, old)
        if refusal is not None:
            self.effects.append(refusal)
            return
        if old is not None and old.state is State.ASSUMED:
            self.remove(old)
            old = None
        claims = tuple(part.claim.metadata.uid for part in event.parts)
        fresh = Reservation(event.token, pod, pod_key(event.pod), event.node, claims)
        if old is not None:  # reserved: it keeps its state, and what it has
            self.ledger = replace(self.ledger, tokens=self.ledger.tokens.without(old.token))
            fresh = replace(fresh, state=old.state)
        self.ledger = replace(self.ledger, tokens=self.ledger.tokens.with_(event.token, pod))
        self.put(fresh)
        self.know(pod, pod_fact(event.pod))
        for part in event.parts:
            if part.claim.metadata.uid not in self.ledger.holds:
                self.see(part.claim)
            hold = self.ledger.holds[part.claim.metadata.uid]
            meant = self.ledger.as_meant(hold).status.allocation or part.allocation
            self.hold(replace(hold, intent=meant, users=hold.users | {pod}))
        reserved = all(is_reserved_for(self.ledger.holds[uid].claim, pod) for uid in claims)
        self.signal(pod, Signal.RETRY if reserved else Signal.ASSUME)

    def refusal(self, event: Assume, old: Reservation | None) -> Declined | Exceeded | None:
        """Say why a decision cannot be taken up, if it cannot."""
        sentence = self.objection(event, old)
        if sentence:
            return Declined(event.token, sentence)
        for line in event.quota:
            if line.exceeded:
                return Exceeded(event.token, line)
        return None

    def objection(self, event: Assume, old: Reservation | None) -> str:
        ledger = self.ledger
        if not ledger.leading:
            return "another replica leads"
        fact = ledger.pods.get(event.pod.metadata.uid)
        if event.pod.metadata.uid in ledger.gone or (fact is not None and (fact.done or fact.node)):
            return "the pod is bound, finished or gone"
        if old is not None and old.state not in (State.ASSUMED, State.RESERVED):
            return f"the pod's reservation is {old.state}"
        for part in event.parts:
            objection = self.objection_to_claim(part.claim, part.allocation is None, event.pod.metadata.uid)
            if objection:
                return f"claim {claim_key(part.claim)} {objection}"
            for pool in pools_of(part.allocation):
                if ledger.changed.get("/".join(pool), 0) > event.basis:
                    return f"pool {pool[1]} of {pool[0]} has changed since"
        namespace = event.pod.metadata.namespace or "default"
        if event.quota and ledger.changed.get(namespace, 0) > event.basis:
            return f"what namespace {namespace} uses has changed since"
        return ""

    def objection_to_claim(self, claim: ResourceClaim, reserve_only: bool, pod: str) -> str:
        ledger = self.ledger
        uid = claim.metadata.uid
        if uid in ledger.gone:
            return "is gone"
        hold = ledger.holds.get(uid) or Hold(claim)
        if hold.claim.metadata.deletion_timestamp and not is_reserved_for(hold.claim, pod):
            return "is being deleted"
        if not ledger.needed(hold) and (hold.busy is not Busy.IDLE or hold.lost):
            return "is being released"
        meant = ledger.as_meant(hold).status.allocation
        if reserve_only != (meant is not None):
            return "was allocated meanwhile" if meant else "is not allocated any more"
        consumers = {consumer.uid for consumer in hold.claim.status.reserved_for} | hold.users | {pod}
        return "has no room for another pod" if len(consumers) > MAX_CONSUMERS else ""

    def commit(self, token: str) -> None:
        reservation = self.ledger.reservation(token)
        if reservation is None:
            self.effects.append(Dropped(token, "", "the reservation is not known; decide again"))
            return
        if not self.ledger.leading:
            self.effects.append(Dropped(token, reservation.pod, _WHY[Signal.FOLLOWED]))
            return
        if reservation.state in (State.RESERVED, State.BOUND):
            self.effects.append(Ready(token, reservation.pod, reservation.node))
            return
        if reservation.state is State.RELEASED:
            self.effects.append(Dropped(token, reservation.pod, reservation.sentence))
            return
        self.put(replace(reservation, asked=True, until=self.now + self.ledger.terms.committing))
        self.signal(reservation.pod, Signal.COMMIT)

    def see(self, claim: ResourceClaim, *, told: bool = False) -> None:
        """Take in a claim as somebody saw it, unless it is known later than that."""
        uid, version = claim.metadata.uid, claim.metadata.resource_version
        if uid in self.ledger.gone:
            return
        key = claim_key(claim)
        former = self.ledger.keys.get(key)
        if former is not None and former != uid:
            if not newer(version, self.ledger.holds[former].claim.metadata.resource_version):
                return
            self.miss(key, former)
        self.ledger = replace(self.ledger, keys=self.ledger.keys.with_(key, uid))
        hold = self.ledger.holds.get(uid) or Hold(claim)
        if told and (not hold.told or newer(version, hold.told)):
            hold = replace(hold, told=version)
        if newer(version, hold.claim.metadata.resource_version):
            hold = self.turned(hold, claim)
        self.hold(hold)

    def turned(self, hold: Hold, claim: ResourceClaim) -> Hold:
        """Answer with a claim at a later version, which settles every write that was conditioned on an earlier one."""
        taken_back = hold.claim.status.allocation is not None and claim.status.allocation is None
        if claim.status.allocation is None:
            self.no_rival(hold)
        return replace(
            hold,
            claim=claim,
            lost=False,
            ours=hold.ours and not taken_back,
            intent=None if taken_back else hold.intent,
            busy=Busy.IDLE if hold.busy is Busy.READING else hold.busy,
        )

    def read(self, claim: ResourceClaim) -> None:
        """Go on after a look that somebody took for us; what is not later than a lost write does not tell its outcome."""
        hold = self.ledger.holds.get(claim.metadata.uid)
        if hold is None or hold.busy is not Busy.READING:
            return
        if claim.metadata.resource_version != hold.claim.metadata.resource_version:
            return
        allocatable = claim.status.allocation is None and FINALIZER in claim.metadata.finalizers
        self.hold(replace(hold, busy=Busy.IDLE, lost=hold.lost and allocatable))

    def outcome(self, uid: str, version: str) -> bool:
        """Note that a write is over; say whether it is the one that is waited for."""
        hold = self.ledger.holds.get(uid)
        if hold is None or hold.busy is not Busy.WRITING or hold.version != version:
            return False
        self.hold(replace(hold, busy=Busy.IDLE))
        return True

    def look(self, uid: str) -> None:
        """Have a claim looked at, unless it is known later than what our write was conditioned on."""
        hold = self.ledger.holds[uid]
        if newer(hold.claim.metadata.resource_version, hold.version):
            return
        self.hold(replace(hold, busy=Busy.READING, since=self.now))
        self.effects.append(Reread(hold.claim))

    def lose(self, uid: str, version: str) -> None:
        if self.outcome(uid, version):
            hold = self.ledger.holds[uid]
            if not newer(hold.claim.metadata.resource_version, version):
                self.hold(replace(hold, lost=True))
                self.look(uid)

    def deny(self, uid: str, sentence: str) -> None:
        for reservation in list(self.ledger.needing(self.ledger.holds[uid])):
            self.signal(reservation.pod, Signal.DENIED, sentence)

    def miss(self, key: str, uid: str) -> None:
        """A claim is gone; its uid never comes back."""
        if uid in self.ledger.gone:
            return
        ledger = self.ledger
        self.ledger = replace(ledger, gone=ledger.gone.with_(uid, self.now))
        if ledger.keys.get(key) == uid:
            self.ledger = replace(self.ledger, keys=ledger.keys.without(key))
        hold = ledger.holds.get(uid)
        if hold is None:
            return
        self.no_rival(hold)
        self.pods |= hold.users
        self.claims.add(uid)
        self.ledger = replace(self.ledger, holds=self.ledger.holds.without(uid))

    def no_rival(self, hold: Hold) -> None:
        uid = hold.claim.metadata.uid
        for rival in sorted(hold.rivals):
            other = self.ledger.holds.get(rival)
            if other is not None:
                self.hold(replace(other, rivals=other.rivals - {uid}))

    def know(self, pod: str, fact: PodFact) -> None:
        """Take in what a pod says. It may be finished, and placed, but never again unfinished or elsewhere."""
        old = self.ledger.pods.get(pod)
        if old is not None:
            node, done, claims = old.node or fact.node, old.done or fact.done, fact.claims or old.claims
            fact = replace(fact, node=node, done=done, claims=claims)
        if fact != old:
            self.ledger = replace(self.ledger, pods=self.ledger.pods.with_(pod, fact))
        self.pods.add(pod)

    def forget_pod(self, pod: str) -> None:
        fact = self.ledger.pods.get(pod)
        if fact is not None:
            self.know(pod, replace(fact, done=True))
        gone = self.ledger.gone.with_(pod, self.now)
        self.ledger = replace(self.ledger, pods=self.ledger.pods.without(pod), gone=gone)
        self.signal(pod, Signal.DONE)

    def contest(self, claims: frozenset[str]) -> None:
        """Of claims that hold the same, the least advanced yields, if one can; else all of them are in doubt."""
        holds = [hold for uid in sorted(claims) if (hold := self.ledger.holds.get(uid)) is not None]
        if len(holds) < len(claims) or any(self.ledger.as_meant(hold).status.allocation is None for hold in holds):
            return  # old news
        yielding = [hold for hold in holds if hold.users and not self.ledger.needed(hold)]
        able = [hold for hold in holds if self.can_yield(hold)]
        if yielding:
            return
        if able:
            least = min(able, key=self.progress)
            for reservation in list(self.ledger.needing(least)):
                if not reservation.due:
                    self.end_it(reservation, Signal.CONTESTED)
            return
        for hold in holds:
            rivals = hold.rivals | claims - {hold.claim.metadata.uid}
            if rivals != hold.rivals:
                self.hold(replace(self.ledger.holds[hold.claim.metadata.uid], rivals=rivals))
                names = ", ".join(claim_key(other.claim) for other in holds if other is not hold)
                sentence = (
                    f"claim {claim_key(hold.claim)} holds what {names} holds too; neither is given to anybody else"
                )
                self.effects.extend(Tell(user.pod, sentence) for user in self.ledger.needing(hold))

    def can_yield(self, hold: Hold) -> bool:
        """Say whether everybody who uses a claim is ours and not started."""
        users = list(self.ledger.needing(hold))
        strangers = {consumer.uid for consumer in hold.claim.status.reserved_for} - {user.pod for user in users}
        return bool(users) and not strangers and all(user.state in _OPEN for user in users)

    def progress(self, hold: Hold) -> tuple[bool, int, str]:
        furthest = max(_OPEN.index(user.state) for user in self.ledger.needing(hold))
        return hold.claim.status.allocation is not None, furthest, hold.claim.metadata.uid

    def tick(self) -> None:
        terms = self.ledger.terms
        for uid, went in self.ledger.gone.items():
            if self.now - went >= terms.memory:
                self.ledger = replace(self.ledger, gone=self.ledger.gone.without(uid))
        for uid, hold in self.ledger.holds.items():
            if hold.busy is Busy.WRITING and self.now - hold.since >= terms.answer:
                self.lose(uid, hold.version)
            elif hold.busy is Busy.READING and self.now - hold.since >= terms.answer:
                self.look(uid)
        if self.ledger.leading:
            for reservation in self.ledger.reservations.values():
                if self.now >= reservation.until:
                    self.end_it(reservation, Signal.EXPIRED)

    def end_it(self, reservation: Reservation, signal: Signal) -> None:
        """End a reservation; one whose pod may be bound by now only after a look at the pod (rule 4)."""
        if reservation.state is not State.RESERVED:
            self.signal(reservation.pod, signal)
            return
        self.put(replace(reservation, until=self.now + self.ledger.terms.answer, due=reservation.due or signal))
        self.effects.append(RereadPod(reservation.pod, reservation.name))

    def read_pod(self, pod: Pod) -> None:
        """Take in a pod that was looked at; one that is not bound loses what was due to end."""
        uid = pod.metadata.uid
        if uid in self.ledger.gone:
            return
        self.know(uid, pod_fact(pod))
        reservation = self.ledger.reservations.get(uid)
        if reservation is not None and reservation.due and not self.ledger.pods[uid].node:
            self.signal(uid, Signal(reservation.due))

    def lead(self) -> None:
        """Begin afresh from claims and pods; what may still land is not forgotten."""
        if self.ledger.leading:
            return
        self.ledger = replace(self.ledger, leading=True)
        for reservation in self.ledger.reservations.values():
            if reservation.state is not State.BOUND:
                self.remove(reservation)
        self.pods.update(self.ledger.pods)
        self.claims.update(self.ledger.holds)

    def follow(self) -> None:
        if not self.ledger.leading:
            return
        self.ledger = replace(self.ledger, leading=False)
        for pod in self.ledger.reservations:
            self.signal(pod, Signal.FOLLOWED)

    # Facts become signals.

    def settle(self) -> None:
        """Read off the facts what they signal, until they signal nothing new."""
        waiting = sorted(self.pods | self.users_of(self.claims))
        left = dict.fromkeys(waiting, MOST_MOVES)
        while waiting:
            pod = waiting.pop(0)
            if not left.setdefault(pod, MOST_MOVES):
                continue
            left[pod] -= 1
            if pod not in self.ledger.reservations:
                self.find(pod)
            before = self.ledger.reservations.get(pod)
            if before is None:
                continue
            for signal in signals(self.ledger, before):
                self.signal(pod, signal)
                if self.ledger.reservations.get(pod) != before:
                    waiting.append(pod)
                    break

    def users_of(self, claims: set[str]) -> set[str]:
        """Name the pods that a claim matters to: those that use it, and those that it says it is reserved for."""
        users: set[str] = set()
        for uid in claims:
            hold = self.ledger.holds.get(uid)
            if hold is not None:
                users |= hold.users
                users.update(consumer.uid for consumer in hold.claim.status.reserved_for)
        return users

    def find(self, pod: str) -> None:
        """Find out from the claims alone that a pod has a reservation, though nobody here made it."""
        fact = self.ledger.pods.get(pod)
        if fact is None or fact.done:
            return
        reserved: list[Hold] = []
        for key in fact.claims:
            uid = self.ledger.keys.get(key, "")
            hold = self.ledger.holds.get(uid)
            if hold is not None and is_reserved_for(hold.claim, pod):
                reserved.append(hold)
        if not reserved:
            return
        claims = tuple(hold.claim.metadata.uid for hold in reserved)
        node = fact.node
        for hold in reserved:
            node = node or node_of(hold.claim.status.allocation)
        self.put(Reservation("", pod, fact.name, node, claims))
        for hold in reserved:
            allocation = hold.claim.status.allocation
            users = hold.users | {pod}
            self.hold(replace(hold, intent=allocation, users=users, ours=True))
        self.signal(pod, Signal.FOUND)

    def signal_token(self, token: str, signal: Signal) -> None:
        reservation = self.ledger.reservation(token)
        if reservation is None:
            return
        if signal is Signal.UNRESERVE and reservation.state is State.RESERVED:
            until = min(reservation.until, self.now + self.ledger.terms.grace)
            self.put(replace(reservation, until=until, asked=False))
        self.signal(reservation.pod, signal)

    def signal(self, pod: str, signal: Signal, sentence: str = "") -> None:
        """Move a reservation along the table."""
        old = self.ledger.reservations.get(pod)
        if old is None:
            return
        state = after(old.state, signal, self.table)
        if state is old.state and signal not in (Signal.ASSUME, Signal.RETRY):
            return
        terms = self.ledger.terms
        match state:
            case State.PENDING:
                self.remove(old)
                fact = self.ledger.pods.get(pod)
                if fact is not None and not fact.done and not fact.node:
                    self.effects.append(Wake(frozenset((pod,))))
                return
            case State.ASSUMED:
                new = replace(old, state=state, until=self.now + terms.assumed, asked=False, due="")
            case State.RESERVED:
                patience = terms.found if signal is Signal.FOUND else terms.reserved
                new = replace(old, state=state, until=self.now + patience, asked=False, due="")
                if old.asked:
                    self.effects.append(Ready(old.token, pod, old.node))
            case State.BOUND:
                new = replace(old, state=state, until=inf, started=True, sentence="", due="")
            case State.RELEASED:
                sentence = sentence or _WHY[signal]
                new = replace(old, state=state, until=inf, sentence=sentence, due="")
                if old.token and not old.started:
                    self.effects.append(Dropped(old.token, pod, sentence))
                if signal not in _SILENT:
                    self.effects.append(Tell(pod, sentence))
            case _:
                new = replace(old, state=state)
        self.put(new)

    def put(self, reservation: Reservation) -> None:
        reservations = self.ledger.reservations.with_(reservation.pod, reservation)
        self.ledger = replace(self.ledger, reservations=reservations)
        self.pods.add(reservation.pod)
        self.claims.update(reservation.claims)

    def remove(self, reservation: Reservation) -> None:
        """Forget a reservation; the holds it used stay."""
        self.ledger = replace(
            self.ledger,
            reservations=self.ledger.reservations.without(reservation.pod),
            tokens=self.ledger.tokens.without(reservation.token),
        )
        for uid in reservation.claims:
            hold = self.ledger.holds.get(uid)
            if hold is not None:
                self.hold(replace(hold, users=hold.users - {reservation.pod}))
        self.claims.update(reservation.claims)

    def hold(self, hold: Hold) -> None:
        uid = hold.claim.metadata.uid
        if hold != self.ledger.holds.get(uid):
            self.ledger = replace(self.ledger, holds=self.ledger.holds.with_(uid, hold))
        self.claims.add(uid)

    # What claims lack becomes writes; what they amount to becomes the overlay.

    def write(self) -> None:
        if not self.ledger.leading:
            return
        for uid in sorted(self.claims):
            hold = self.ledger.holds.get(uid)
            wanted = next_write(self.ledger, hold) if hold is not None else None
            if hold is None or wanted is None:
                continue
            self.effects.append(wanted)
            version = hold.claim.metadata.resource_version
            ours = hold.ours or isinstance(wanted, PatchAllocation)
            self.hold(replace(hold, busy=Busy.WRITING, version=version, since=self.now, ours=ours))

    def end(self) -> Ledger:
        """Bring the overlay up to date with what has changed, and note which pools and namespaces did."""
        generation = self.before.generation + 1
        freed: set[tuple[str, str]] = set()
        moved: set[str] = set()
        for uid in sorted(self.claims):
            hold = self.tidy(uid)
            old = self.before.holds.get(uid)
            was = self.before.as_meant(old) if old is not None else None
            meant = self.ledger.as_meant(hold) if hold is not None else None
            self.lay(uid, hold, meant)
            then = was.status.allocation if was is not None else None
            present = meant.status.allocation if meant is not None else None
            if same_devices(then, present):
                continue
            anyone = meant or was
            moved.add((anyone.metadata.namespace if anyone is not None else "") or "default")
            moved.update("/".join(pool) for pool in pools_of(then) | pools_of(present))
            freed |= pools_of(then) - pools_of(present) if present is not None else pools_of(then)
        if freed:
            self.effects.append(Freed(frozenset(freed)))
        changed = self.ledger.changed
        for name in sorted(moved):
            changed = changed.with_(name, generation)
        return replace(self.ledger, changed=changed, generation=generation if moved else self.before.generation)

    def tidy(self, uid: str) -> Hold | None:
        """Drop an intent that nobody has any more."""
        hold = self.ledger.holds.get(uid)
        if hold is None or hold.intent is None:
            return hold
        if hold.lost or hold.busy is not Busy.IDLE or self.ledger.needed(hold):
            return hold
        hold = replace(hold, intent=None)
        self.hold(hold)
        return hold

    def lay(self, uid: str, hold: Hold | None, meant: ResourceClaim | None) -> None:
        """Keep in the overlay what informers do not say yet."""
        ahead = self.ledger.ahead
        if hold is None or meant is None or (meant is hold.claim and hold.told == meant.metadata.resource_version):
            ahead = ahead.without(uid)
        else:
            ahead = ahead.with_(uid, meant)
        self.ledger = replace(self.ledger, ahead=ahead)
