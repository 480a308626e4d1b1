"""Matches leaves (requests or alternatives) with places (positions of devices).

The result is the places that each leaf may take, the places on which it fails, and the values of constrained attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.packing import bitset, members
from allocator.problem.cache import CompileCache
from allocator.problem.candidates import Offer
from allocator.problem.occupancy import Lineup, Occupancy
from allocator.problem.problem import Item, LeafDemand
from allocator.problem.question import Question

if TYPE_CHECKING:
    from collections.abc import Iterable

    from allocator.problem.problem import Value
    from allocator.problem.question import Leaf
    from dra.budget import Budget


class Matching(msgspec.Struct, frozen=True, eq=False):
    """The devices of one node and their use, against which leaves are matched."""

    question: Question
    lineup: Lineup
    occupancy: Occupancy
    unfit: list[set[int]]  # per leaf: places that cannot be taken in the initial state; empty if there are none
    cache: CompileCache

    def offer(self, leaf: Leaf, place: int) -> Offer:
        """Return the offer of a place's device to a leaf that may take it."""
        offer = self.cache.judged[self.lineup.kinds[place]][leaf.index]
        assert isinstance(offer, Offer)
        return offer


def match(matching: Matching, leaf: Leaf, count: int, budget: Budget) -> LeafDemand:
    """Find the places that a leaf may take, and the places on which it fails."""
    lineup, occupancy, cache = matching.lineup, matching.occupancy, matching.cache
    size = len(lineup.candidates)
    budget.charge(len(lineup.by_kind) + size // 8)
    demand = LeafDemand(count=count, failing={})
    candidates: list[int] = []
    faulty: list[int] = []
    for kind, places in lineup.by_kind.items():
        takes = cache.takes[kind]
        if takes.faults[leaf.index]:
            faulty += places
        elif takes.amounts[leaf.index] is not None:
            candidates += places
            offer = cache.judged[kind][leaf.index]
            if isinstance(offer, Offer) and offer.failing >= 0:
                demand.failing.update(dict.fromkeys(places, offer.failing))
    if not leaf.admin and occupancy.dedicated:
        faulty = [place for place in faulty if place not in occupancy.dedicated]
        candidates = [place for place in candidates if place not in occupancy.dedicated]
    excluded = occupancy.blocked
    if matching.unfit:
        excluded = excluded | matching.unfit[leaf.index]
    if excluded or occupancy.used:
        candidates = [place for place in candidates if place not in excluded and not _too_little(matching, leaf, place)]
    if leaf.all:
        for place, kind in enumerate(lineup.kinds):
            judgement = cache.judged[kind][leaf.index]
            if isinstance(judgement, Offer):
                in_use = place in occupancy.dedicated and not leaf.admin
                refused = judgement.barred is not None or place in occupancy.blocked or in_use
                breaks = judgement.missing >= 0 or judgement.failing >= 0
                demand.items.append(Item(place, refused, breaks, _too_little(matching, leaf, place)))
    demand.candidates = bitset(candidates, size)
    demand.faulty = bitset(faulty, size)
    return demand


def _too_little(matching: Matching, leaf: Leaf, place: int) -> bool:
    """Return whether the free amount of a capacity is too small. If this amount is negative, even a request of 0 does not fit."""
    used = matching.occupancy.used.get(place)
    if used is None:
        return False
    offer = matching.cache.judged[matching.lineup.kinds[place]][leaf.index]
    if not isinstance(offer, Offer):
        return False
    return any(used.get(name, 0) + amount > declared for name, amount, declared in offer.amounts)


def narrow_by_values(matching: Matching, demands: list[LeafDemand]) -> None:
    """Drop candidates whose value of a matchAttribute occurs on fewer devices than requested.

    Call this only if no leaf has faults, because the search would not find the fault of a dropped candidate.
    """
    question = matching.question
    size = len(matching.lineup.candidates)
    if any(leaf.all and leaf.constraints for leaf in question.leaves):
        return
    for leaf, demand in zip(question.leaves, demands, strict=True):
        count = demand.count
        for number, at in enumerate(leaf.constraints):
            constraint = question.constraints[at]
            if not constraint.match or count < 2:
                continue
            places_by_value: dict[Value, list[int]] = {}
            for place in members(demand.candidates):
                offer = matching.offer(leaf, place)
                for value in offer.values[number]:
                    places_by_value.setdefault(value, []).append(place)
            common_places: set[int] = set()
            for places in places_by_value.values():
                if len(places) >= count:
                    common_places.update(places)
            demand.candidates = bitset(common_places, size)


def number_equal(matching: Matching, demands: list[LeafDemand]) -> None:
    """Number the leaves; leaves that take equal amounts of equal places share a number."""
    numbers: dict[object, int] = {}
    leaves = matching.question.leaves
    takes = matching.cache.takes
    any_admin = any(leaf.admin for leaf in leaves)
    for leaf, demand in zip(leaves, demands, strict=True):
        key = (
            demand.candidates,
            leaf.admin,
            leaf.claim if any_admin else -1,
            tuple(sorted(leaf.derived.items())),
            tuple([takes[kind].amounts[leaf.index] for kind in matching.lineup.by_kind]),
        )
        demand.likeness = numbers.setdefault(key, len(numbers))


def constrained_values(
    matching: Matching,
    demands: list[LeafDemand],
    budget: Budget,
) -> list[dict[Value, list[int]]]:
    """Map each constraint's values to the places that have them, in the order of their first place."""
    question = matching.question
    places_by_value: list[dict[Value, list[int]]] = [{} for _ in question.constraints]
    for leaf, demand in zip(question.leaves, demands, strict=True):
        if not leaf.constraints:
            continue
        # For allocationMode All, the search checks every device, even if it is in use.
        checked_places: Iterable[int] = members(demand.candidates)
        if leaf.all:
            checked_places = [item.place for item in demand.items]
        for place in checked_places:
            offer = matching.offer(leaf, place)
            budget.charge(2 * len(offer.values))
            for at, values in zip(leaf.constraints, offer.values, strict=False):
                for value in sorted(values, key=repr):
                    places_by_value[at].setdefault(value, []).append(place)
    return [dict(sorted(places_of.items(), key=lambda entry: min(entry[1]))) for places_of in places_by_value]
