"""The problem: one question on one node with its devices in use, as integers for the search.

Devices become positions (in-tree order), requests become bit sets of positions, and the state that the search changes becomes two packed
integers: `left` (tokens, counters, capacities, unused values of distinctAttribute) and `common` (groups, values of matchAttribute). The
amounts that a leaf takes of a device are computed when first needed. So in a pool of a hundred thousand devices, only those that are tried
cost time.

Some counters may be *raised* by a device (negative consumption, which the API server accepts). Their fields are separate and may be below
zero, and only devices of the counter's pool check them. The search for such a problem (`irregular`) prunes nothing by symmetry or proof.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.problem.candidates import DeviceCandidate, DeviceJudgement, Offer
from allocator.problem.question import Question
from allocator.problem.unit import Pair, UnitPattern

if TYPE_CHECKING:
    from allocator.packing import BitFields
    from allocator.problem.question import Constraint


_CACHED = 1 << 16  # pairs kept for a leaf, fewer if they are large
Value = tuple[str, object]  # type and value of an attribute


class Item(msgspec.Struct, frozen=True):
    """A device that a leaf with allocationMode All requires."""

    place: int
    refused: bool  # by a check that comes before the constraints
    breaks_constraint: bool  # the attribute of a constraint is missing or cannot be derived
    lacks_capacity: bool  # found by the check that comes after the constraints


class PlacedUnit(msgspec.Struct, eq=False):
    """A unit at its position in the fields."""

    number: int
    pattern: UnitPattern
    places: list[int]
    base: int
    common_base: int
    full: int  # equal for units that are isomorphic in every respect
    groups: tuple[tuple[tuple[int, int, int], ...], ...]  # interchangeable members: (member, own fields, shift)
    left: int  # the initial state of its fields
    common: int


class LeafDemand(msgspec.Struct):
    """The places that one leaf may take, and how many it needs."""

    candidates: int = 0  # places that the leaf may take
    faulty: int = 0  # places at which the in-tree allocator ends with an error
    # Place → number of covering constraints before the constraint that fails there.
    failing: dict[int, int] = msgspec.field(default_factory=dict)
    items: list[Item] = msgspec.field(default_factory=list)
    count: int = 0
    likeness: int = 0  # equal for leaves that take equal amounts of the same places


class SharedFields(msgspec.Struct, eq=False):
    """The fields that constraints share across units. They lie above the fields of all units."""

    values: list[dict[Value, list[int]]]  # per constraint: value → places that have it
    match: dict[int, tuple[int, int, dict[Value, int]]]  # constraint → start, width, value → position of its bit
    distinct: dict[int, dict[Value, int]]  # constraint → value → bit of its token
    match_guards: int = 0
    distinct_guards: int = 0
    # By place of an irregular pool: the amounts that the place takes of the pool's counters, and the additional guards to check.
    counters: dict[int, int] = msgspec.field(default_factory=dict)
    counter_guards: dict[int, int] = msgspec.field(default_factory=dict)


class SearchInput(msgspec.Struct, eq=False):
    question: Question
    places: list[DeviceCandidate]
    units: list[PlacedUnit]
    unit_of: list[tuple[int, int]]  # place → unit, member; (-1, -1) for places that no leaf may take
    leaves: list[LeafDemand]
    shared: SharedFields
    kinds: list[int]
    judged: list[tuple[DeviceJudgement, ...]]
    left: int
    common: int
    guards: int
    common_guards: int
    open: int
    capacity_guards: int
    local_bits: int
    local_common_bits: int
    dedicated: int  # places whose device is not shareable
    pairs: list[dict[int, Pair]]
    globals: dict[tuple[int, int], tuple[int, int]]

    @property
    def weight(self) -> int:
        """The cost of a step, relative to a node of ordinary size."""
        return 1 + (self.guards.bit_length() + self.open.bit_length() >> 12)

    @property
    def irregular(self) -> bool:
        return bool(self.shared.counters)

    def pair(self, leaf: int, place: int) -> Pair:
        """Return the amounts that a leaf takes of a place's device; see `Pair` in `allocator.problem.unit`."""
        pairs = self.pairs[leaf]
        cached_pair = pairs.get(place)
        if cached_pair is not None:
            return cached_pair
        if len(pairs) * self.weight > _CACHED:
            pairs.clear()
        number, member = self.unit_of[place]
        unit = self.units[number]
        row = unit.pattern.rows[member][leaf]
        assert row is not None
        flag, once, join, again, join_again = row
        base, common_base = unit.base, unit.common_base
        cost, within = self._global(leaf, place)
        outside = ~(unit.pattern.open << common_base)
        counters = self.shared.counters.get(place, 0)
        dedicated = not self.places[place].device.allow_multiple_allocations
        later_join = (join_again << common_base | outside) & within
        later = (again << base) + cost
        if not flag:
            if dedicated:
                later += counters
            pairs[place] = 0, 0, 0, later, later_join
            return pairs[place]
        # A second request with admin access consumes the counters again. A further share does not.
        if dedicated and self.question.leaves[leaf].admin:
            later += counters
        first = (once << base) + cost + counters
        first_join = (join << common_base | outside) & within
        pairs[place] = flag << base, first, first_join, later, later_join
        return pairs[place]

    def token(self, place: int) -> int:
        """Return the bit that is set while the device is free; -1 if the device has no such bit."""
        number, member = self.unit_of[place]
        unit = self.units[number]
        bit = unit.pattern.token[member]
        return bit + unit.base if bit >= 0 else -1

    def admin_token(self, claim: int, place: int) -> int:
        """Return the bit that is set until the claim gets the device; -1 if the claim may get it repeatedly."""
        number, member = self.unit_of[place]
        unit = self.units[number]
        bit = unit.pattern.admin[member].get(claim, -1)
        return bit + unit.base if bit >= 0 else -1

    def _global(self, leaf: int, place: int) -> tuple[int, int]:
        """Return the amounts that a leaf takes of the fields of constraints."""
        kind = self.kinds[place]
        key = leaf, kind
        if key in self.globals:
            return self.globals[key]
        offer = self.judged[kind][leaf]
        assert isinstance(offer, Offer)
        constraints = self.question.leaves[leaf].constraints
        cost, within = 0, self.open
        for at, values in zip(constraints, offer.values, strict=False):
            if at in self.shared.match:
                start, width, bits = self.shared.match[at]
                value_bits = 0
                for value in values:
                    value_bits |= 1 << bits[value]
                within &= ~(((1 << width) - 1) << start) | value_bits
            elif at in self.shared.distinct:
                tokens = self.shared.distinct[at]
                cost += sum(1 << tokens[value] for value in values)
        self.globals[key] = cost, within
        return cost, within


def share_fields(
    constraints: tuple[Constraint, ...],
    values: list[dict[Value, list[int]]],
    left: BitFields,
    common: BitFields,
) -> tuple[SharedFields, int, int]:
    """Lay out the fields of constraints. Return them, and the initial state of their `left` and `common` fields."""
    shared = SharedFields(values, {}, {})
    ready = opened = 0
    for index, constraint in enumerate(constraints):
        if constraint.match and values[index]:
            start = common.add(len(values[index]))
            opened |= ((1 << len(values[index])) - 1) << start
            shared.match_guards |= 1 << (common.width - 1)
            shared.match[index] = start, len(values[index]), {value: start + n for n, value in enumerate(values[index])}
        elif not constraint.match:
            tokens = {value: left.add(1) for value in values[index]}
            shared.distinct[index] = tokens
            for start in tokens.values():
                ready |= 1 << start
                shared.distinct_guards |= 2 << start
    return shared, ready, opened
