"""The ledger of a leading replica, a model of the API server, and the writes and reads between them."""

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
from tests.allocator.reservations.server import WRITES, Server, allocation_of, claim, claim_part, pod
from tests.dra.samples import DRIVER, slice_

POOL = (DRIVER, "p")
SERVER_REQUESTS = (*WRITES, Reread, RereadPod)


class World:
    """The ledger of a leading replica, with its API server. Writes and reads wait in a queue for `run`."""

    def __init__(self, *claims):
        self.server = Server(*claims)
        self.ledger = Ledger()
        self.now = 0.0
        self.reported_effects = []
        self.queued_requests = []
        self.pods = {}
        for stored in claims:
            self.apply(ClaimSeen(stored))
        self.apply(BecameLeader())

    def apply(self, event):
        """Apply an event; queue writes and reads for `run`, and return all other effects except OverlayClaim."""
        effects = step(self.ledger, event, self.now)
        self.queued_requests += [effect for effect in effects if isinstance(effect, SERVER_REQUESTS)]
        other_effects = [effect for effect in effects if not isinstance(effect, (*SERVER_REQUESTS, OverlayClaim))]
        self.reported_effects += other_effects
        return other_effects

    def run(self):
        """Carry out queued writes and reads until none is left; return the writes."""
        writes = []
        while self.queued_requests:
            request = self.queued_requests.pop(0)
            if isinstance(request, Reread):
                self.reread(request.claim)
            elif isinstance(request, RereadPod):
                stored_pod = self.pods.get(request.pod)
                self.apply(PodRead(stored_pod) if stored_pod else PodGone(request.pod))
            else:
                writes.append(request)
                self.apply(self.server.apply(request))
        return writes

    def reread(self, claim):
        stored = self.server.claims.get(claim.metadata.uid)
        self.apply(ClaimRead(stored) if stored else ClaimGone(f"team/{claim.metadata.name}", claim.metadata.uid))

    def assume(self, name, *parts, node="n1", token=None, generation=None, quota=(), bound=False):
        waiting_pod = pod(name, *(part.claim.metadata.name for part in parts))
        self.pods[name] = waiting_pod
        generation = self.ledger.generation if generation is None else generation
        return self.apply(Assume(token or f"t-{name}", waiting_pod, node, parts, generation, quota, bound))

    def commit(self, name):
        """Commit the reservation of a pod; return the writes."""
        self.apply(Commit(f"t-{name}"))
        return self.run()

    def state(self, name):
        reservation = self.ledger.reservations.get(name)
        return reservation.state if reservation else ReservationState.PENDING

    def stock(self):
        """Return the devices and the allocated claims that informers have reported to the ledger."""
        claims = [self.ledger.holds[uid].claim for uid in self.ledger.holds if self.ledger.holds[uid].informer_version]
        return Stock.of(slices=[slice_("s", "d0", "d1")], claims=[claim for claim in claims if claim.status.allocation])

    def held_devices(self):
        """Return the devices in use, including those that the ledger intends to allocate."""
        return self.stock().with_all(self.ledger.ahead.values()).use(POOL).dedicated

    def deliver_claim_events(self):
        """Report all claims of the API server to the ledger, as an informer does."""
        for stored in list(self.server.claims.values()):
            self.apply(ClaimSeen(stored))


def world_with_reservation(*other_claims):
    """Return a world where the claim `c` is reserved for the pod `a`, with the device d0."""
    world = World(claim("c"), *other_claims)
    world.assume("a", claim_part(claim("c"), allocation_of("d0")))
    return world


def world_during_commit(*other_claims):
    """Return the same world while the first write of the claim waits in the queue."""
    world = world_with_reservation(*other_claims)
    world.apply(Commit("t-a"))
    return world


def world_after_commit(*other_claims):
    """Return the same world after all writes of the claim."""
    world = world_during_commit(*other_claims)
    world.run()
    return world
