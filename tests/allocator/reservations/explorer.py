"""Model checking: every order in which two pods, two claims and two writers may do, lose, delay and repeat things.

A `World` is the API server, two replicas with a ledger each, and what is on its way between them. `explore` walks breadth-first through
all worlds that differ (`World.sign`), up to a number of faults; in each the invariants must hold, and from each a quiet time must lead
to a world in which nothing is held without need. Decisions are made by the real allocator on the real overlay.

What is taken for granted, and no more: resourceVersions work; the policy of the lease refuses a write of a replica without it; a
leader reads all claims before it begins; a write does not take so long that the lease moves away from its sender and
comes back to it meanwhile; a binding lands, if it does, before a reservation that was let go expires.
"""

from collections import deque

from msgspec.structs import replace

from allocator import allocate
from allocator.reservations import FINALIZER, Ledger, ReservationState, Terms, step
from allocator.reservations.effects import Ready, Reread, RereadPod
from allocator.reservations.events import (
    Assume,
    BecameFollower,
    BecameLeader,
    BindingReported,
    ClaimGone,
    ClaimPart,
    ClaimRead,
    ClaimSeen,
    Commit,
    Denied,
    Lost,
    PodGone,
    PodRead,
    PodSeen,
    TakeBack,
    Tick,
    Unreserve,
)
from allocator.reservations.ledger import pools_of
from allocator.reservations.table import TABLE
from dra.objects import CELDeviceSelector, DeviceSelector, is_reserved_for
from dra.policy import QuotaLine
from tests.allocator.reservations.server import WRITES, Server, copied, pod
from tests.dra.samples import DRIVER

QUIET = 10_000.0  # longer than anything may last
NODE = "n0"


class Broken(AssertionError):  # noqa: N818  it is a finding
    """An invariant does not hold."""


class Scene:
    """What there is: a fleet, the claims of each pod, and what may not be exceeded."""

    def __init__(self, stock, claims, pods, *, quota=None, faults=2, moves=1, deaths=1):
        self.stock, self.claims, self.pods, self.quota = stock, claims, pods, quota
        self.faults, self.moves, self.deaths = faults, moves, deaths
        self._decided, self._judged = {}, {}

    def decide(self, held, wanted):
        """Ask the allocator what claims get beside what is held; None if they get nothing."""
        key = (tuple(sorted((uid, _devices(one)) for uid, one in held.items())), tuple(sorted(wanted)))
        if key not in self._decided:
            stock = self.stock
            for one in held.values():
                stock = stock.with_object(one)
            claims = [self.claims[uid] for uid in wanted]
            answer = allocate(stock, NODE, claims)
            self._decided[key] = (
                [allocation.allocation for allocation in answer.allocations] if answer.feasible else None
            )
        return self._decided[key]

    def judge(self, allocated):
        """Say what is wrong with claims being allocated together, as a decision for the last of them would."""
        key = tuple(sorted((uid, _devices(one)) for uid, one in allocated.items()))
        if key not in self._judged:
            self._judged[key] = self._together(allocated)
        return self._judged[key]

    def _together(self, allocated):
        if self.quota is not None and len(allocated) > self.quota:
            return "the quota is overshot"
        stock = self.stock
        for uid, one in allocated.items():
            pinned = _pinned(self.claims[uid], one.status.allocation)
            if not allocate(stock, NODE, [pinned]).feasible:
                return f"{uid} holds what is not free"
            stock = stock.with_object(one)
        return ""


def _pinned(claim, allocation):
    """Ask for exactly the devices of an allocation."""
    names = [result.device for result in allocation.devices.results]
    expression = " || ".join(f'device.attributes["{DRIVER}"].name == "{name}"' for name in names)
    (request,) = claim.spec.devices.requests
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    requests = (replace(request, exactly=replace(request.exactly, selectors=(selector,))),)
    return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))


def _devices(one):
    allocation = one.status.allocation
    if allocation is None:
        return ()
    return tuple((result.pool, result.device, result.share_id is not None) for result in allocation.devices.results)


class World:
    """One moment, copied before it is changed."""

    def __init__(self, scene, table=TABLE):
        self.scene, self.table = scene, table
        self.server = Server(*scene.claims.values())
        self.ledgers = [Ledger(terms=Terms(memory=1e18)) for _ in range(2)]
        self.clocks = [0.0, 0.0]
        self.holder = 0  # the replica in the Lease
        self.alive = dict.fromkeys(scene.pods, True)
        self.placed = dict.fromkeys(scene.pods, False)
        self.decided = {}  # (replica, pod) → parts, basis, quota: not reserved yet
        self.sent = []  # (replica, write): under way
        self.ghosts = []  # (replica, write): given up by its sender, and still under way
        self.looks = [set(), set()]  # uids to be read
        self.asked = [set(), set()]  # pods to be looked at
        self.ready = set()  # (replica, pod) that may be bound
        self.binding = set()  # pods whose binding is under way
        self.faults, self.moves, self.deaths = scene.faults, scene.moves, scene.deaths
        for replica in range(2):
            for claim in scene.claims.values():
                self.tell(replica, ClaimSeen(claim))
            for name in scene.pods:
                self.tell(replica, PodSeen(self.pod(name)))
        self.tell(0, BecameLeader())

    def copy(self):
        new = World.__new__(World)
        new.__dict__.update(self.__dict__)
        new.server = self.server.copy()
        new.ledgers, new.clocks = list(map(copied, self.ledgers)), list(self.clocks)
        new.alive, new.placed, new.decided = dict(self.alive), dict(self.placed), dict(self.decided)
        new.sent, new.ghosts = list(self.sent), list(self.ghosts)
        new.looks = [set(look) for look in self.looks]
        new.asked = [set(one) for one in self.asked]
        new.ready, new.binding = set(self.ready), set(self.binding)
        return new

    def pod(self, name):
        node = NODE if self.placed[name] else ""
        return pod(name, *self.scene.pods[name], node=node)

    def tell(self, replica, event):
        effects = step(self.ledgers[replica], event, self.clocks[replica], self.table)
        for effect in effects:
            if isinstance(effect, WRITES):
                self.sent.append((replica, effect))
            elif isinstance(effect, Reread):
                self.looks[replica].add(effect.claim.metadata.uid)
            elif isinstance(effect, RereadPod):
                self.asked[replica].add(effect.pod)
            elif isinstance(effect, Ready):
                self.ready.add((replica, effect.pod))
        return effects

    # What may happen next.

    def moves_on(self):
        """List everything that may happen, as functions on a copy."""
        for replica in range(2):
            ledger = self.ledgers[replica]
            if ledger.leading:
                for name in self.scene.pods:
                    yield from self._scheduling(replica, name)
            for uid in sorted(self.looks[replica]):
                yield f"read {replica} {uid}", lambda w, r=replica, u=uid: w.look(r, u)
            for name in sorted(self.asked[replica]):
                yield f"look at {replica} {name}", lambda w, r=replica, n=name: w.look_at(r, n)
            for uid, one in self.server.claims.items():
                hold = ledger.holds.get(uid)
                if hold is not None and hold.informer_version != one.metadata.resource_version:
                    yield f"see {replica} {uid}", lambda w, r=replica, u=uid: w.tell(r, ClaimSeen(w.server.claims[u]))
            for name in self.scene.pods:
                fact = ledger.pods.get(name)
                if fact is not None and not self.alive[name]:
                    yield f"gone {replica} {name}", lambda w, r=replica, n=name: w.tell(r, PodGone(n))
                elif fact is not None and self.placed[name] and not fact.node:
                    yield f"placed {replica} {name}", lambda w, r=replica, n=name: w.tell(r, PodSeen(w.pod(n)))
        for index, (replica, write) in enumerate(self.sent):
            what = f"{replica} {type(write).__name__} {write.claim.metadata.uid}"
            yield f"land {what}", lambda w, i=index: w.land(i)
            if self.faults:
                yield f"land, no answer {what}", lambda w, i=index: w.lose(i, lands=True)
                yield f"late, no answer {what}", lambda w, i=index: w.lose(i, lands=False)
        for index in range(len(self.ghosts)):
            yield f"lands late {self.ghosts[index][1].claim.metadata.uid}", lambda w, i=index: w.haunt(i)
        for replica, name in sorted(self.ready):
            yield f"bind {replica} {name}", lambda w, r=replica, n=name: w.bind(r, n)
        for name in sorted(self.binding):
            yield f"bound {name}", lambda w, n=name: w.bound(n)
            if self.faults:
                yield f"not bound {name}", lambda w, n=name: w.refuse(n)
        if self.moves and self.ledgers[self.holder].leading:
            yield "lease moves", lambda w: w.move()
        if not self.ledgers[self.holder].leading:
            yield "takes the lead", lambda w: w.take()
        other = 1 - self.holder
        if self.ledgers[other].leading:
            yield "hears that it follows", lambda w: w.tell(1 - w.holder, BecameFollower())
        if self.deaths:
            for name, alive in self.alive.items():
                if alive:
                    yield f"{name} is deleted", lambda w, n=name: w.die(n)
        if any(not alive for alive in self.alive.values()):
            yield "controller", lambda w: w.control()
        if self.faults and not self.binding:
            yield "time passes", lambda w: w.wait()

    def _scheduling(self, replica, name):
        ledger = self.ledgers[replica]
        reservation = ledger.reservations.get(name)
        fact = ledger.pods.get(name)
        knows = fact is not None and not fact.node
        if (replica, name) in self.decided:
            yield f"reserve {replica} {name}", lambda w: w.reserve(replica, name)
        elif knows and (reservation is None or reservation.token == ""):
            yield f"decide {replica} {name}", lambda w: w.decide(replica, name)
        if reservation is not None and reservation.token:
            if not reservation.awaited and reservation.state is ReservationState.ASSUMED:
                yield f"commit {replica} {name}", lambda w: w.tell(replica, Commit(f"t-{name}"))
            if self.faults and (replica, name) not in self.ready and reservation.state is not ReservationState.BOUND:
                yield f"unreserve {replica} {name}", lambda w: w.unreserve(replica, name)
        if self.faults and knows:
            yield f"take back {replica} {name}", lambda w: w.take_back(replica, name)

    def decide(self, replica, name):
        ledger = self.ledgers[replica]
        seen = {uid: ledger.as_meant(ledger.holds[uid]) for uid in ledger.holds}
        held = {uid: one for uid, one in seen.items() if one.status.allocation is not None}
        wanted = [uid for uid in self.scene.pods[name] if uid not in held]
        if any(uid not in seen for uid in self.scene.pods[name]):
            return
        allocations = self.scene.decide(held, wanted) if wanted else []
        if allocations is None:
            return
        given = dict(zip(wanted, allocations, strict=True))
        parts = tuple(ClaimPart(ledger.holds[uid].claim, given.get(uid)) for uid in self.scene.pods[name])
        quota = ()
        if self.scene.quota is not None:
            quota = (QuotaLine("team", len(wanted), self.scene.quota, len(held)),)
            if len(held) + len(wanted) > self.scene.quota:
                return
        self.decided[replica, name] = (parts, ledger.generation, quota)

    def reserve(self, replica, name):
        parts, basis, quota = self.decided.pop((replica, name))
        self.tell(replica, Assume(f"t-{name}", self.pod(name), NODE, parts, basis, quota))

    def unreserve(self, replica, name):
        self.faults -= 1
        self.tell(replica, Unreserve(f"t-{name}"))

    def take_back(self, replica, name):
        self.faults -= 1
        self.tell(replica, TakeBack(name, self.scene.pods[name], "its devices have failed"))

    def look(self, replica, uid):
        self.looks[replica].discard(uid)
        one = self.server.claims.get(uid)
        self.tell(replica, ClaimRead(one) if one else ClaimGone(f"team/{uid}", uid))

    def look_at(self, replica, name):
        self.asked[replica].discard(name)
        self.tell(replica, PodRead(self.pod(name)) if self.alive[name] else PodGone(name))

    def _apply(self, replica, write):
        if replica != self.holder:
            meta = write.claim.metadata
            return Denied(meta.uid, meta.resource_version, "the lease is held by another")
        return self.server.apply(write)

    def land(self, index):
        replica, write = self.sent.pop(index)
        self.tell(replica, self._apply(replica, write))

    def lose(self, index, *, lands):
        self.faults -= 1
        replica, write = self.sent.pop(index)
        if lands:
            self._apply(replica, write)
        else:
            self.ghosts.append((replica, write))
        self.tell(replica, Lost(write.claim.metadata.uid, write.claim.metadata.resource_version))

    def haunt(self, index):
        replica, write = self.ghosts.pop(index)
        self._apply(replica, write)

    def bind(self, replica, name):
        self.ready.discard((replica, name))
        reservation = self.ledgers[replica].reservations.get(name)
        if (
            reservation is not None
            and reservation.state in (ReservationState.RESERVED, ReservationState.BINDING)
            and self.alive[name]
        ):
            self.tell(replica, BindingReported(reservation.token))
            self.binding.add(name)

    def bound(self, name):
        self.binding.discard(name)
        if self.alive[name]:
            self.placed[name] = True
            self.check_bound(name)

    def refuse(self, name):
        self.faults -= 1
        self.binding.discard(name)

    def check_bound(self, name):
        for uid in self.scene.pods[name]:
            one = self.server.claims[uid]
            if one.status.allocation is None or not is_reserved_for(one, name):
                raise Broken(f"{name} is bound without {uid}")

    def move(self):
        self.moves -= 1
        self.holder = 1 - self.holder
        # A write that the new holder sent when it held the lease before does not arrive any more.
        for replica, write in [one for one in self.sent if one[0] == self.holder]:
            self.sent.remove((replica, write))
            self.tell(replica, Lost(write.claim.metadata.uid, write.claim.metadata.resource_version))
        self.ghosts = [ghost for ghost in self.ghosts if ghost[0] != self.holder]

    def take(self):
        new = self.holder
        for uid in self.server.claims:
            self.tell(new, ClaimRead(self.server.claims[uid]))
        for name, alive in self.alive.items():
            self.tell(new, PodSeen(self.pod(name)) if alive else PodGone(name))
        self.decided = {key: value for key, value in self.decided.items() if key[0] != new}
        self.tell(new, BecameLeader())

    def die(self, name):
        self.deaths -= 1
        self.alive[name] = False

    def control(self):
        self.server.control({name for name, alive in self.alive.items() if not alive})

    def wait(self):
        self.faults -= 1
        self.pass_time()

    def pass_time(self):
        # A scheduler that was about to bind has long given up (a scheduler's own patience is shorter).
        self.ready.clear()
        for replica in range(2):
            self.clocks[replica] += QUIET
            self.tell(replica, Tick())

    # What must hold.

    def check(self):
        """Raise if the server has given something twice, or a ledger would."""
        allocated = {uid: one for uid, one in self.server.claims.items() if one.status.allocation is not None}
        if wrong := self.scene.judge(allocated):
            raise Broken(f"on the server: {wrong}")
        for replica, ledger in enumerate(self.ledgers):
            if replica == self.holder and ledger.leading:
                meant = {
                    uid: ledger.as_meant(hold) if ledger.needs(hold) else hold.claim
                    for uid, hold in ledger.holds.items()
                }
                meant = {uid: one for uid, one in meant.items() if one.status.allocation is not None}
                if wrong := self.scene.judge(meant):
                    raise Broken(f"in ledger {replica}: {wrong}")
        for name, placed in self.placed.items():
            if placed and self.alive[name]:
                self.check_bound(name)

    def calm(self):
        """Let everything that is under way arrive, without another fault."""
        for _ in range(200):
            if not self.ledgers[self.holder].leading:
                self.take()
            elif self.ledgers[1 - self.holder].leading:
                self.tell(1 - self.holder, BecameFollower())
            elif self.sent:
                self.land(0)
            elif self.ghosts:
                self.ghosts.clear()  # that they land is a move; here none of them does
            elif any(self.looks):
                replica = 0 if self.looks[0] else 1
                self.look(replica, min(self.looks[replica]))
            elif any(self.asked):
                replica = 0 if self.asked[0] else 1
                self.look_at(replica, min(self.asked[replica]))
            elif not self._news():
                return
        raise Broken("it does not come to rest")

    def _news(self):
        for replica, ledger in enumerate(self.ledgers):
            for uid, one in self.server.claims.items():
                hold = ledger.holds.get(uid)
                if hold is not None and hold.informer_version != one.metadata.resource_version:
                    self.tell(replica, ClaimSeen(one))
                    return True
            for name, alive in self.alive.items():
                fact = ledger.pods.get(name)
                if fact is not None and not alive:
                    self.tell(replica, PodGone(name))
                    return True
                if fact is not None and self.placed[name] and not fact.node:
                    self.tell(replica, PodSeen(self.pod(name)))
                    return True
        return False

    def rest(self):
        """Check what a quiet time leads to: first with pods that live on, then after all of them are gone."""
        faults = self.faults
        self.calm()
        self.check()
        for name in sorted(self.binding):
            self.bound(name)
        self.calm()
        lead = self.ledgers[self.holder]
        for reservation in lead.reservations.values():
            if reservation.state in (ReservationState.COMMITTING, ReservationState.COMMITTED, ReservationState.DOUBT):
                raise Broken(f"{reservation.pod} is {reservation.state} forever")
        self.control()
        self.calm()
        self.pass_time()
        self.calm()
        self.check()
        needed = {uid for name, placed in self.placed.items() if placed for uid in self.scene.pods[name]}
        self.leaves(needed)
        for name in self.alive:
            self.alive[name] = False
        self.calm()
        self.control()
        self.calm()
        self.pass_time()
        self.calm()
        self.leaves(set())
        self.faults = faults

    def leaves(self, needed):
        for uid, one in self.server.claims.items():
            if uid not in needed and one.status.allocation is not None:
                raise Broken(f"{uid} is allocated for no pod")
        lead = self.ledgers[self.holder]
        for uid, hold in lead.holds.items():
            if uid not in needed and lead.as_meant(hold).status.allocation is not None:
                raise Broken(f"{uid} is held for no pod")
        for reservation in lead.reservations.values():
            if reservation.state is not ReservationState.BOUND or not needed:
                raise Broken(f"the reservation of {reservation.pod} is {reservation.state} forever")

    # What makes two worlds one.

    def sign(self):
        ranks = {uid: self._ranks(uid) for uid in self.scene.claims}
        return (
            self.holder,
            self.faults,
            self.moves,
            self.deaths,
            tuple(self.alive.items()),
            tuple(self.placed.items()),
            tuple(_looks(claim, ranks) for claim in self.server.claims.values()),
            tuple(self._sign_ledger(ledger, ranks) for ledger in self.ledgers),
            tuple(sorted((key, self._sign_decision(key[0], value)) for key, value in self.decided.items())),
            tuple(sorted(_sign_write(replica, write, ranks) for replica, write in self.sent)),
            tuple(sorted(_sign_write(replica, write, ranks) for replica, write in self.ghosts)),
            tuple(tuple(sorted(look)) for look in self.looks),
            tuple(tuple(sorted(one)) for one in self.asked),
            tuple(sorted(self.ready)),
            tuple(sorted(self.binding)),
        )

    def _ranks(self, uid):
        versions = {0}
        if uid in self.server.claims:
            versions.add(int(self.server.claims[uid].metadata.resource_version))
        for ledger in self.ledgers:
            hold = ledger.holds.get(uid)
            if hold is not None:
                seen = (hold.claim.metadata.resource_version, hold.informer_version, hold.version)
                versions.update(int(one) for one in seen if one)
        under_way = (write for _, write in (*self.sent, *self.ghosts) if write.claim.metadata.uid == uid)
        versions.update(int(write.claim.metadata.resource_version) for write in under_way)
        return {str(version): rank for rank, version in enumerate(sorted(versions))} | {"": -1}

    def _sign_ledger(self, ledger, ranks):
        holds = tuple(
            (
                uid,
                _looks(hold.claim, ranks),
                ranks[uid][hold.informer_version],
                hold.intent is not None,
                _devices_of(hold.intent),
                tuple(sorted(hold.users)),
                hold.busy,
                ranks[uid][hold.version] if hold.busy else 0,
                hold.lost,
                hold.is_ours,
                min(hold.refusals, 2),
                bool(hold.refusal),
            )
            for uid, hold in sorted(ledger.holds.items(), key=lambda entry: entry[0])
        )
        reservations = tuple(
            (one.pod, one.token, one.claims, one.state, one.awaited, one.started, one.due)
            for one in (ledger.reservations[name] for name in sorted(ledger.reservations))
        )
        pods = tuple(
            (uid, fact.node, fact.done) for uid, fact in sorted(ledger.pods.items(), key=lambda entry: entry[0])
        )
        return ledger.leading, holds, reservations, pods, tuple(sorted(ledger.deleted))

    def _sign_decision(self, replica, value):
        parts, basis, _ = value
        changed = self.ledgers[replica].changed
        pools = {"/".join(pool) for part in parts for pool in pools_of(part.allocation)} | {"team"}
        given = tuple(_devices_of(part.allocation) for part in parts)
        return given, tuple(sorted(pool for pool in pools if changed.get(pool, 0) > basis))


def _devices_of(allocation):
    if allocation is None:
        return ()
    return tuple((result.pool, result.device) for result in allocation.devices.results)


def _looks(one, ranks):
    meta = one.metadata
    consumers = tuple(consumer.uid for consumer in one.status.reserved_for)
    return ranks[meta.uid][meta.resource_version], FINALIZER in meta.finalizers, _devices(one), consumers


def _sign_write(replica, write, ranks):
    consumers = tuple(one.uid for one in getattr(write, "reserved_for", ()))
    finalizers = getattr(write, "finalizers", ())
    meta = write.claim.metadata
    given = _devices_of(getattr(write, "allocation", None))
    return replica, type(write).__name__, meta.uid, ranks[meta.uid][meta.resource_version], consumers, finalizers, given


class Found:
    """What an exploration saw."""

    def __init__(self):
        self.states = 0
        self.moves = 0
        self.whole = True  # no limit ended it
        self.depth = 0


def explore(scene, *, most, table=TABLE, start=None):
    """Walk through all worlds, breadth-first, up to a number of them. Raise Broken with the way that leads to a fault."""
    found = Found()
    start = start or World(scene, table)
    seen = {start.sign()}
    queue = deque([(start, ())])
    while queue:
        world, way = queue.popleft()
        found.states += 1
        found.depth = len(way)
        try:
            world.check()
            world.copy().rest()
        except Broken as fault:
            raise Broken(f"{fault}, after {', '.join(way)}") from fault
        for name, act in world.moves_on():
            found.moves += 1
            after = world.copy()
            try:
                act(after)
            except AssertionError as fault:
                raise Broken(f"{fault}, after {', '.join((*way, name))}") from fault
            sign = after.sign()
            if sign in seen:
                continue
            if len(seen) >= most:
                found.whole = False
                continue
            seen.add(sign)
            queue.append((after, (*way, name)))
    return found
