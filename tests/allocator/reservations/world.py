"""A ledger that leads, a model of the API server, and the writes and reads between them."""

from allocator.reservations import Ledger, ReservationState, step
from allocator.reservations.effects import OverlayClaim, Reread, RereadPod
from allocator.reservations.events import (
    Assume,
    BecameLeader,
    ClaimGone,
    ClaimRead,
    ClaimSeen,
    Commit,
    PodGone,
    PodRead,
)
from dra.stock import Stock
from tests.allocator.reservations.server import WRITES, Server, pod
from tests.dra.samples import DRIVER, slice_

POOL = (DRIVER, "p")
ERRANDS = (*WRITES, Reread, RereadPod)


class World:
    """A ledger that leads, with its API server; writes and reads wait for `run`."""

    def __init__(self, *claims):
        self.server = Server(*claims)
        self.ledger = Ledger()
        self.now = 0.0
        self.reported = []
        self.errands = []
        self.pods = {}
        for stored in claims:
            self.apply(ClaimSeen(stored))
        self.apply(BecameLeader())

    def apply(self, event):
        """Apply an event; queue writes and reads for `run`, and return the other effects."""
        effects = step(self.ledger, event, self.now)
        self.errands += [effect for effect in effects if isinstance(effect, ERRANDS)]
        others = [effect for effect in effects if not isinstance(effect, (*ERRANDS, OverlayClaim))]
        self.reported += others
        return others

    def run(self):
        """Carry out queued writes and reads until none is left; return the writes."""
        writes = []
        while self.errands:
            errand = self.errands.pop(0)
            if isinstance(errand, Reread):
                self.reread(errand.claim)
            elif isinstance(errand, RereadPod):
                stored_pod = self.pods.get(errand.pod)
                self.apply(PodRead(stored_pod) if stored_pod else PodGone(errand.pod))
            else:
                writes.append(errand)
                self.apply(self.server.apply(errand))
        return writes

    def reread(self, claim):
        stored = self.server.claims.get(claim.metadata.uid)
        self.apply(ClaimRead(stored) if stored else ClaimGone(f"team/{claim.metadata.name}", claim.metadata.uid))

    def assume(self, name, *parts, node="n1", token=None, generation=None, quota=()):
        waiting_pod = pod(name, *(part.claim.metadata.name for part in parts))
        self.pods[name] = waiting_pod
        generation = self.ledger.generation if generation is None else generation
        return self.apply(Assume(token or f"t-{name}", waiting_pod, node, parts, generation, quota))

    def commit(self, name):
        self.apply(Commit(f"t-{name}"))
        return self.run()

    def state(self, name):
        reservation = self.ledger.reservations.get(name)
        return reservation.state if reservation else ReservationState.PENDING

    def stock(self):
        claims = [self.ledger.holds[uid].claim for uid in self.ledger.holds if self.ledger.holds[uid].informer_version]
        return Stock.of(slices=[slice_("s", "d0", "d1")], claims=[claim for claim in claims if claim.status.allocation])

    def held(self):
        return self.stock().with_all(self.ledger.ahead.values()).use(POOL).dedicated

    def watch(self):
        for stored in list(self.server.claims.values()):
            self.apply(ClaimSeen(stored))
