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
from tests.allocator.reservations.server import WRITES, Server, copy_ledger, pod

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
        self.is_alive = dict.fromkeys(scene.pods, True)
        self.is_placed = dict.fromkeys(scene.pods, False)
        self.decisions = {}  # (replica, pod) → parts, generation and quota of a decision that is not reserved yet
        self.in_flight = []  # (replica, write): without an answer yet
        self.late_writes = []  # (replica, write): the sender got no answer, but the write may still land
        self.claims_to_read = [set(), set()]  # uids, by replica: the effects `Reread`
        self.pods_to_read = [set(), set()]  # names, by replica: the effects `RereadPod`
        self.ready = set()  # (replica, pod) that may be bound
        self.binding = set()  # pods whose binding is under way
        # How many faults, moves of the Lease and deletions of pods may still happen.
        self.faults, self.lease_moves, self.deaths = scene.faults, scene.lease_moves, scene.deaths
        for replica in range(2):
            for claim in scene.claims.values():
                self.apply(replica, ClaimSeen(claim))
            for name in scene.pods:
                self.apply(replica, PodSeen(self.pod(name)))
        self.apply(0, BecameLeader())

    def copy(self):
        copied_world = World.__new__(World)
        copied_world.__dict__.update(self.__dict__)
        copied_world.server = self.server.copy()
        copied_world.ledgers, copied_world.clocks = list(map(copy_ledger, self.ledgers)), list(self.clocks)
        copied_world.is_alive, copied_world.is_placed = dict(self.is_alive), dict(self.is_placed)
        copied_world.decisions = dict(self.decisions)
        copied_world.in_flight, copied_world.late_writes = list(self.in_flight), list(self.late_writes)
        copied_world.claims_to_read = [set(uids) for uids in self.claims_to_read]
        copied_world.pods_to_read = [set(pods) for pods in self.pods_to_read]
        copied_world.ready, copied_world.binding = set(self.ready), set(self.binding)
        return copied_world

    def pod(self, name):
        node = NODE if self.is_placed[name] else ""
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
                    yield from self._scheduler_moves(replica, name)
            for uid in sorted(self.claims_to_read[replica]):
                yield f"read claim {replica} {uid}", lambda w, r=replica, u=uid: w.read_claim(r, u)
            for name in sorted(self.pods_to_read[replica]):
                yield f"read pod {replica} {name}", lambda w, r=replica, n=name: w.read_pod(r, n)
            for uid, claim in self.server.claims.items():
                hold = ledger.holds.get(uid)
                if hold is not None and hold.informer_version != claim.metadata.resource_version:
                    yield (
                        f"see claim {replica} {uid}",
                        lambda w, r=replica, u=uid: w.apply(r, ClaimSeen(w.server.claims[u])),
                    )
            for name in self.scene.pods:
                pod_fact = ledger.pods.get(name)
                if pod_fact is not None and not self.is_alive[name]:
                    yield f"see deletion {replica} {name}", lambda w, r=replica, n=name: w.apply(r, PodGone(n))
                elif pod_fact is not None and self.is_placed[name] and not pod_fact.node:
                    yield f"see placement {replica} {name}", lambda w, r=replica, n=name: w.apply(r, PodSeen(w.pod(n)))
        for index, (replica, write) in enumerate(self.in_flight):
            write_name = f"{replica} {type(write).__name__} {write.claim.metadata.uid}"
            yield f"land {write_name}", lambda w, i=index: w.land(i)
            if self.faults:
                yield f"land without answer {write_name}", lambda w, i=index: w.lose_answer(i, write_lands=True)
                yield f"delay without answer {write_name}", lambda w, i=index: w.lose_answer(i, write_lands=False)
        for index in range(len(self.late_writes)):
            yield f"land late {self.late_writes[index][1].claim.metadata.uid}", lambda w, i=index: w.land_late(i)
        for replica, name in sorted(self.ready):
            yield f"bind {replica} {name}", lambda w, r=replica, n=name: w.bind(r, n)
        for name in sorted(self.binding):
            yield f"binding lands {name}", lambda w, n=name: w.finish_binding(n)
            if self.faults:
                yield f"binding fails {name}", lambda w, n=name: w.fail_binding(n)
        if self.lease_moves and self.ledgers[self.holder].leading:
            yield "the Lease moves to the other replica", lambda w: w.move_lease()
        if not self.ledgers[self.holder].leading:
            yield "the replica in the Lease takes the lead", lambda w: w.take_lead()
        other_replica = 1 - self.holder
        if self.ledgers[other_replica].leading:
            yield "the former leader follows", lambda w: w.apply(1 - w.holder, BecameFollower())
        if self.deaths:
            for name, alive in self.is_alive.items():
                if alive:
                    yield f"{name} is deleted", lambda w, n=name: w.delete_pod(n)
        if any(not alive for alive in self.is_alive.values()):
            yield "the claim controller removes the consumers that are gone", lambda w: w.run_controller()
        if self.faults and not self.binding:
            yield "time passes", lambda w: w.wait()

    def _scheduler_moves(self, replica, name):
        """Yield the moves in which a replica decides about a pod, reserves or commits its claims, or gives them up."""
        ledger = self.ledgers[replica]
        reservation = ledger.reservations.get(name)
        pod_fact = ledger.pods.get(name)
        is_unplaced = pod_fact is not None and not pod_fact.node
        if (replica, name) in self.decisions:
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
        intended_claims = {uid: ledger.as_intended(ledger.holds[uid]) for uid in ledger.holds}
        allocated_claims = {uid: claim for uid, claim in intended_claims.items() if claim.status.allocation is not None}
        uids_to_allocate = [uid for uid in self.scene.pods[name] if uid not in allocated_claims]
        if any(uid not in intended_claims for uid in self.scene.pods[name]):
            return
        allocations = self.scene.decide(allocated_claims, uids_to_allocate) if uids_to_allocate else []
        if allocations is None:
            return
        allocation_of = dict(zip(uids_to_allocate, allocations, strict=True))
        parts = tuple(ClaimPart(ledger.holds[uid].claim, allocation_of.get(uid)) for uid in self.scene.pods[name])
        quota = ()
        if self.scene.quota is not None:
            quota = (QuotaLine("team", len(uids_to_allocate), self.scene.quota, len(allocated_claims)),)
            if len(allocated_claims) + len(uids_to_allocate) > self.scene.quota:
                return
        self.decisions[replica, name] = (parts, ledger.generation, quota)

    def reserve(self, replica, name):
        parts, generation, quota = self.decisions.pop((replica, name))
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
        self.apply(replica, PodRead(self.pod(name)) if self.is_alive[name] else PodGone(name))

    def _send(self, replica, write):
        """Send a write to the API server, and return the event that reports the answer."""
        if replica != self.holder:
            meta = write.claim.metadata
            return Denied(meta.uid, meta.resource_version, "another replica holds the Lease")
        return self.server.apply(write)

    def land(self, index):
        replica, write = self.in_flight.pop(index)
        self.apply(replica, self._send(replica, write))

    def lose_answer(self, index, *, write_lands):
        self.faults -= 1
        replica, write = self.in_flight.pop(index)
        if write_lands:
            self._send(replica, write)
        else:
            self.late_writes.append((replica, write))
        self.apply(replica, Lost(write.claim.metadata.uid, write.claim.metadata.resource_version))

    def land_late(self, index):
        replica, write = self.late_writes.pop(index)
        self._send(replica, write)

    def bind(self, replica, name):
        self.ready.discard((replica, name))
        reservation = self.ledgers[replica].reservations.get(name)
        if (
            reservation is not None
            and reservation.state in (ReservationState.RESERVED, ReservationState.BINDING)
            and self.is_alive[name]
        ):
            self.apply(replica, CommitConfirmed(reservation.token))
            self.binding.add(name)

    def finish_binding(self, name):
        self.binding.discard(name)
        if self.is_alive[name]:
            self.is_placed[name] = True
            self.check_bound_pod(name)

    def fail_binding(self, name):
        self.faults -= 1
        self.binding.discard(name)

    def check_bound_pod(self, name):
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
        leader = self.holder
        for uid in self.server.claims:
            self.apply(leader, ClaimRead(self.server.claims[uid]))
        for name, alive in self.is_alive.items():
            self.apply(leader, PodSeen(self.pod(name)) if alive else PodGone(name))
        self.decisions = {key: value for key, value in self.decisions.items() if key[0] != leader}
        self.apply(leader, BecameLeader())

    def delete_pod(self, name):
        self.deaths -= 1
        self.is_alive[name] = False

    def run_controller(self):
        self.server.run_claim_controller({name for name, alive in self.is_alive.items() if not alive})

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
        """Raise Broken if the server or the leader's ledger allocates a device twice, or if a bound pod lacks a claim."""
        allocated_claims = {
            uid: claim for uid, claim in self.server.claims.items() if claim.status.allocation is not None
        }
        if problem := self.scene.find_conflict(allocated_claims):
            raise Broken(f"on the server: {problem}")
        for replica, ledger in enumerate(self.ledgers):
            if replica == self.holder and ledger.leading:
                intended_claims = {
                    uid: ledger.as_intended(hold) if ledger.needs(hold) else hold.claim
                    for uid, hold in ledger.holds.items()
                }
                intended_claims = {
                    uid: claim for uid, claim in intended_claims.items() if claim.status.allocation is not None
                }
                if problem := self.scene.find_conflict(intended_claims):
                    raise Broken(f"in ledger {replica}: {problem}")
        for name, placed in self.is_placed.items():
            if placed and self.is_alive[name]:
                self.check_bound_pod(name)

    def deliver_all(self):
        """Deliver all writes, reads and events, without another fault."""
        for _ in range(200):  # more deliveries than any world has outstanding
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
            for name, alive in self.is_alive.items():
                pod_fact = ledger.pods.get(name)
                if pod_fact is not None and not alive:
                    self.apply(replica, PodGone(name))
                    return True
                if pod_fact is not None and self.is_placed[name] and not pod_fact.node:
                    self.apply(replica, PodSeen(self.pod(name)))
                    return True
        return False

    def check_at_rest(self):
        """Check the state after a quiet time: first with living pods, then after all pods are gone."""
        faults = self.faults
        self.deliver_all()
        self.check()
        for name in sorted(self.binding):
            self.finish_binding(name)
        self.deliver_all()
        leader_ledger = self.ledgers[self.holder]
        for reservation in leader_ledger.reservations.values():
            if reservation.state in (ReservationState.COMMITTING, ReservationState.COMMITTED, ReservationState.DOUBT):
                raise Broken(f"{reservation.pod} is {reservation.state} forever")
        self.run_controller()
        self.deliver_all()
        self.pass_time()
        self.deliver_all()
        self.check()
        needed = {uid for name, placed in self.is_placed.items() if placed for uid in self.scene.pods[name]}
        self.check_released(needed)
        for name in self.is_alive:
            self.is_alive[name] = False
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
        leader_ledger = self.ledgers[self.holder]
        for uid, hold in leader_ledger.holds.items():
            if uid not in needed and leader_ledger.as_intended(hold).status.allocation is not None:
                raise Broken(f"{uid} is held for no pod")
        for reservation in leader_ledger.reservations.values():
            if reservation.state is not ReservationState.BOUND or not needed:
                raise Broken(f"the reservation of {reservation.pod} is {reservation.state} forever")
