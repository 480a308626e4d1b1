"""The proof: a relaxation of the remaining requests that returns "impossible" for most states without a solution.

A unit is a group of devices that share hardware. `allocator.search.supply` computes which count vectors (numbers of devices for each type
of request) each unit can give in its present state. `allocator.search.vectors.covers` decides whether one vector of each unit can sum up to
the demand. This module computes the demand: the alternatives, their places (positions of devices), and the constraints that tie them
together.

Constraints group units by the values of the constrained attribute. With distinctAttribute, a group gives the covered requests no more
devices than it has unused values. With a matchAttribute whose value is not fixed yet, all covered requests form a bundle, and one group
must serve the whole bundle. So one pass for an attribute decides all matchAttribute constraints on it.

The result "possible" may be wrong, "impossible" may not. So requests are merged, dropped or relaxed only where that makes more possible,
and a proof that exceeds a limit returns "possible". Requests with admin access come last within a unit, because that order allows the most.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from math import comb
from typing import TYPE_CHECKING

import msgspec

from allocator.answer import MAX_RESULTS
from allocator.packing import Disjoint, bitset, members, union
from allocator.search.supply import Caps, Outer, ProofLimits, RequestType, UnitSupply
from allocator.search.vectors import WIDTH, covers, guard_bits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from allocator.problem import Leaf, PlacedUnit, SearchInput, Value
    from allocator.search.budget import SearchSteps

    _Group = tuple[tuple[PlacedUnit, ...], int]  # units, bits of their places

MAX_DEVICES = 2000  # devices in one demand, so that sums fit the fields of a vector


class LeafNeed(msgspec.Struct, frozen=True, gc=False):
    """The number of devices that a leaf (a request or alternative) needs, and the places that it may take."""

    leaf: int
    count: int
    bits: int


class _Grouping(msgspec.Struct, frozen=True):
    """Groups of units such that devices of different groups have no value of an attribute in common."""

    attribute: str | None
    groups: tuple[_Group, ...]
    separates: bool


class _Open:
    """The values of a constraint that are still possible, by the places that have them."""

    __slots__ = ("_counts", "places", "values")

    def __init__(self, values: list[int]) -> None:
        self.values = values
        self.places = union(values)
        self._counts: dict[int, int] = {}

    def within(self, places: int) -> int:
        """Return the number of values that occur at these places."""
        known = self._counts.get(places)
        if known is None:
            known = self._counts[places] = sum(1 for value in self.values if value & places)
        return known


class Proof:
    """Proofs about one problem, with their shared caches."""

    def __init__(
        self,
        problem: SearchInput,
        limits: ProofLimits,
        budget: SearchSteps,
        horizon: int,
        *,
        limited: bool,
    ) -> None:
        self.problem = problem
        self.limits = limits
        self.budget = budget
        self.horizon = horizon
        self.supply = UnitSupply(problem, limits, budget)
        self.sums: dict[object, bool] = {}
        self.signs: dict[object, int] = {}
        self.spans: dict[int, tuple[int, int]] = {}
        self.open: dict[tuple[int, int], _Open] = {}
        self.groupings: list[_Grouping] = []
        self.value_bits: list[dict[Value, int]] = []
        self.viable: list[tuple[Leaf, ...]] = []
        for request in problem.question.requests:
            viable: list[Leaf] = []
            for leaf in request.leaves:
                taken = problem.leaves[leaf.index]
                if taken.candidates.bit_count() >= taken.count and (not leaf.all or taken.items):
                    viable.append(leaf)
            self.viable.append(tuple(viable))
        self.limited = limited
        # Above this number of bits (one for every value of every constraint and place), a proof costs more than it saves.
        self.too_large = sum(map(len, problem.shared.values)) * len(problem.places) > limits.bits

    def possible(  # noqa: PLR0917 - the hot path passes its state as plain integers
        self,
        request: int,
        leaf: int | None,
        wanted: int,
        start: int,
        left: int,
        common: int,
        taken: int,
        claim_devices: int,
    ) -> bool:
        """Return False only if the state has no solution: `wanted` more devices for the leaf from `start` on, then all later requests.

        `leaf` is None if no alternative of the request is tried yet. `claim_devices` is the number of devices that its claim has so far.
        """
        if self.too_large:
            return True
        problem = self.problem
        if not self.groupings:
            shared = problem.shared
            size = len(problem.places)
            values = sum(map(len, shared.values))
            self.budget.spend((len(problem.units) + size * values) >> 10)
            self.spans = {at: (start, width) for at, (start, width, _) in shared.match.items()}
            for at, tokens in shared.distinct.items():
                self.spans[at] = min(tokens.values(), default=0), 2 * len(tokens)
            self.value_bits = [
                {value: bitset(places, size) for value, places in places_of.items()} for places_of in shared.values
            ]
            self.groupings = list(self._group_units())
        leaves = problem.leaves
        requests = problem.question.leaves
        opened = request + (leaf is not None)
        ahead = self.viable[opened : self.horizon]
        first: list[LeafNeed] = []
        if leaf is not None and wanted and request < self.horizon:
            bits = leaves[leaf].candidates >> start << start
            first = [LeafNeed(leaf, wanted, bits)]
        for picked in self._picks(ahead):
            self.budget.spend(1)
            if self.limited and self._exceeds(picked, request, claim_devices + wanted):
                continue
            demand = first.copy()
            for index in picked:
                leaf_demand = leaves[index]
                if leaf_demand.count > 0:
                    demand.append(LeafNeed(index, leaf_demand.count, leaf_demand.candidates))
            demand.sort(key=lambda portion: requests[portion.leaf].admin)
            if self._fits(demand, left, common, taken):
                return True
        return False

    def _exceeds(self, picked: list[int], request: int, claim_devices: int) -> bool:
        """Return whether some claim would get more devices than it may hold."""
        question = self.problem.question
        total = {question.requests[request].claim: claim_devices} if question.requests else {}
        for leaf in picked:
            claim = question.leaves[leaf].claim
            total[claim] = total.get(claim, 0) + self.problem.leaves[leaf].count
        return any(count > MAX_RESULTS for count in total.values())

    def _picks(self, ahead: list[tuple[Leaf, ...]]) -> Iterator[list[int]]:
        """Yield choices of alternatives. For requests with equal alternatives, it only matters how many of them get each alternative."""
        if not all(ahead):
            return
        single = [leaves[0].index for leaves in ahead if len(leaves) == 1]
        several: dict[object, list[tuple[Leaf, ...]]] = {}
        for leaves in ahead:
            if len(leaves) > 1:
                kind: list[object] = []
                for leaf in leaves:
                    demand = self.problem.leaves[leaf.index]
                    claim = leaf.claim if leaf.constraints or self.limited else -1
                    kind.append((demand.likeness, demand.count, leaf.all, claim, leaf.constraints))
                several.setdefault(tuple(kind), []).append(leaves)
        combinations = 1
        for requests in several.values():
            combinations *= comb(len(requests) + len(requests[0]) - 1, len(requests))
        if combinations > self.limits.picks:
            several = {}  # too many choices: drop these requests from the demand
        choices = [
            list(combinations_with_replacement(range(len(requests[0])), len(requests))) for requests in several.values()
        ]
        for choice in product(*choices):
            yield single + [
                requests[at][alternative].index
                for requests, alternatives in zip(several.values(), choice, strict=True)
                for at, alternative in enumerate(alternatives)
            ]

    # ---- constraints

    def _group_units(self) -> Iterator[_Grouping]:
        """Yield the grouping in which each unit is a group, and one grouping for each constrained attribute."""
        problem = self.problem
        constraints = problem.question.constraints
        size = len(problem.places)
        bits: list[int] = []
        single: list[_Group] = []
        for unit in problem.units:
            own = bitset(unit.places, size)
            bits.append(own)
            single.append(((unit,), own))
        yield _Grouping(None, tuple(single), not constraints)
        names = [constraint.attribute for constraint in constraints]
        for name in dict.fromkeys(names):
            together = Disjoint()
            having: dict[Value, set[int]] = {}
            for constraint, places_of in zip(constraints, problem.shared.values, strict=True):
                if constraint.attribute != name:
                    continue
                for value, places in places_of.items():
                    units = having.setdefault(value, set())
                    units.update(problem.unit_of[place][0] for place in places)
            for units in having.values():
                first, *others = sorted(units)
                for other in others:
                    together.join(other, first)
            merged: list[_Group] = []
            for numbers in together.groups(range(len(problem.units))):
                group = tuple(problem.units[number] for number in numbers)
                own = union(bits[number] for number in numbers)
                merged.append((group, own))
            yield _Grouping(name, tuple(merged), len(merged) > 1)

    def _fits(self, demand: list[LeafNeed], left: int, common: int, taken: int) -> bool:
        """Return whether a demand can be met under every grouping of the units."""
        problem = self.problem
        if not demand or sum(portion.count for portion in demand) > MAX_DEVICES:
            return True
        narrowed, loose = self._narrow(demand, left, common, taken)
        if narrowed is None or not self._enough_values(narrowed, left):
            return False
        for grouping in self.groupings:
            if (grouping.separates or grouping.attribute is None) and not self._pack(
                grouping, narrowed, loose, left, common
            ):
                return False
        covered = {grouping.attribute for grouping in self.groupings if grouping.separates}
        for constraint, tied in loose.items():
            if problem.question.constraints[constraint].attribute in covered:
                continue
            # No grouping covers this constraint, so check its values one by one: one value must serve all requests that it covers.
            for bits in self.value_bits[constraint].values():
                tied_demand = [
                    LeafNeed(d.leaf, d.count, d.bits & bits) if at in tied else d for at, d in enumerate(narrowed)
                ]
                if all(d.bits.bit_count() >= d.count for d in tied_demand) and self._pack(
                    self.groupings[0], tied_demand, {}, left, common
                ):
                    break
            else:
                return False
        return True

    def _narrow(
        self, demand: list[LeafNeed], left: int, common: int, taken: int
    ) -> tuple[list[LeafNeed] | None, dict[int, list[int]]]:
        """Return the demand without places that constraints exclude, and the matchAttribute constraints whose value is not fixed yet.

        The demand is None if too few places remain.
        """
        problem = self.problem
        narrowed: list[LeafNeed] = []
        loose: dict[int, list[int]] = {}
        for portion in demand:
            leaf = problem.question.leaves[portion.leaf]
            bits = portion.bits
            for constraint in leaf.constraints:
                if constraint in problem.shared.match:
                    start, width, _ = problem.shared.match[constraint]
                    everything = (1 << width) - 1
                    if common >> start & everything == everything:
                        loose.setdefault(constraint, []).append(len(narrowed))
                    else:
                        bits &= self._open(constraint, left, common).places
                elif constraint in problem.shared.distinct:
                    bits &= self._open(constraint, left, common).places
            free = bits if leaf.admin else bits & ~taken
            if free.bit_count() < portion.count:
                return None, {}
            narrowed.append(LeafNeed(portion.leaf, portion.count, bits))
        return narrowed, loose

    def _enough_values(self, demand: list[LeafNeed], left: int) -> bool:
        """Return whether each distinctAttribute has at least as many unused values as its requests need devices."""
        problem = self.problem
        for constraint in problem.shared.distinct:
            reach = needed = 0
            for portion in demand:
                if constraint in problem.question.leaves[portion.leaf].constraints:
                    needed += portion.count
                    reach |= portion.bits
            if needed > 1 and self._open(constraint, left, 0).within(reach) < needed:
                return False
        return True

    def _open(self, constraint: int, left: int, common: int) -> _Open:
        """Return the values of a constraint that are still possible in a state."""
        start, width = self.spans[constraint]
        shared = self.problem.shared
        match = constraint in shared.match
        fields = common if match else left
        state = fields >> start & (1 << width) - 1
        key = constraint, state
        cached = self.open.get(key)
        if cached is not None:
            return cached
        bits = shared.match[constraint][2] if match else shared.distinct[constraint]
        having = [places for value, places in self.value_bits[constraint].items() if state >> bits[value] - start & 1]
        cached = self.open[key] = _Open(having)
        return cached

    # ---- packing

    def _pack(
        self,
        grouping: _Grouping,
        demand: list[LeafNeed],
        loose: dict[int, list[int]],
        left: int,
        common: int,
    ) -> bool:
        """Return whether the groups together can meet the demand."""
        supply, spend = self.supply, self.budget.spend
        types, inner = self._types(grouping, demand)
        bundles, free = self._bundles(grouping, demand, inner, loose)
        outer = Outer(free, bundles)
        guards = guard_bits(len(types))
        clip = reach = 0
        kinds: list[tuple[int, int]] = []
        covering: dict[int, list[int]] = {}  # distinctAttribute → types
        for at, type_ in enumerate(types):
            clip += type_.count << at * WIDTH
            reach |= type_.bits
            likeness = self.problem.leaves[type_.leaf].likeness
            kinds.append((likeness, type_.requests))
            for constraint in type_.covered:
                covering.setdefault(constraint, []).append(at)
        price = len(grouping.groups) * (2 + len(types))
        spend(price // 8)
        split = list(zip(*[supply.split(type_.bits) for type_ in types], strict=True))
        packing = clip, tuple(kinds)
        sign = self.signs.setdefault(packing, len(self.signs))
        bags: list[int] = []
        for units, bits in grouping.groups:
            within = bits & reach
            if not within:
                continue
            # Skip units without a place in the demand.
            reached: Iterable[PlacedUnit] = units
            if len(units) > 1:
                numbers = {self.problem.unit_of[place][0] for place in members(within)}
                reached = (self.problem.units[number] for number in numbers)
            ids = [
                supply.of_unit(unit, types, left, common, clip, guards, sign, split[unit.number]) for unit in reached
            ]
            ids.sort()
            caps: Caps = ()
            if grouping.attribute is not None:
                # The number of devices of the group that each distinctAttribute on its attribute allows.
                caps = tuple(
                    (tuple(dimensions), self._open(constraint, left, 0).within(bits))
                    for constraint, dimensions in covering.items()
                )
            bag = supply.of_group(tuple(ids), clip, guards, outer, caps)
            if supply.vectors[bag] != (0,):
                bags.append(bag)
        bags.sort()
        key = tuple(bags), outer.demand, outer.key
        known = self.sums.get(key)
        if known is None:
            weights = [supply.weight(type_) for type_ in types]
            known = covers(
                [supply.vectors[bag] for bag in bags],
                outer.demand,
                outer.guards,
                outer.weights(weights),
                work=self.limits.cover,
                spend=spend,
            )
            self.sums[key] = known
        return known

    def _types(self, grouping: _Grouping, demand: list[LeafNeed]) -> tuple[list[RequestType], list[int]]:
        """Merge requests for the same devices, where that keeps the proof exact; return the types, and the type of each request."""
        problem = self.problem
        types: list[RequestType] = []
        index: dict[object, int] = {}
        inner: list[int] = []
        for portion in demand:
            leaf = problem.question.leaves[portion.leaf]
            covered = tuple(
                c
                for c in leaf.constraints
                if c in problem.shared.distinct and problem.question.constraints[c].attribute == grouping.attribute
            )
            # A request never gets the same device twice, so requests for several shareable devices are not merged.
            separate = len(inner) if portion.count > 1 and portion.bits & ~problem.dedicated else -1
            key = problem.leaves[portion.leaf].likeness, portion.bits, covered, separate
            if key not in index:
                index[key] = len(types)
                types.append(RequestType(portion.leaf, portion.bits, covered))
            at = index[key]
            types[at].count += portion.count
            types[at].requests += 1
            inner.append(at)
        return types, inner

    def _bundles(
        self, grouping: _Grouping, demand: list[LeafNeed], inner: list[int], loose: dict[int, list[int]]
    ) -> tuple[dict[tuple[tuple[int, int], ...], int], dict[int, int]]:
        """Return the bundles, each of which one group must serve completely, and the types outside of bundles."""
        tied: dict[int, set[int]] = {}
        for constraint, positions in loose.items():
            if self.problem.question.constraints[constraint].attribute == grouping.attribute:
                for at in positions:
                    tied.setdefault(at, set()).update(positions)
        bundles: dict[tuple[tuple[int, int], ...], int] = {}
        free: dict[int, int] = {}
        done: set[int] = set()
        for at, portion in enumerate(demand):
            if at in done:
                continue
            if at not in tied:
                free[inner[at]] = free.get(inner[at], 0) + portion.count
                continue
            todo, together = [at], set()
            while todo:
                next_ = todo.pop()
                if next_ not in together:
                    together.add(next_)
                    todo += tied[next_]
            done |= together
            need: dict[int, int] = {}
            for other in together:
                need[inner[other]] = need.get(inner[other], 0) + demand[other].count
            bundle = tuple(sorted(need.items()))
            bundles[bundle] = bundles.get(bundle, 0) + 1
        return bundles, free
