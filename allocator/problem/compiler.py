"""Compiles one question on one node into a problem, in the steps that `compile` lists.

The layout of fields depends only on devices and claims, not on which devices are in use. So results for one GPU hold for all identical
GPUs (`allocator.problem.cache`). The devices in use decide the initial state, and which candidates are dropped at the start.

Every step iterates over the devices of a node, whose number drivers choose, so each step charges the budget first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.answer import MAX_RESULTS, AllocateError, Cause
from allocator.packing import BitFields, bitset, side_by_side
from allocator.problem.candidates import DeviceJudge, Fault, Offer, candidates_of
from allocator.problem.layout import irregular_counters, units_of
from allocator.problem.matching import Matching, constrained_values, match, narrow_by_values, number_equal
from allocator.problem.occupancy import Lineup, Vicinity, occupancy_of
from allocator.problem.problem import SearchInput, share_fields
from dra.stock import PoolStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator.problem.cache import CompileCache
    from allocator.problem.candidates import DeviceCandidate
    from allocator.problem.question import Question
    from dra.budget import Budget
    from dra.objects import Node
    from dra.stock import Pool, PoolId, PoolUse

    Arrange = Callable[[list[DeviceCandidate]], list[DeviceCandidate]]

# Steps (of a microsecond) for listing a device, and for finding its kind.
_LISTED, _RECOGNISED = 1, 3
_BATCH = 128  # devices per charge; a charge also ends the budget if time is up


def compile(  # noqa: A001  the verb for what it does
    cache: CompileCache,
    node: Node,
    pools: Sequence[Pool],
    use: Callable[[PoolId], PoolUse],
    *,
    budget: Budget,
    arrange: Arrange | None = None,
    narrow: bool = True,
) -> SearchInput:
    """Compile `cache.question` for one node; raise AllocateError for faults that the in-tree allocator finds before it searches.

    `arrange` changes the order of the devices; `narrow` drops candidates whose values of a matchAttribute are too rare for the
    requested count.
    """
    question = cache.question
    judge = DeviceJudge(question, node, budget)
    lineup = _line_up(pools, judge, cache, budget, arrange)
    counts = _count(question, pools, lineup, cache, judge)

    kinds: set[int] = set()  # kinds of devices that some leaf may take, or on which it fails with an error
    for kind in lineup.by_kind:
        takes = cache.takes[kind]
        if any(amounts is not None for amounts in takes.amounts) or any(takes.faults):
            kinds.add(kind)
    relevant_places = [place for place, kind in enumerate(lineup.kinds) if kind in kinds]
    budget.charge(len(relevant_places))
    rules = cache.rules
    across = rules.conflicts_across(pools, node.metadata.name, budget)
    occupancy = occupancy_of(lineup, relevant_places, pools, Vicinity(use, across), rules, budget=budget)
    layout = units_of(lineup, relevant_places, occupancy, cache, budget)

    left, common = BitFields(), BitFields()
    units = layout.units
    start, left.width = side_by_side([(unit.left, unit.pattern.size) for unit in units])
    opened, common.width = side_by_side([(unit.common, unit.pattern.common) for unit in units])
    left.guards = side_by_side([(unit.pattern.guards, unit.pattern.size) for unit in units])[0]
    common.guards = side_by_side([(unit.pattern.common_guards, unit.pattern.common) for unit in units])[0]
    capacity_guards = side_by_side([(unit.pattern.capacity_guards, unit.pattern.size) for unit in units])[0]
    local_bits, local_common_bits = left.width, common.width

    matching = Matching(question, lineup, occupancy, layout.unfit, cache)
    leaves = [match(matching, leaf, counts[leaf.index], budget) for leaf in question.leaves]
    if narrow and not any(leaf.faulty or leaf.failing for leaf in leaves):
        narrow_by_values(matching, leaves)
    number_equal(matching, leaves)

    values = constrained_values(matching, leaves, budget)
    shared, ready, agreed = share_fields(question.constraints, values, left, common)
    ready |= left.guards >> local_bits << local_bits
    guards = left.guards
    charges = 1 + sum(leaf.admin for leaf in question.leaves)
    ready |= irregular_counters(lineup, relevant_places, occupancy, shared, left, turns=charges, budget=budget)

    dedicated = (at for at, candidate in enumerate(lineup.candidates) if not candidate.multi)
    return SearchInput(
        question=question,
        places=lineup.candidates,
        units=units,
        unit_of=layout.unit_of,
        leaves=leaves,
        shared=shared,
        kinds=lineup.kinds,
        judged=cache.judged,
        left=start | ready,
        common=opened | agreed,
        guards=guards,
        common_guards=common.guards,
        open=((1 << common.width) - 1) & ~common.guards,
        capacity_guards=capacity_guards,
        local_bits=local_bits,
        local_common_bits=local_common_bits,
        dedicated=bitset(dedicated, len(lineup.candidates)),
        pairs=[{} for _ in leaves],
        globals={},
    )


def _line_up(
    pools: Sequence[Pool],
    judge: DeviceJudge,
    cache: CompileCache,
    budget: Budget,
    arrange: Arrange | None,
) -> Lineup:
    """Return the devices that the node can use, and their kinds, in the order in which they are tried."""
    for pool in pools:
        for page in pool.accessible:
            budget.charge(_LISTED * len(page.devices))
    candidates = candidates_of(pools)
    if arrange is not None:
        candidates = arrange(candidates)
    kinds: list[int] = []
    for first in range(0, len(candidates), _BATCH):
        batch = candidates[first : first + _BATCH]
        budget.charge(_RECOGNISED * len(batch))
        kinds += cache.kinds(judge, batch)
    by_kind: dict[int, list[int]] = {}
    for place, kind in enumerate(kinds):
        by_kind.setdefault(kind, []).append(place)
    ordered_leaves = [leaf.index for leaf in judge.question.leaves if leaf.all and leaf.constraints]
    ordered: set[int] = set()
    if ordered_leaves:
        for kind, places in by_kind.items():
            judged = cache.judged[kind]
            if any(isinstance(judged[leaf], Offer) for leaf in ordered_leaves):
                ordered.update(places)
    return Lineup(candidates, kinds, by_kind, ordered)


def _count(
    question: Question,
    pools: Sequence[Pool],
    lineup: Lineup,
    cache: CompileCache,
    judge: DeviceJudge,
) -> list[int]:
    """Return how many devices each leaf requires. Raise AllocateError for faults that the in-tree allocator finds before it searches."""
    counts: list[int] = []
    for leaf in question.leaves:
        if not leaf.all:
            counts.append(leaf.count)
            continue
        for pool in pools:
            if pool.status is not PoolStatus.OK:
                name = "/".join(pool.id)
                cause = Cause.INVALID_POOL if pool.status is PoolStatus.INVALID else Cause.INCOMPLETE_POOL
                problem = f"requests all devices, but pool {name} is {pool.status.value}: {pool.reason}"
                raise AllocateError(leaf.where, problem, cause, node_only=question.reading.since(38))
        count = 0
        for kind, places in lineup.by_kind.items():
            judged = cache.judged[kind][leaf.index]
            if isinstance(judged, Fault):
                # Judge the device again, so that the message names this device and this leaf.
                fault = judge.ask(leaf, lineup.candidates[places[0]])
                assert isinstance(fault, Fault)
                raise fault.as_fatal()
            if isinstance(judged, Offer):
                count += len(places)
        counts.append(count)
    least_by_claim: dict[int, int] = {}
    for request in question.requests:
        earlier = least_by_claim.get(request.claim, 0)
        minimum = min(counts[leaf.index] for leaf in request.leaves)
        if minimum > MAX_RESULTS - earlier:
            where = request.leaves[0].where
            limit = f"the limit of {MAX_RESULTS} devices per claim"
            raise AllocateError(
                where, f"{minimum} devices after {earlier} others exceed {limit}", Cause.TOO_MANY_DEVICES
            )
        least_by_claim[request.claim] = earlier + minimum
    if any(total < 0 for total in least_by_claim.values()):
        raise AllocateError("ResourceClaim", "requests a negative number of devices")
    return counts
