"""Why not: where each request lost its devices, stage by stage, for a node that cannot serve the claims.

Looks at every request by itself, in the state before anything is chosen. If each of them would find enough devices alone,
what is missing is a combination, and the last stage says so. This is an account for people; it takes no part in deciding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.answer import Reason, Stage
from allocator.offer import Fault, Judge, Offer, Place, Refused, places
from allocator.shape import claim_key
from allocator.standing import pool_state
from dra.compat import admits, in_the_way, own_state
from dra.counters import overdrawn
from dra.pool import PoolStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from allocator.compile import Compiler
    from allocator.shape import Leaf
    from allocator.standing import PoolState
    from dra.node import Node
    from dra.pool import Pool
    from dra.stock import Held
    from dra.usage import PoolId, PoolUse

EXAMPLES = 3
_STAGES = list(Stage)


def why(
    compiler: Compiler,
    node: Node,
    pools: Sequence[Pool],
    use: Callable[[PoolId], PoolUse],
    held: Mapping[PoolId, Held],
) -> tuple[Reason, ...]:
    """Account for all requests that cannot be served alone, or for all of them if each could."""
    account = _Account(compiler, node, pools, use, held)
    told = [(leaf, *account.of(leaf)) for request in compiler.shape.requests for leaf in request.leaves]
    failing = [
        (leaf, reasons)
        for leaf, reasons, free in told
        if all(account.short(other, left) for other, _, left in told if other.request == leaf.request)
    ]
    if failing:
        return tuple(reason for _, reasons in failing for reason in reasons)
    text = "each request finds enough devices alone, but not all of them together"
    return tuple(
        reason
        for leaf, reasons, free in told
        for reason in (*reasons, account.reason(leaf, Stage.SEARCH, [str(place) for place in free], len(free), text))
    )


class _Account:
    def __init__(
        self,
        compiler: Compiler,
        node: Node,
        pools: Sequence[Pool],
        use: Callable[[PoolId], PoolUse],
        held: Mapping[PoolId, Held],
    ) -> None:
        self.shape = compiler.shape
        self.compiler = compiler
        self.judge = Judge(compiler.shape, node)
        self.pools = pools
        self.places = places(pools)
        self.held = held
        by_pool: dict[PoolId, list[Place]] = {}
        for place in self.places:
            by_pool.setdefault(place.pool.id, []).append(place)
        self.states = {
            pool.id: pool_state(pool, use(pool.id), compiler.rules, by_pool.get(pool.id, ())) for pool in pools
        }

    def short(self, leaf: Leaf, free: list[Place]) -> bool:
        """Say whether a leaf does not find enough devices, even alone."""
        if leaf.all:
            wanted = sum(1 for place in self.places if isinstance(self._judged(leaf, place), Offer))
            return not wanted or len(free) < wanted
        return len(free) < leaf.count

    def of(self, leaf: Leaf) -> tuple[list[Reason], list[Place]]:
        """Follow the devices through the stages; answers with the losses and with who is left."""
        lost: dict[Stage, list[tuple[str, str]]] = {}
        free: list[Place] = []
        for place in self.places:
            stage, text, example = self._fate(leaf, place)
            if stage is None:
                free.append(place)
            else:
                lost.setdefault(stage, []).append((text, example))
        broken = [pool for pool in self.pools if pool.status is not PoolStatus.OK]
        reasons: list[Reason] = []
        if broken:
            names = ["/".join(pool.id) for pool in broken]
            text = "; ".join(dict.fromkeys(f"{pool.status.value}: {pool.reason}" for pool in broken))
            reasons.append(Reason(Stage.POOL, *self._whose(leaf), 0, 0, tuple(names[:EXAMPLES]), text))
        if not self.places:
            text = f"no device can be reached from node {self.judge.node.metadata.name}"
            reasons.append(Reason(Stage.NODE, *self._whose(leaf), 0, 0, (), text))
        here = len(self.places)
        for stage in _STAGES:
            if stage in lost:
                texts = list(dict.fromkeys(text for text, _ in lost[stage] if text))
                examples = [example for _, example in lost[stage]]
                reasons.append(self.reason(leaf, stage, examples, here, "; ".join(texts[:EXAMPLES])))
                here -= len(examples)
        return reasons, free

    def reason(self, leaf: Leaf, stage: Stage, examples: list[str], of: int, text: str) -> Reason:
        """Compose one reason."""
        return Reason(stage, *self._whose(leaf), len(examples), of, tuple(examples[:EXAMPLES]), text)

    def _whose(self, leaf: Leaf) -> tuple[str, str]:
        return claim_key(self.shape.claims[leaf.claim]), leaf.name

    def _judged(self, leaf: Leaf, place: Place) -> object:
        return self.compiler.judged[self.compiler.kind(self.judge, place)][leaf.index]

    def _fate(self, leaf: Leaf, place: Place) -> tuple[Stage | None, str, str]:
        found, name = self._judged(leaf, place), str(place)
        if isinstance(found, Refused):
            return found.stage, found.text, name
        if isinstance(found, Fault):
            return Stage.SELECTOR, found.what, name
        assert isinstance(found, Offer)
        state = self.states[place.pool.id]
        if found.barred:
            return found.barred.stage, found.barred.text, name
        if place.name in state.use.dedicated and not leaf.admin:
            return Stage.IN_USE, "", f"{name} (held by {', '.join(self._holders(place)) or 'an unknown claim'})"
        refused = _standing(place, state) if not state.shared(place) else None
        if refused:
            return refused.stage, refused.text, name
        if found.missing >= 0:
            attribute = self.shape.constraints[leaf.constraints[found.missing]].attribute
            return Stage.CONSTRAINT, f"has no attribute {attribute}", name
        used = state.use.used.get(place.name, {})
        if any(used.get(capacity, 0) + amount > declared for capacity, amount, declared in found.amounts):
            return Stage.CAPACITY, "", f"{name} (shared by {', '.join(self._holders(place))})"
        return None, "", name

    def _holders(self, place: Place) -> list[str]:
        held = self.held.get(place.pool.id, {})
        return [claim for claim, results in held.items() if any(one.device == place.name for one in results)]


def _standing(place: Place, state: PoolState) -> Refused | None:
    """Say what of the things in use keeps a device from being taken."""
    wild = state.wild(place)
    for counter_set, _, groups in place.body.consumption:
        if not admits(state.groups.get(counter_set), own_state(groups, wild=wild)):
            common = ", ".join(sorted(name for name in state.groups[counter_set] or () if name)) or "none"
            return Refused(Stage.GROUPS, f"what is in use on {counter_set} has these groups in common: {common}")
    others = in_the_way(place.name, state.conflicts, state.use)
    if others:
        return Refused(Stage.COMPATIBILITY, f"not compatible with {', '.join(others[:EXAMPLES])}, in use")
    for counter_set, counters, _ in place.body.consumption:
        for counter, amount in counters:
            if amount > state.left[counter_set][counter]:
                return Refused(Stage.COUNTERS, f"{counter_set}.{counter} is used up")
    negative = overdrawn(state.left) if place.body.consumption else []
    if negative and not state.irregular:
        return Refused(
            Stage.COUNTERS, f"counters below zero: {', '.join('.'.join(one) for one in negative[:EXAMPLES])}"
        )
    return None
