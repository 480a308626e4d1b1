"""The supply of a proof: how many devices of which types a unit, or a group of units, can give in its present state.

Answers are sets of undominated count vectors (`allocator.search.vectors`), cached by state and numbered, so that equal units and equal
groups share them. An answer may be too large but never too small: limits end in "all that is requested".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.packing import spans, union
from allocator.search.vectors import WIDTH, field, guard_bits, largest_within, smaller_of_each, undominated

if TYPE_CHECKING:
    from allocator.problem import PlacedUnit, SearchInput
    from allocator.search.budget import SearchSteps

_COMBINED = 16  # the maximum of combinations when two sets of vectors are added, as a multiple of `ProofLimits.group`
Cap = tuple[tuple[int, ...], int]  # dimensions, and the maximum of devices in all of them together
Caps = tuple[Cap, ...]
_Vectors = tuple[int, ...]
_Bundle = tuple[tuple[int, int], ...]


class ProofLimits(msgspec.Struct, frozen=True):
    """The limits beyond which a proof returns "possible"."""

    unit: int = 5000  # states of one unit
    group: int = 1000  # vectors of one group
    cover: int = 60000  # operations of one sum
    picks: int = 64  # combinations of alternatives
    bits: int = 1 << 24  # places × values of constraints


class RequestType(msgspec.Struct, gc=False):
    """Requests for the same devices, merged into one dimension of the vectors."""

    leaf: int
    bits: int
    covered: tuple[int, ...]  # distinctAttribute constraints on the attribute of the grouping
    count: int = 0
    requests: int = 0


class UnitSupply:
    """The supply of the units of one problem."""

    def __init__(self, problem: SearchInput, limits: ProofLimits, budget: SearchSteps) -> None:
        self.problem = problem
        self.limits = limits
        self.budget = budget
        self.vectors: list[_Vectors] = []  # each set of vectors once
        self._numbers: dict[_Vectors, int] = {}
        self._rich: set[object] = set()  # kinds of units with too many states
        self._options: dict[object, int] = {}  # the index of the vectors of a unit or group, by its state
        self._splits: dict[int, list[int]] = {}

    def of_unit(  # noqa: PLR0917 - the hot path passes its state as plain integers
        self,
        unit: PlacedUnit,
        types: list[RequestType],
        left: int,
        common: int,
        clip: int,
        guards: int,
        sign: int,
        split: tuple[int, ...],
    ) -> int:
        """Return the index in `vectors` of the count vectors that a unit can give in its present state."""
        pattern = unit.pattern
        own = left >> unit.base & (1 << pattern.size) - 1
        agreed = common >> unit.common_base & (1 << pattern.common) - 1
        key = pattern.id, own, agreed, split, sign
        index = self._options.get(key)
        if index is None:
            rich = pattern.id, sign
            vectors = None if rich in self._rich else self._enumerate(unit, types, own, agreed, clip, split)
            if vectors is None:
                self._rich.add(rich)
                vectors = {self._estimate(unit, types, own, split)}
            index = self._options[key] = self._store(undominated(vectors, guards, self.budget.spend))
        return index

    def _enumerate(  # noqa: PLR0917 - the hot path passes its state as plain integers
        self, unit: PlacedUnit, types: list[RequestType], own: int, agreed: int, clip: int, split: tuple[int, ...]
    ) -> set[int] | None:
        """Return the count vectors of all states that a unit can reach; None if there are too many states."""
        pattern = unit.pattern
        guards = pattern.guards
        common_guards = pattern.common_guards
        opened = pattern.open
        admin = self.problem.question.leaves
        states = {(own, agreed, 0)}
        for at, row in enumerate(pattern.rows):
            multi = pattern.token[at] < 0
            for n, type_ in enumerate(types):
                pair = row[type_.leaf]
                if pair is None or not split[n] >> at & 1:
                    continue
                flag, cost, join, again, join_again = pair
                step, top = 1 << n * WIDTH, field(clip, n)
                for _ in range(type_.requests if multi or admin[type_.leaf].admin else 1):
                    new = set()
                    for x, y, vector in states:
                        if field(vector, n) == top:
                            continue
                        after, together = (x - cost, y & join) if x & flag else (x - again, y & join_again)
                        if after & guards == guards and (together + opened) & common_guards == common_guards:
                            new.add((after, together, vector + step))
                    if new <= states:
                        break
                    states |= new
                    if len(states) > 4 * self.limits.unit:
                        self.budget.spend(len(states) // 4)
                        return None
            # Drop the fields that no later device reads, such as tokens of this device and counters that only it consumes.
            keep, keep_common = pattern.keep[at]
            fill = opened & ~keep_common
            states = {(x & keep, y & keep_common | fill, vector) for x, y, vector in states}
            self.budget.spend(len(states) // 16)
            if len(states) > self.limits.unit:
                self.budget.spend(len(states) // 4)
                return None
        self.budget.spend(len(states) // 4)
        return {vector for _, _, vector in states}

    def _estimate(self, unit: PlacedUnit, types: list[RequestType], own: int, split: tuple[int, ...]) -> int:
        """Return an upper bound for a unit with too many states: by type, how many of the cheapest devices the sum of all fields allows."""
        pattern = unit.pattern
        devices = union(pattern.own)
        total = _sum(own & ~devices & ~pattern.guards, pattern.guards)
        shareable = any(token < 0 for token in pattern.token)
        vector = 0
        for n, type_ in enumerate(types):
            repeats = type_.requests if self.problem.question.leaves[type_.leaf].admin else 1
            costs: list[int] = []
            for at, row in enumerate(pattern.rows):
                pair = row[type_.leaf]
                if pair is not None and split[n] >> at & 1:
                    costs += [_sum(pair[3] & ~devices, pattern.guards)] * repeats
            paid = 0
            rest = total
            for cost in sorted(costs):
                rest -= cost
                if rest < 0 or paid == type_.count:
                    break
                paid += 1
            vector |= (type_.count if shareable else min(paid, type_.count)) << n * WIDTH
        return vector

    def of_group(self, ids: tuple[int, ...], clip: int, guards: int, outer: Outer, caps: Caps) -> int:
        """Return the index in `vectors` of the vectors, in outer dimensions, that a group of units can give."""
        key = ids, clip, outer.key, caps
        index = self._options.get(key)
        if index is not None:
            return index
        spend = self.budget.spend
        limit = self.limits.group
        sums: tuple[int, ...] = (0,)
        for id_ in ids:
            options = self.vectors[id_]
            combined = len(sums) * len(options)
            is_affordable = combined <= _COMBINED * limit
            if is_affordable:
                spend(combined >> 4)
                added = {smaller_of_each(left + right, clip, guards) for left in sums for right in options}
                sums = undominated(added, guards, spend)
            if not is_affordable or len(sums) > limit:
                everything = outer.everything(clip)
                index = self._store((everything,))
                self._options[key] = index
                return index
        for dimensions, top in caps:
            capped: set[int] = set()
            for vector in sums:
                counts = [field(vector, at) for at in dimensions]
                base = vector
                for at, count in zip(dimensions, counts, strict=True):
                    base -= count << at * WIDTH
                for pick in largest_within(counts, top):
                    smaller = base
                    for at, count in zip(dimensions, pick, strict=True):
                        smaller += count << at * WIDTH
                    capped.add(smaller)
            spend(len(capped) >> 4)
            sums = undominated(capped, guards, spend)
        translated = outer.translate(sums, guards)
        index = self._store(undominated(translated, outer.guards, spend))
        self._options[key] = index
        return index

    def weight(self, type_: RequestType) -> int:
        """Return the size of a request: the sum of the counters and capacities of its first candidate. The bound is valid for any size."""
        if not type_.bits:
            return 1
        lowest = type_.bits & -type_.bits
        place = lowest.bit_length() - 1
        number, member = self.problem.unit_of[place]
        pattern = self.problem.units[number].pattern
        pair = pattern.rows[member][type_.leaf]
        if pair is None:
            return 1
        cost = pair[3]
        if pattern.token[member] >= 0:
            cost &= ~pattern.own[member]
        return _sum(cost, pattern.guards) or 1

    def split(self, bits: int) -> list[int]:
        """Convert a set of places to each unit's own numbering."""
        split = self._splits.get(bits)
        if split is None:
            split = []
            for unit in self.problem.units:
                places = unit.places
                if len(places) == 1:
                    split.append(bits >> places[0] & 1)
                else:
                    split.append(sum(1 << at for at, place in enumerate(places) if bits >> place & 1))
            self._splits[bits] = split
        return split

    def _store(self, vectors: tuple[int, ...]) -> int:
        known = self._numbers.get(vectors)
        if known is None:
            known = self._numbers[vectors] = len(self.vectors)
            self.vectors.append(vectors)
        return known


class Outer:
    """The dimensions in which groups are summed: the types outside of bundles, then the bundles."""

    def __init__(self, free: dict[int, int], bundles: dict[_Bundle, int]) -> None:
        self.free = tuple(free)
        self.bundles = tuple(bundles.items())
        self.key = self.free, self.bundles
        counts = [*free.values(), *bundles.values()]
        self.guards = guard_bits(len(counts))
        self.demand = 0
        start = 0
        for count in counts:
            self.demand += count << start
            start += WIDTH

    def everything(self, clip: int) -> int:
        """Return the vector of a group without a bound."""
        counts = [field(clip, at) for at in self.free] + [count for _, count in self.bundles]
        return sum(count << at * WIDTH for at, count in enumerate(counts))

    def weights(self, sizes: list[int]) -> tuple[tuple[int, ...], ...]:
        """Return the weightings for the bound: all dimensions equal and, if their sizes differ, by size."""
        by_size = [sizes[at] for at in self.free]
        for bundle, _ in self.bundles:
            size = sum(sizes[at] * count for at, count in bundle)
            by_size.append(size)
        equal = (1,) * len(by_size)
        even = len(set(by_size)) == 1
        if even:
            return (equal,)
        return equal, tuple(by_size)

    def translate(self, vectors: tuple[int, ...], guards: int) -> set[int]:
        """Return the vectors in outer dimensions: every possible number of bundles, and the remaining devices as free types."""
        out: set[int] = set()
        for vector in vectors:
            todo = [(vector, 0, 0)]
            while todo:
                rest, at, given = todo.pop()
                if at == len(self.bundles):
                    out.add(given + sum(field(rest, dimension) << n * WIDTH for n, dimension in enumerate(self.free)))
                    continue
                bundle, wanted = self.bundles[at]
                need = sum(count << dimension * WIDTH for dimension, count in bundle)
                start = (len(self.free) + at) * WIDTH
                for count in range(wanted + 1):
                    todo.append((rest, at + 1, given + (count << start)))
                    if (rest | guards) - need & guards != guards:
                        break
                    rest -= need
        return out


def _sum(packed: int, guards: int) -> int:
    """Return the sum of all fields of a packed integer."""
    return sum(packed >> start & (1 << guard - start) - 1 for start, guard in spans(guards)) if packed else 0
