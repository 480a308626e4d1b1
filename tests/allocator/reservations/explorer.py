"""Model checking of the ledger, the allocator's record of reservations, with two pods, two claims and two replicas.

A `World` (`model`) is one state of the API server, of two replicas with a ledger each, and of the messages between them. A *move*
leads to the next world: an event, or a fault such as a lost or late message. `explore` visits breadth-first all worlds that a limited
number of faults can lead to, and worlds with equal signatures (`signature.sign`) only once. The invariants must hold in each world.
Once all messages of a world are delivered and time has passed, no device may be held that no pod needs. The real allocator makes
the decisions.

Assumptions:

- The API server rejects a write with an old resourceVersion, and its policy rejects a write of a replica without the Lease.
- A leader reads all claims before it decides.
- A write does not last so long that its sender loses the Lease and gets it back meanwhile.
- A binding lands before a released reservation expires, or never.
"""

from collections import deque

from allocator.reservations.table import TABLE
from tests.allocator.reservations.model import World
from tests.allocator.reservations.scenes import Broken
from tests.allocator.reservations.signature import sign


class Exploration:
    """How many worlds and moves an exploration has seen, and how many moves lead to its last world."""

    def __init__(self):
        self.worlds = 0
        self.moves = 0
        self.depth = 0


def explore(scene, *, max_worlds, table=TABLE, start=None):
    """Explore worlds breadth-first, at most `max_worlds`; return the counts. Raise Broken with the moves after which an invariant does not hold."""
    exploration = Exploration()
    start = start or World(scene, table)
    known_signatures = {sign(start)}
    queue = deque([(start, ())])
    while queue:
        world, path = queue.popleft()
        exploration.worlds += 1
        exploration.depth = len(path)
        try:
            world.check()
            world.copy().check_at_rest()
        except Broken as violation:
            raise Broken(f"{violation}, after {', '.join(path)}") from violation
        for name, make_move in world.next_moves():
            exploration.moves += 1
            next_world = world.copy()
            try:
                make_move(next_world)
            except AssertionError as violation:
                raise Broken(f"{violation}, after {', '.join((*path, name))}") from violation
            signature = sign(next_world)
            if signature in known_signatures:
                continue
            if len(known_signatures) >= max_worlds:
                continue
            known_signatures.add(signature)
            queue.append((next_world, (*path, name)))
    return exploration
