"""The model of two replicas: the API server, their ledgers, and the messages between them."""

from allocator.reservations import Ledger, ReservationState, Terms, step
from allocator.reservations.effects import Ready, Reread, RereadPod
from allocator.reservations.events import (
    Assume,
    BecameFollower,
    BecameLeader,
    ClaimGone,
    ClaimPart,
    ClaimRead,
    ClaimSeen,
    Commit,
    CommitConfirmed,
    Denied,
    Lost,
    PodGone,
    PodRead,
    PodSeen,
    TakeBack,
    Tick,
    Unreserve,
)
from allocator.reservations.table import TABLE
from dra.objects import is_reserved_for
from dra.policy import QuotaLine
from tests.allocator.reservations.scenes import NODE, Broken
from tests.allocator.reservations.server import WRITES, Server, copied, pod

LONG_TIME = 10_000.0  # seconds; longer than every time limit of the ledger


class World:
    """One state of the model. `explore` copies it before a move changes it."""

    def __init__(self, scene, table=TABLE):
        self.scene, self.table = scene, table
        self.server = Server(*scene.claims.values())
        # The ledgers never forget the uid of a deleted object.
        self.ledgers = [Ledger(terms=Terms(memory=1e18)) for _ in range(2)]
        self.clocks = [0.0, 0.0]
        self.holder = 0  # the replica in the Lease
        self.alive = dict.fromkeys(scene.pods, True)
        self.placed = dict.fromkeys(scene.pods, False)
        self.decided = {}  # (replica, pod) → parts, generation, quota: not reserved yet
        self.in_flight = []  # (replica, write): without an answer yet
        self.late_writes = []  # (replica, write): the sender got no answer, but the write may still land
        self.claims_to_read = [set(), set()]  # uids, by replica: the effects `Reread`
        self.pods_to_read = [set(), set()]  # names, by replica: the effects `RereadPod`
        self.ready = set()  # (replica, pod) that may be bound
        self.binding = set()  # pods whose binding is under way
        # How often these may still happen.
        self.faults, self.lease_moves, self.deaths = scene.faults, scene.lease_moves, scene.deaths
        for replica in range(2):
            for claim in scene.claims.values():
                self.apply(replica, ClaimSeen(claim))
            for name in scene.pods:
                self.apply(replica, PodSeen(self.pod(name)))
        self.apply(0, BecameLeader())

    def copy(self):
        new = World.__new__(World)
        new.__dict__.update(self.__dict__)
        new.server = self.server.copy()
        new.ledgers, new.clocks = list(map(copied, self.ledgers)), list(self.clocks)
        new.alive, new.placed, new.decided = dict(self.alive), dict(self.placed), dict(self.decided)
        new.in_flight, new.late_writes = list(self.in_flight), list(self.late_writes)
        new.claims_to_read = [set(uids) for uids in self.claims_to_read]
        new.pods_to_read = [set(pods) for pods in self.pods_to_read]
        new.ready, new.binding = set(self.ready), set(self.binding)
        return new

    def pod(self, name):
        node = NODE if self.placed[name] else ""
        return pod(name, *self.scene.pods[name], node=node)

    def apply(self, replica, event):
        effects = step(self.ledgers[replica], event, self.clocks[replica], self.table)
        for effect in effects:
            if isinstance(effect, WRITES):
                self.in_flight.append((replica, effect))
            elif isinstance(effect, Reread):
                self.claims_to_read[replica].add(effect.claim.metadata.uid)
            elif isinstance(effect, RereadPod):
                self.pods_to_read[replica].add(effect.pod)
            elif isinstance(effect, Ready):
                self.ready.add((replica, effect.pod))
        return effects

    # Moves

    def next_moves(self):
        """Yield every possible move: its name, and a function that applies it to a copy."""
        for replica in range(2):
            ledger = self.ledgers[replica]
            if ledger.leading:
                for name in self.scene.pods:
                    yield from self._scheduling(replica, name)
            for uid in sorted(self.claims_to_read[replica]):
                yield f"read {replica} {uid}", lambda w, r=replica, u=uid: w.read_claim(r, u)
            for name in sorted(self.pods_to_read[replica]):
                yield f"read pod {replica} {name}", lambda w, r=replica, n=name: w.read_pod(r, n)
            for uid, claim in self.server.claims.items():
                hold = ledger.holds.get(uid)
                if hold is not None and hold.informer_version != claim.metadata.resource_version:
                    yield f"see {replica} {uid}", lambda w, r=replica, u=uid: w.apply(r, ClaimSeen(w.server.claims[u]))
            for name in self.scene.pods:
                pod_fact = ledger.pods.get(name)
                if pod_fact is not None and not self.alive[name]:
                    yield f"gone {replica} {name}", lambda w, r=replica, n=name: w.apply(r, PodGone(n))
                elif pod_fact is not None and self.placed[name] and not pod_fact.node:
                    yield f"placed {replica} {name}", lambda w, r=replica, n=name: w.apply(r, PodSeen(w.pod(n)))
        for index, (replica, write) in enumerate(self.in_flight):
            write_name = f"{replica} {type(write).__name__} {write.claim.metadata.uid}"
            yield f"land {write_name}", lambda w, i=index: w.land(i)
            if self.faults:
                yield f"land, no answer {write_name}", lambda w, i=index: w.lose(i, lands=True)
                yield f"late, no answer {write_name}", lambda w, i=index: w.lose(i, lands=False)
        for index in range(len(self.late_writes)):
            yield f"lands late {self.late_writes[index][1].claim.metadata.uid}", lambda w, i=index: w.land_late(i)
        for replica, name in sorted(self.ready):
            yield f"bind {replica} {name}", lambda w, r=replica, n=name: w.bind(r, n)
        for name in sorted(self.binding):
            yield f"bound {name}", lambda w, n=name: w.bound(n)
            if self.faults:
                yield f"not bound {name}", lambda w, n=name: w.fail_binding(n)
        if self.lease_moves and self.ledgers[self.holder].leading:
            yield "lease moves", lambda w: w.move_lease()
        if not self.ledgers[self.holder].leading:
            yield "takes the lead", lambda w: w.take_lead()
        other = 1 - self.holder
        if self.ledgers[other].leading:
            yield "the former leader follows", lambda w: w.apply(1 - w.holder, BecameFollower())
        if self.deaths:
            for name, alive in self.alive.items():
                if alive:
                    yield f"{name} is deleted", lambda w, n=name: w.delete_pod(n)
        if any(not alive for alive in self.alive.values()):
            yield "the claim controller removes the consumers that are gone", lambda w: w.run_controller()
        if self.faults and not self.binding:
            yield "time passes", lambda w: w.wait()

    def _scheduling(self, replica, name):
        ledger = self.ledgers[replica]
        reservation = ledger.reservations.get(name)
        pod_fact = ledger.pods.get(name)
        is_unplaced = pod_fact is not None and not pod_fact.node
        if (replica, name) in self.decided:
            yield f"reserve {replica} {name}", lambda w: w.reserve(replica, name)
        elif is_unplaced and (reservation is None or reservation.token == ""):
            yield f"decide {replica} {name}", lambda w: w.decide(replica, name)
        if reservation is not None and reservation.token:
            if not reservation.awaited and reservation.state is ReservationState.ASSUMED:
                yield f"commit {replica} {name}", lambda w: w.apply(replica, Commit(f"t-{name}"))
            if self.faults and (replica, name) not in self.ready and reservation.state is not ReservationState.BOUND:
                yield f"unreserve {replica} {name}", lambda w: w.unreserve(replica, name)
        if self.faults and is_unplaced:
            yield f"take back {replica} {name}", lambda w: w.take_back(replica, name)

    def decide(self, replica, name):
        ledger = self.ledgers[replica]
        intended = {uid: ledger.as_intended(ledger.holds[uid]) for uid in ledger.holds}
        held = {uid: claim for uid, claim in intended.items() if claim.status.allocation is not None}
        wanted = [uid for uid in self.scene.pods[name] if uid not in held]
        if any(uid not in intended for uid in self.scene.pods[name]):
            return
        allocations = self.scene.decide(held, wanted) if wanted else []
        if allocations is None:
            return
        allocation_of = dict(zip(wanted, allocations, strict=True))
        parts = tuple(ClaimPart(ledger.holds[uid].claim, allocation_of.get(uid)) for uid in self.scene.pods[name])
        quota = ()
        if self.scene.quota is not None:
            quota = (QuotaLine("team", len(wanted), self.scene.quota, len(held)),)
            if len(held) + len(wanted) > self.scene.quota:
                return
        self.decided[replica, name] = (parts, ledger.generation, quota)

    def reserve(self, replica, name):
        parts, generation, quota = self.decided.pop((replica, name))
        self.apply(replica, Assume(f"t-{name}", self.pod(name), NODE, parts, generation, quota))

    def unreserve(self, replica, name):
        self.faults -= 1
        self.apply(replica, Unreserve(f"t-{name}"))

    def take_back(self, replica, name):
        self.faults -= 1
        self.apply(replica, TakeBack(name, self.scene.pods[name], "its devices have failed"))

    def read_claim(self, replica, uid):
        self.claims_to_read[replica].discard(uid)
        claim = self.server.claims.get(uid)
        self.apply(replica, ClaimRead(claim) if claim else ClaimGone(f"team/{uid}", uid))

    def read_pod(self, replica, name):
        self.pods_to_read[replica].discard(name)
        self.apply(replica, PodRead(self.pod(name)) if self.alive[name] else PodGone(name))

    def _answer(self, replica, write):
        """Send a write to the API server, and return the event of its answer."""
        if replica != self.holder:
            meta = write.claim.metadata
            return Denied(meta.uid, meta.resource_version, "another replica holds the Lease")
        return self.server.apply(write)

    def land(self, index):
        replica, write = self.in_flight.pop(index)
        self.apply(replica, self._answer(replica, write))

    def lose(self, index, *, lands):
        self.faults -= 1
        replica, write = self.in_flight.pop(index)
        if lands:
            self._answer(replica, write)
        else:
            self.late_writes.append((replica, write))
        self.apply(replica, Lost(write.claim.metadata.uid, write.claim.metadata.resource_version))

    def land_late(self, index):
        replica, write = self.late_writes.pop(index)
        self._answer(replica, write)

    def bind(self, replica, name):
        self.ready.discard((replica, name))
        reservation = self.ledgers[replica].reservations.get(name)
        if (
            reservation is not None
            and reservation.state in (ReservationState.RESERVED, ReservationState.BINDING)
            and self.alive[name]
        ):
            self.apply(replica, CommitConfirmed(reservation.token))
            self.binding.add(name)

    def bound(self, name):
        self.binding.discard(name)
        if self.alive[name]:
            self.placed[name] = True
            self.check_bound(name)

    def fail_binding(self, name):
        self.faults -= 1
        self.binding.discard(name)

    def check_bound(self, name):
        for uid in self.scene.pods[name]:
            claim = self.server.claims[uid]
            if claim.status.allocation is None or not is_reserved_for(claim, name):
                raise Broken(f"{name} is bound without {uid}")

    def move_lease(self):
        self.lease_moves -= 1
        self.holder = 1 - self.holder
        # By assumption, a write that the new holder sent in an earlier term does not land any more.
        for replica, write in [entry for entry in self.in_flight if entry[0] == self.holder]:
            self.in_flight.remove((replica, write))
            self.apply(replica, Lost(write.claim.metadata.uid, write.claim.metadata.resource_version))
        self.late_writes = [late for late in self.late_writes if late[0] != self.holder]

    def take_lead(self):
        new = self.holder
        for uid in self.server.claims:
            self.apply(new, ClaimRead(self.server.claims[uid]))
        for name, alive in self.alive.items():
            self.apply(new, PodSeen(self.pod(name)) if alive else PodGone(name))
        self.decided = {key: value for key, value in self.decided.items() if key[0] != new}
        self.apply(new, BecameLeader())

    def delete_pod(self, name):
        self.deaths -= 1
        self.alive[name] = False

    def run_controller(self):
        self.server.control({name for name, alive in self.alive.items() if not alive})

    def wait(self):
        self.faults -= 1
        self.pass_time()

    def pass_time(self):
        # After this time a scheduler that was about to bind has given up.
        self.ready.clear()
        for replica in range(2):
            self.clocks[replica] += LONG_TIME
            self.apply(replica, Tick())

    # Invariants

    def check(self):
        """Raise Broken if the server, or the leader's ledger, allocates a device twice."""
        allocated = {uid: claim for uid, claim in self.server.claims.items() if claim.status.allocation is not None}
        if problem := self.scene.judge(allocated):
            raise Broken(f"on the server: {problem}")
        for replica, ledger in enumerate(self.ledgers):
            if replica == self.holder and ledger.leading:
                meant = {
                    uid: ledger.as_intended(hold) if ledger.needs(hold) else hold.claim
                    for uid, hold in ledger.holds.items()
                }
                meant = {uid: claim for uid, claim in meant.items() if claim.status.allocation is not None}
                if problem := self.scene.judge(meant):
                    raise Broken(f"in ledger {replica}: {problem}")
        for name, placed in self.placed.items():
            if placed and self.alive[name]:
                self.check_bound(name)

    def deliver_all(self):
        """Deliver all writes, reads and events, without another fault."""
        for _ in range(200):
            if not self.ledgers[self.holder].leading:
                self.take_lead()
            elif self.ledgers[1 - self.holder].leading:
                self.apply(1 - self.holder, BecameFollower())
            elif self.in_flight:
                self.land(0)
            elif self.late_writes:
                self.late_writes.clear()  # a late write may land, but need not
            elif any(self.claims_to_read):
                replica = 0 if self.claims_to_read[0] else 1
                self.read_claim(replica, min(self.claims_to_read[replica]))
            elif any(self.pods_to_read):
                replica = 0 if self.pods_to_read[0] else 1
                self.read_pod(replica, min(self.pods_to_read[replica]))
            elif not self._deliver_event():
                return
        raise Broken("events and writes never end")

    def _deliver_event(self):
        """Apply one outstanding event of an informer; return whether there was one."""
        for replica, ledger in enumerate(self.ledgers):
            for uid, claim in self.server.claims.items():
                hold = ledger.holds.get(uid)
                if hold is not None and hold.informer_version != claim.metadata.resource_version:
                    self.apply(replica, ClaimSeen(claim))
                    return True
            for name, alive in self.alive.items():
                pod_fact = ledger.pods.get(name)
                if pod_fact is not None and not alive:
                    self.apply(replica, PodGone(name))
                    return True
                if pod_fact is not None and self.placed[name] and not pod_fact.node:
                    self.apply(replica, PodSeen(self.pod(name)))
                    return True
        return False

    def check_at_rest(self):
        """Check the state after a quiet time: first with living pods, then after all pods are gone."""
        faults = self.faults
        self.deliver_all()
        self.check()
        for name in sorted(self.binding):
            self.bound(name)
        self.deliver_all()
        lead = self.ledgers[self.holder]
        for reservation in lead.reservations.values():
            if reservation.state in (ReservationState.COMMITTING, ReservationState.COMMITTED, ReservationState.DOUBT):
                raise Broken(f"{reservation.pod} is {reservation.state} forever")
        self.run_controller()
        self.deliver_all()
        self.pass_time()
        self.deliver_all()
        self.check()
        needed = {uid for name, placed in self.placed.items() if placed for uid in self.scene.pods[name]}
        self.check_released(needed)
        for name in self.alive:
            self.alive[name] = False
        self.deliver_all()
        self.run_controller()
        self.deliver_all()
        self.pass_time()
        self.deliver_all()
        self.check_released(set())
        self.faults = faults

    def check_released(self, needed):
        """Raise Broken if a claim outside `needed` is allocated or held, or a reservation stays."""
        for uid, claim in self.server.claims.items():
            if uid not in needed and claim.status.allocation is not None:
                raise Broken(f"{uid} is allocated for no pod")
        lead = self.ledgers[self.holder]
        for uid, hold in lead.holds.items():
            if uid not in needed and lead.as_intended(hold).status.allocation is not None:
                raise Broken(f"{uid} is held for no pod")
        for reservation in lead.reservations.values():
            if reservation.state is not ReservationState.BOUND or not needed:
                raise Broken(f"the reservation of {reservation.pod} is {reservation.state} forever")
