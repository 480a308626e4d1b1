"""Model checking of the ledger: every order of moves of two pods, two claims and two replicas, with lost, late and repeated messages.

A `World` (`model`) is the API server, two replicas with a ledger each, and the messages between them. `explore` visits breadth-first all
worlds with different signatures (`signature.sign`), up to a number of faults. The invariants must hold in each world. Once all messages of
a world are delivered and time has passed, no device may be held that no pod needs. The real allocator decides, on the real overlay.

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
    """Counts of an exploration."""

    def __init__(self):
        self.states = 0
        self.moves = 0
        self.is_complete = True  # no limit ended it
        self.depth = 0


def explore(scene, *, max_worlds, table=TABLE, start=None):
    """Explore all worlds breadth-first, up to a maximum. Raise Broken with the moves that lead to a fault."""
    explored = Exploration()
    start = start or World(scene, table)
    seen = {sign(start)}
    queue = deque([(start, ())])
    while queue:
        world, path = queue.popleft()
        explored.states += 1
        explored.depth = len(path)
        try:
            world.check()
            world.copy().check_at_rest()
        except Broken as fault:
            raise Broken(f"{fault}, after {', '.join(path)}") from fault
        for name, act in world.next_moves():
            explored.moves += 1
            after = world.copy()
            try:
                act(after)
            except AssertionError as fault:
                raise Broken(f"{fault}, after {', '.join((*path, name))}") from fault
            signature = sign(after)
            if signature in seen:
                continue
            if len(seen) >= max_worlds:
                explored.is_complete = False
                continue
            seen.add(signature)
            queue.append((after, (*path, name)))
    return explored
