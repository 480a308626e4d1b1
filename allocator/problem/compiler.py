"""Compiling one question for any number of nodes, and what the problems that come of it share: devices judged once per kind,
patterns of units laid out once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.problem.attributes import Reads
from allocator.problem.candidates import Candidate, Fault, Judge, Judgement, Offer, candidates_of
from allocator.problem.layout import Assembly
from allocator.problem.occupancy import Local, unfit
from allocator.problem.unit import Leaves, Member, pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator.problem.problem import Problem
    from allocator.problem.question import Question
    from allocator.problem.unit import Pattern
    from dra.objects import Node
    from dra.policy import Rules
    from dra.stock import Pool, PoolId, PoolUse

Interchangeable = tuple[tuple[tuple[int, int, int], ...], ...]


class Compiler:
    """Compiles one question for any number of nodes, keeping what they share: kinds judged, patterns of units."""

    def __init__(self, question: Question, rules: Rules) -> None:
        self.question = question
        self.rules = rules
        self.reads = Reads(question, rules)
        self.leaves = Leaves(
            tuple(leaf.claim for leaf in question.leaves), tuple(leaf.admin for leaf in question.leaves)
        )
        # Leaves with the same sign judge every device alike, but for the names in what they say.
        self.signs = [
            (
                leaf.ask.index,
                tuple(question.constraints[at].attribute for at in leaf.constraints),
                tuple(sorted(leaf.derived.items())),
            )
            for leaf in question.leaves
        ]
        self.kinds: dict[object, int] = {}
        self.judged: list[tuple[Judgement, ...]] = []
        self.local: list[Local] = []
        self.patterns: dict[object, Pattern] = {}
        self.full: dict[object, tuple[int, Interchangeable]] = {}
        self._unfit: dict[object, tuple[tuple[int, ...], ...]] = {}

    def compile(
        self,
        node: Node,
        pools: Sequence[Pool],
        use: Callable[[PoolId], PoolUse],
        arrange: Callable[[list[Candidate]], list[Candidate]] | None = None,
        *,
        narrow: bool = True,
    ) -> Problem:
        """Compile the question for one node; raises Fatal for what the in-tree allocator finds wrong before it searches.

        `arrange` puts the devices into another order than the in-tree one; `narrow` drops candidates whose values of a
        matchAttribute are too rare for the count that is asked for.
        """
        found = candidates_of(pools)
        return Assembly(self, node, pools, use, arrange(found) if arrange else found).problem(narrow=narrow)

    @property
    def size(self) -> int:
        """Say how much is kept."""
        return len(self.kinds) + len(self.patterns) + len(self.full) + len(self._unfit)

    def kind(self, judge: Judge, place: Candidate) -> int:
        """Find the kind of a device, judging it for every leaf if it is the first of its kind.

        Devices of one kind may consume different counters; that is a matter of their units.
        """
        spec = place.page.slice.spec
        key = (
            place.body.plain,
            place.pool.id[0],
            self.reads.of(place.page)[place.at],
            bool(spec.skip_node_operations) and not judge.operations,
            judge.node.metadata.name if spec.per_device_node_selection else None,
        )
        found = self.kinds.get(key)
        if found is None:
            found = self.kinds[key] = len(self.judged)
            same: dict[object, Judgement] = {}
            judged = tuple(
                [
                    same[sign] if sign in same else same.setdefault(sign, judge.ask(leaf, place))
                    for leaf, sign in zip(self.question.leaves, self.signs, strict=True)
                ]
            )
            self.judged.append(judged)
            self.local.append(self._takes(judged, multi=bool(place.device.allow_multiple_allocations)))
        return found

    def pattern(self, unit: tuple[Member, ...]) -> Pattern:
        """Find the pattern of a unit."""
        found = self.patterns.get(unit)
        if found is None:
            found = self.patterns[unit] = pattern(len(self.patterns), unit, self.leaves)
        return found

    def interchangeable(self, unit: Pattern, kinds: tuple[int, ...]) -> tuple[int, Interchangeable]:
        """Number the unit among those that are the same in every respect, and group its interchangeable members."""
        key = unit.id, kinds
        found = self.full.get(key)
        if found is None:
            groups: dict[object, list[tuple[int, int, int]]] = {}
            for at, own in enumerate(unit.own):
                shift = (own & -own).bit_length() - 1 if own else 0
                row = tuple(
                    pair and tuple((x & ~own, (x & own) >> shift) if n not in (2, 4) else x for n, x in enumerate(pair))
                    for pair in unit.rows[at]
                )
                groups.setdefault((row, kinds[at], own >> shift), []).append((at, own, shift))
            found = self.full[key] = len(self.full), tuple(tuple(group) for group in groups.values())
        return found

    def unfit(self, found: Pattern, left: int, common: int) -> tuple[tuple[int, ...], ...]:
        """List per leaf the members of a unit in this state that cannot be taken from the start."""
        key = found.id, left, common
        lost = self._unfit.get(key)
        if lost is None:
            lost = self._unfit[key] = unfit(found, left, common)
        return lost

    def _takes(self, judged: tuple[Judgement, ...], *, multi: bool) -> Local:
        """Per leaf what is taken of capacities, whether there is a fault, and the declared values of what is taken."""
        takes: list[tuple[tuple[str, int], ...] | None] = []
        poison: list[bool] = []
        declared: dict[str, int] = {}
        for leaf, one in zip(self.question.leaves, judged, strict=True):
            poison.append(isinstance(one, Fault))
            if not isinstance(one, Offer) or one.barred or (one.missing >= 0 and not leaf.all):
                takes.append(None)
                continue
            amounts = [(name, amount) for name, amount, _ in one.amounts if amount] if multi else []
            takes.append(tuple(sorted(amounts)))
            declared.update({name: value for name, amount, value in one.amounts if amount and multi})
        return tuple(takes), tuple(poison), tuple(sorted(declared.items()))
