"""Results for one question that hold on all nodes: judgements by kind of device, and unit patterns (the layout of devices tied together).

The cache only grows; its owner limits its `size`.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from allocator.problem.attributes import PageCache, attributes_read
from allocator.problem.candidates import Fault, Offer, attribute_of, never_matches
from allocator.problem.unit import Amounts, Leaves, Takes, UnitPattern, pattern
from dra.server import LISTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.problem.attributes import AttributesRead
    from allocator.problem.candidates import DeviceCandidate, DeviceJudge, DeviceJudgement
    from allocator.problem.question import Question
    from allocator.problem.unit import UnitMember
    from dra.budget import Budget
    from dra.policy import Rules

    _Judged = tuple[DeviceJudgement, ...]  # per leaf
    _Unfit = tuple[tuple[int, ...], ...]  # per leaf, the members of a unit

Sibling = tuple[int, int, int]  # member, its own fields, where they start
Siblings = tuple[tuple[Sibling, ...], ...]  # the members of a unit, grouped by interchangeability


class SingleUnit(msgspec.Struct, frozen=True):
    """The unit of an independent device of which no share is in use."""

    pattern: UnitPattern
    full: int
    siblings: Siblings


class CompileCache:
    """Kinds of devices, unit patterns, and the results derived from them, for one question and one set of rules."""

    def __init__(self, question: Question, rules: Rules, pages: PageCache | None = None) -> None:
        self.question = question
        self.rules = rules
        self.pages = PageCache() if pages is None else pages
        self._reads: AttributesRead | None = None
        self._names: tuple[tuple[str, str], ...] = ()
        self.judged: list[_Judged] = []  # by kind
        self.takes: list[Takes] = []  # by kind
        self.single_units: dict[int, SingleUnit] = {}  # by kind
        claims: list[int] = []
        admins: list[bool] = []
        self._signs: list[object] = []
        for leaf in question.leaves:
            claims.append(leaf.claim)
            admins.append(leaf.admin)
            attributes = tuple(question.constraints[at].attribute for at in leaf.constraints)
            # For leaves with the same sign, a device gets the same judgement, except for the names in messages.
            self._signs.append((leaf.ask.index, attributes, tuple(sorted(leaf.derived.items()))))
        self._leaves = Leaves(tuple(claims), tuple(admins))
        self._kinds: dict[object, int] = {}
        self._patterns: dict[object, UnitPattern] = {}
        self._full: dict[object, tuple[int, Siblings]] = {}
        self._unfit: dict[object, _Unfit] = {}

    @property
    def size(self) -> int:
        return len(self._kinds) + len(self._patterns) + len(self._full) + len(self._unfit)

    def reads(self, budget: Budget) -> AttributesRead:
        """Return the attributes that have equal values on all devices of one kind. Only the first call charges the budget."""
        if self._reads is None:
            self._reads = attributes_read(self.question, self.rules, budget)
            self._names = self._reads.names
        return self._reads

    def kinds(self, judge: DeviceJudge, candidates: Sequence[DeviceCandidate]) -> list[int]:
        """Return the kind of each device. The first device of each kind is judged for every leaf.

        Devices of one kind may consume different counters, because counters belong to units.
        """
        self.reads(judge.budget)
        knows_lists = self.question.reading.enabled(LISTS)
        kinds: list[int] = []
        for page, page_candidates in groupby(candidates, attrgetter("page")):
            spec = page.slice.spec
            rows = self.pages.rows(page, self._names)
            needs_node_feature = bool(spec.skip_node_operations) and not judge.allows_skipping
            node = judge.node.metadata.name if spec.per_device_node_selection else None
            for candidate in page_candidates:
                identity = None if knows_lists else self._identity(candidate)
                key = candidate.body.plain, page.pool[0], rows[candidate.at], needs_node_feature, node, identity
                kind = self._kinds.get(key)
                if kind is None:
                    by_sign: dict[object, DeviceJudgement] = {}
                    for leaf, sign in zip(self.question.leaves, self._signs, strict=True):
                        if sign not in by_sign:
                            by_sign[sign] = judge.ask(leaf, candidate)
                    judged = tuple([by_sign[sign] for sign in self._signs])
                    # The kind is added only now, because OutOfBudget during judging must not leave a kind without a judgement.
                    kind = self._kinds[key] = len(self.judged)
                    self.judged.append(judged)
                    self.takes.append(_takes(self.question, judged, shareable=candidate.multi))
                kinds.append(kind)
        return kinds

    def _identity(self, candidate: DeviceCandidate) -> object:
        """Return a unique key for a device with a constrained value that never equals another; None for other devices."""
        reading = self.question.reading
        driver = candidate.pool.id[0]
        for constraint in self.question.constraints:
            attribute = attribute_of(candidate.device, driver, constraint.attribute)
            if attribute is not None and never_matches(attribute, reading):
                return candidate.id
        return None

    def pattern(self, unit: tuple[UnitMember, ...], budget: Budget) -> UnitPattern:
        """Return the pattern of a unit. The cost of a new pattern grows with the square of its members, so the budget is charged."""
        cached_pattern = self._patterns.get(unit)
        if cached_pattern is None:
            budget.charge(len(unit) * (1 + len(self._signs)) * (2 + len(unit) // 8))
            cached_pattern = self._patterns[unit] = pattern(len(self._patterns), unit, self._leaves)
        return cached_pattern

    def interchangeable(self, unit: UnitPattern, kinds: tuple[int, ...]) -> tuple[int, Siblings]:
        """Return a number that identical units share, and the unit's members grouped by interchangeability.

        Members are interchangeable if only the positions of their own fields differ.
        """
        key = unit.id, kinds
        cached_groups = self._full.get(key)
        if cached_groups is not None:
            return cached_groups
        groups: dict[object, list[Sibling]] = {}
        for index, own in enumerate(unit.own):
            start = (own & -own).bit_length() - 1 if own else 0
            row: list[object] = []
            for pair in unit.rows[index]:
                if pair is None:
                    row.append(None)
                    continue
                flag, once, join, again, join_again = pair
                costs = tuple([(bits & ~own, (bits & own) >> start) for bits in (flag, once, again)])
                row.append((costs, join, join_again))
            groups.setdefault((tuple(row), kinds[index], own >> start), []).append((index, own, start))
        result = self._full[key] = len(self._full), tuple(map(tuple, groups.values()))
        return result

    def unfit(self, unit: UnitPattern, left: int, common: int) -> _Unfit:
        """List, for each leaf, the unit members that cannot be taken in this initial state."""
        key = unit.id, left, common
        cached_unfit = self._unfit.get(key)
        if cached_unfit is not None:
            return cached_unfit
        unfit_members: list[tuple[int, ...]] = []
        for leaf in range(len(unit.rows[0])):
            members: list[int] = []
            for index, row in enumerate(unit.rows):
                pair = row[leaf]
                if pair is None:
                    continue
                mark, first_cost, first_join, cost, join = pair
                if left & mark:
                    cost, join = first_cost, first_join
                left_after = (left - cost) & unit.guards
                open_after = ((common & join) + unit.open) & unit.common_guards
                if left_after != unit.guards or open_after != unit.common_guards:
                    members.append(index)
            unfit_members.append(tuple(members))
        self._unfit[key] = tuple(unfit_members)
        return self._unfit[key]


def _takes(question: Question, judged: _Judged, *, shareable: bool) -> Takes:
    """Return the amounts of a device's capacities that each leaf would take."""
    amounts: list[Amounts | None] = []
    declared: dict[str, int] = {}
    faults: list[bool] = []
    for leaf, judgement in zip(question.leaves, judged, strict=True):
        faults.append(isinstance(judgement, Fault))
        if not isinstance(judgement, Offer) or judgement.barred or (judgement.missing >= 0 and not leaf.all):
            amounts.append(None)
            continue
        taken: list[tuple[str, int]] = []
        for name, amount, value in judgement.amounts:
            if amount and shareable:
                taken.append((name, amount))
                declared[name] = value
        amounts.append(tuple(sorted(taken)))
    return Takes(tuple(amounts), tuple(faults), tuple(sorted(declared.items())))
