"""What the problems of one question have in common, whichever node they are about: devices judged once a kind, patterns of
units laid out once. It only grows; who keeps one looks at its `size`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.problem.attributes import PageCache, attributes_read
from allocator.problem.candidates import Fault, Offer, attribute_of, is_singular
from allocator.problem.occupancy import unfit
from allocator.problem.unit import Amounts, Leaves, Pattern, Takes, pattern
from dra.server import LISTS

if TYPE_CHECKING:
    from allocator.problem.attributes import Reads
    from allocator.problem.candidates import Candidate, Judge, Judgement
    from allocator.problem.question import Leaf, Question
    from allocator.problem.unit import Member, Pair
    from dra.budget import Budget
    from dra.policy import Rules

    _Judged = tuple[Judgement, ...]  # per leaf
    _Unfit = tuple[tuple[int, ...], ...]  # per leaf, the members of a unit

Sibling = tuple[int, int, int]  # member, its own fields, where they start
Siblings = tuple[tuple[Sibling, ...], ...]  # members of a unit, those that are interchangeable together


class Alone(msgspec.Struct, frozen=True):
    """The unit that a device of one kind is if nothing ties it to others and no share of it is in use."""

    pattern: Pattern
    full: int
    siblings: Siblings


class CompileCache:
    """Kinds, patterns, and what follows from them, for one question and one set of rules."""

    def __init__(self, question: Question, rules: Rules, pages: PageCache | None = None) -> None:
        self.question = question
        self.rules = rules
        self.pages = PageCache() if pages is None else pages
        self._reads: Reads | None = None
        self._names: tuple[tuple[str, str], ...] = ()
        self.judged: list[_Judged] = []  # by kind
        self.takes: list[Takes] = []  # by kind
        self.alone: dict[int, Alone] = {}  # by kind
        claims: list[int] = []
        admins: list[bool] = []
        self._signs: list[object] = []
        for leaf in question.leaves:
            claims.append(leaf.claim)
            admins.append(leaf.admin)
            sign = _sign(leaf, question)
            self._signs.append(sign)
        self._leaves = Leaves(tuple(claims), tuple(admins))
        self._kinds: dict[object, int] = {}
        self._patterns: dict[object, Pattern] = {}
        self._full: dict[object, tuple[int, Siblings]] = {}
        self._unfit: dict[object, _Unfit] = {}

    @property
    def size(self) -> int:
        """Say how much is kept."""
        return len(self._kinds) + len(self._patterns) + len(self._full) + len(self._unfit)

    def reads(self, budget: Budget) -> Reads:
        """Name the attributes that devices of one kind agree on; the first time that is paid for."""
        if self._reads is None:
            self._reads = attributes_read(self.question, self.rules, budget)
            self._names = self._reads.names
        return self._reads

    def kind(self, judge: Judge, candidate: Candidate) -> int:
        """Find the kind of a device, judging it for every leaf if it is the first of its kind.

        Devices of one kind may consume different counters; that is a matter of their units.
        """
        page = candidate.page
        spec = page.slice.spec
        self.reads(judge.budget)
        key = (
            candidate.body.plain,
            page.pool[0],
            self.pages.rows(page, self._names)[candidate.at],
            bool(spec.skip_node_operations) and not judge.operations,
            judge.node.metadata.name if spec.per_device_node_selection else None,
            self._identity(candidate),
        )
        found = self._kinds.get(key)
        if found is None:
            judged = self._judge(judge, candidate)
            found = self._kinds[key] = len(self.judged)
            self.judged.append(judged)
            self.takes.append(_takes(self.question, judged, shareable=candidate.multi))
        return found

    def _identity(self, candidate: Candidate) -> object:
        """Name a device that is like no other because a constraint reads what equals nothing."""
        reading = self.question.reading
        if reading.on(LISTS):
            return None
        driver = candidate.pool.id[0]
        for constraint in self.question.constraints:
            read = attribute_of(candidate.device, driver, constraint.attribute)
            if read is not None and is_singular(read, reading):
                return candidate.id
        return None

    def pattern(self, unit: tuple[Member, ...], budget: Budget) -> Pattern:
        """Find the pattern of a unit."""
        found = self._patterns.get(unit)
        if found is not None:
            return found
        price = _price_of_pattern(len(unit), len(self._signs))
        budget.charge(price)
        number = len(self._patterns)
        found = pattern(number, unit, self._leaves)
        self._patterns[unit] = found
        return found

    def interchangeable(self, unit: Pattern, kinds: tuple[int, ...]) -> tuple[int, Siblings]:
        """Number the unit among those that are the same in every respect, and group its interchangeable members."""
        key = unit.id, kinds
        found = self._full.get(key)
        if found is None:
            found = self._full[key] = len(self._full), _siblings(unit, kinds)
        return found

    def unfit(self, found: Pattern, left: int, common: int) -> tuple[tuple[int, ...], ...]:
        """List per leaf the members of a unit in this state that cannot be taken from the start."""
        key = found.id, left, common
        lost = self._unfit.get(key)
        if lost is None:
            lost = self._unfit[key] = unfit(found, left, common)
        return lost

    def _judge(self, judge: Judge, candidate: Candidate) -> _Judged:
        """Judge a device for every leaf, once for leaves that ask the same of it."""
        by_sign: dict[object, Judgement] = {}
        judged: list[Judgement] = []
        for leaf, sign in zip(self.question.leaves, self._signs, strict=True):
            known = by_sign.get(sign)
            if known is None:
                known = judge.ask(leaf, candidate)
                by_sign[sign] = known
            judged.append(known)
        return tuple(judged)


def _sign(leaf: Leaf, question: Question) -> object:
    """Leaves with the same sign judge every device alike, but for the names in what they say."""
    attributes = tuple(question.constraints[at].attribute for at in leaf.constraints)
    return leaf.ask.index, attributes, tuple(sorted(leaf.derived.items()))


def _takes(question: Question, judged: tuple[Judgement, ...], *, shareable: bool) -> Takes:
    amounts: list[Amounts | None] = []
    declared: dict[str, int] = {}
    faults: list[bool] = []
    for leaf, one in zip(question.leaves, judged, strict=True):
        faults.append(isinstance(one, Fault))
        if not isinstance(one, Offer) or one.barred:
            amounts.append(None)
            continue
        if one.missing >= 0 and not leaf.all:
            amounts.append(None)
            continue
        taken: list[tuple[str, int]] = []
        for name, amount, value in one.amounts:
            if amount and shareable:
                taken.append((name, amount))
                declared[name] = value
        taken.sort()
        amounts.append(tuple(taken))
    room = tuple(sorted(declared.items()))
    return Takes(tuple(amounts), tuple(faults), room)


def _siblings(unit: Pattern, kinds: tuple[int, ...]) -> Siblings:
    """Group members that differ in nothing but where their own fields stand."""
    groups: dict[object, list[Sibling]] = {}
    for at, own in enumerate(unit.own):
        start = 0
        if own:
            lowest = own & -own
            start = lowest.bit_length() - 1
        row = [_without_position(pair, own, start) for pair in unit.rows[at]]
        width = own >> start
        likeness = tuple(row), kinds[at], width
        group = groups.setdefault(likeness, [])
        group.append((at, own, start))
    return tuple(map(tuple, groups.values()))


def _without_position(pair: Pair | None, own: int, start: int) -> object:
    if pair is None:
        return None
    flag, once, join, again, join_again = pair
    costs = tuple((bits & ~own, (bits & own) >> start) for bits in (flag, once, again))
    return costs, join, join_again


def _price_of_pattern(members: int, leaves: int) -> int:
    """Say what laying out a unit costs: every member looks at the fields of all others."""
    return members * (1 + leaves) * (2 + members // 8)
