"""Putting a problem together: one question, the pools of one node, and what is in use there.

The layout of fields depends on devices and claims only, never on what is in use: identical GPUs look identical whoever
holds them, and what was computed for one serves the others. What is in use decides the initial state, and which
candidates are dropped from the start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.answer import Fatal
from allocator.problem.candidates import Candidate, Fault, Judge, Offer
from allocator.problem.occupancy import PoolState, pool_state, start, tied, unit_members
from allocator.problem.packing import Fields, bitset, members, side_by_side
from allocator.problem.problem import Item, Problem, Taken, Unit, share_fields
from allocator.problem.question import MAX_RESULTS
from dra.stock import PoolStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator.problem.compiler import Compiler
    from allocator.problem.problem import Shared, Value
    from allocator.problem.question import Leaf
    from dra.objects import Node
    from dra.stock import Pool, PoolId, PoolUse


class Assembly:
    """One problem in the making."""

    def __init__(
        self,
        compiler: Compiler,
        node: Node,
        pools: Sequence[Pool],
        use: Callable[[PoolId], PoolUse],
        candidates: list[Candidate],
    ) -> None:
        self.compiler = compiler
        self.question = compiler.question
        self.judge = Judge(self.question, node)
        self.pools = pools
        self.use = use
        self.places = candidates
        self.kinds = [compiler.kind(self.judge, place) for place in self.places]
        self.judged = compiler.judged
        self.local = compiler.local
        self.by_kind: dict[int, list[int]] = {}
        for place, kind in enumerate(self.kinds):
            self.by_kind.setdefault(kind, []).append(place)
        self.states: dict[PoolId, PoolState] = {}
        strict = [leaf.index for leaf in self.question.leaves if leaf.all and leaf.constraints]
        self.ordered = (
            {
                place
                for place, kind in enumerate(self.kinds)
                if any(isinstance(self.judged[kind][leaf], Offer) for leaf in strict)
            }
            if strict
            else set()
        )
        self.home = [(-1, -1)] * len(self.places)
        self.busy: set[int] = set()
        self.shut: set[int] = set()
        self.worn: dict[int, dict[str, int]] = {}
        self.unfit: list[set[int]] = []

    def problem(self, *, narrow: bool) -> Problem:
        """Do it."""
        counts = self._up_front()
        wanted = self._wanted()
        self._look_at_pools(wanted)
        units = self._units(wanted)
        left, common = Fields(), Fields()
        start, left.width = side_by_side([(unit.left, unit.pattern.size) for unit in units])
        opened, common.width = side_by_side([(unit.common, unit.pattern.common) for unit in units])
        left.guards = side_by_side([(unit.pattern.guards, unit.pattern.size) for unit in units])[0]
        common.guards = side_by_side([(unit.pattern.common_guards, unit.pattern.common) for unit in units])[0]
        local_bits, local_common = left.width, common.width
        leaves = [self._taken(leaf, counts[leaf.index]) for leaf in self.question.leaves]
        if narrow and not any(taken.poison or taken.late for taken in leaves):
            self._narrow(leaves)
        self._likenesses(leaves)
        shared, ready, agreed = share_fields(self.question.constraints, self._values(leaves), left, common)
        ready |= left.guards >> local_bits << local_bits
        guards = left.guards
        ready |= self._irregular(wanted, shared, left)
        return Problem(
            question=self.question,
            places=self.places,
            units=units,
            home=self.home,
            leaves=leaves,
            shared=shared,
            kinds=self.kinds,
            judged=self.judged,
            left=start | ready,
            common=opened | agreed,
            guards=guards,
            common_guards=common.guards,
            open=((1 << common.width) - 1) & ~common.guards,
            capacity_guards=side_by_side([(unit.pattern.capacity_guards, unit.pattern.size) for unit in units])[0],
            local_bits=local_bits,
            local_common_bits=local_common,
            dedicated=bitset((at for at, place in enumerate(self.places) if not place.multi), len(self.places)),
            pairs=[{} for _ in leaves],
            globals={},
        )

    # ---- before the search

    def _up_front(self) -> list[int]:
        """Count what each leaf needs, and raise what is wrong before anything is tried."""
        counts = [self._everything(leaf) if leaf.all else leaf.count for leaf in self.question.leaves]
        least: dict[int, int] = {}
        for request in self.question.requests:
            so_far = least.get(request.claim, 0)
            fewest = min(counts[leaf.index] for leaf in request.leaves)
            if fewest > MAX_RESULTS - so_far:
                raise Fatal(
                    request.leaves[0].where,
                    f"{fewest} devices on top of {so_far} exceed the limit of {MAX_RESULTS} devices a claim",
                )
            least[request.claim] = so_far + fewest
        if any(total < 0 for total in least.values()):
            raise Fatal("ResourceClaim", "asks for less than no devices")
        return counts

    def _everything(self, leaf: Leaf) -> int:
        for pool in self.pools:
            if pool.status is not PoolStatus.OK:
                name = "/".join(pool.id)
                raise Fatal(leaf.where, f"asks for all devices, but pool {name} is {pool.status.value}: {pool.reason}")
        for kind, having in self.by_kind.items():
            if isinstance(self.judged[kind][leaf.index], Fault):
                fault = self.judge.ask(leaf, self.places[having[0]])
                assert isinstance(fault, Fault)
                raise Fatal(fault.where, fault.what)
        return sum(
            len(having) for kind, having in self.by_kind.items() if isinstance(self.judged[kind][leaf.index], Offer)
        )

    def _wanted(self) -> list[int]:
        """List the places that some leaf may take, or trip over."""
        kinds = {
            kind
            for kind in self.by_kind
            if any(taken is not None for taken in self.local[kind][0]) or any(self.local[kind][1])
        }
        return [place for place, kind in enumerate(self.kinds) if kind in kinds]

    # ---- what is in use

    def _look_at_pools(self, wanted: list[int]) -> None:
        """Find the state of every pool with candidates, and the places it takes out of the game."""
        candidates: dict[PoolId, list[Candidate]] = {}
        for place in wanted:
            candidates.setdefault(self.places[place].pool.id, []).append(self.places[place])
        for pool in self.pools:
            if pool.id in candidates:
                use = self.use(pool.id)
                self.states[pool.id] = pool_state(pool, use, self.compiler.rules, candidates[pool.id])
        for place in wanted:
            where = self.places[place]
            state = self.states[where.pool.id]
            if state.quiet:
                continue
            if where.name in state.use.dedicated:
                self.busy.add(place)
            if state.shut(where):
                self.shut.add(place)
            if where.name in state.use.used:
                self.worn[place] = state.use.used[where.name]

    def _who(self, place: int) -> int:
        """Say whom a device may be exchanged for: its kind, or nobody.

        Where All meets constraints, it depends on the order of its devices whether the end is fatal or not.
        """
        return -1 - place if place in self.ordered else self.kinds[place]

    def _units(self, wanted: list[int]) -> list[Unit]:
        units: list[Unit] = []
        unfit: list[set[int]] = [set() for _ in self.question.leaves]
        base = common_base = 0
        for group in tied(self.places, wanted, self.states):
            state = self.states[self.places[group[0]].pool.id]
            described, sets = unit_members(group, self.places, lambda place: self.local[self.kinds[place]], state)
            found = self.compiler.pattern(described)
            full, alike = self.compiler.interchangeable(found, tuple([self._who(place) for place in group]))
            left, common = start(found, sets, group, self.places, state)
            for at, place in enumerate(group):
                self.home[place] = len(units), at
            units.append(Unit(len(units), found, group, base, common_base, full, alike, left, common))
            base += found.size
            common_base += found.common
            if found.counters or found.groups:
                for lost, out in zip(unfit, self.compiler.unfit(found, left, common), strict=True):
                    lost.update(group[at] for at in out)
        self.unfit = unfit if any(unfit) else []
        return units

    # ---- leaves against places

    def _taken(self, leaf: Leaf, count: int) -> Taken:
        taken = Taken(count=count, late={})
        candidates: list[int] = []
        poison: list[int] = []
        for kind, having in self.by_kind.items():
            if self.local[kind][1][leaf.index]:
                poison += having
            elif self.local[kind][0][leaf.index] is not None:
                candidates += having
                offer = self.judged[kind][leaf.index]
                if isinstance(offer, Offer) and offer.failing >= 0:
                    taken.late.update(dict.fromkeys(having, offer.failing))
        if not leaf.admin and self.busy:
            poison = [place for place in poison if place not in self.busy]
            candidates = [place for place in candidates if place not in self.busy]
        lost = self.shut | self.unfit[leaf.index] if self.unfit else self.shut
        if lost or self.worn:
            candidates = [place for place in candidates if place not in lost and not self._over(leaf, place)]
        if leaf.all:
            taken.items = self._items(leaf)
        taken.candidates = bitset(candidates, len(self.places))
        taken.poison = bitset(poison, len(self.places))
        return taken

    def _items(self, leaf: Leaf) -> list[Item]:
        items: list[Item] = []
        for place, kind in enumerate(self.kinds):
            offer = self.judged[kind][leaf.index]
            if isinstance(offer, Offer):
                soft = offer.barred is not None or place in self.shut or (place in self.busy and not leaf.admin)
                fatal = offer.missing >= 0 or offer.failing >= 0
                items.append(Item(place, soft, fatal, self._over(leaf, place)))
        return items

    def _over(self, leaf: Leaf, place: int) -> bool:
        """Say whether what is in use leaves too little of some capacity, for which even nothing may be too much."""
        used = self.worn.get(place)
        offer = self.judged[self.kinds[place]][leaf.index]
        return (
            used is not None
            and isinstance(offer, Offer)
            and any(used.get(name, 0) + amount > declared for name, amount, declared in offer.amounts)
        )

    def _narrow(self, leaves: list[Taken]) -> None:
        """Drop candidates that have no value of a matchAttribute in common with as many others as are asked for.

        Only where nothing can end in a fault: a candidate that is dropped is not tripped over either.
        """
        if any(leaf.all and leaf.constraints for leaf in self.question.leaves):
            return
        for leaf, taken in zip(self.question.leaves, leaves, strict=True):
            for number, at in enumerate(leaf.constraints):
                if not self.question.constraints[at].match or taken.count < 2:
                    continue
                having: dict[Value, list[int]] = {}
                for place in members(taken.candidates):
                    offer = self.judged[self.kinds[place]][leaf.index]
                    assert isinstance(offer, Offer)
                    for value in offer.values[number]:
                        having.setdefault(value, []).append(place)
                enough = {place for places_ in having.values() if len(places_) >= taken.count for place in places_}
                taken.candidates = bitset(enough, len(self.places))

    def _likenesses(self, leaves: list[Taken]) -> None:
        """Number leaves so that those which take the same of the same places get the same number."""
        numbers: dict[object, int] = {}
        mixed = any(leaf.admin for leaf in self.question.leaves)
        for leaf, taken in zip(self.question.leaves, leaves, strict=True):
            key = (
                taken.candidates,
                leaf.admin,
                leaf.claim if mixed else -1,
                tuple(sorted(leaf.derived.items())),
                tuple([self.local[kind][0][leaf.index] for kind in self.by_kind]),
            )
            taken.likeness = numbers.setdefault(key, len(numbers))

    # ---- constraints

    def _values(self, leaves: list[Taken]) -> list[dict[Value, list[int]]]:
        """Find per constraint which places have which value, values in the order of their first place."""
        values: list[dict[Value, list[int]]] = [{} for _ in self.question.constraints]
        if not values:
            return values
        for leaf, taken in zip(self.question.leaves, leaves, strict=True):
            if not leaf.constraints:
                continue
            # The devices that All must get are looked at in turn, whether or not they are to be had.
            reached = [item.place for item in taken.items] if leaf.all else members(taken.candidates)
            for place in reached:
                offer = self.judged[self.kinds[place]][leaf.index]
                assert isinstance(offer, Offer)
                for at, found in zip(leaf.constraints, offer.values, strict=False):
                    for value in sorted(found, key=repr):
                        values[at].setdefault(value, []).append(place)
        return [dict(sorted(found.items(), key=lambda entry: min(entry[1]))) for found in values]

    def _irregular(self, wanted: list[int], shared: Shared, left: Fields) -> int:
        """Lay out counters that may be below zero, one field each for the pools that have them; answers with their state."""
        ready = 0
        for state in self.states.values():
            if not state.irregular:
                continue
            consumers = [place for place in wanted if self.places[place].pool is state.pool]
            bound = 1 + sum(leaf.admin for leaf in self.question.leaves)
            starts: dict[tuple[str, str], int] = {}
            guards = 0
            for name, counters in state.left.items():
                for counter, value in counters.items():
                    moved = sum(
                        abs(amount)
                        for place in consumers
                        for own, amounts, _ in self.places[place].body.consumption
                        for key, amount in amounts
                        if (own, key) == (name, counter)
                    )
                    width = (abs(value) + moved * bound + 1).bit_length()
                    starts[name, counter] = left.add(width)
                    guard = 1 << (left.width - 1)
                    guards |= guard
                    ready += (value << starts[name, counter]) + guard
            for place in consumers:
                consumption = self.places[place].body.consumption
                if consumption:
                    shared.counter_guards[place] = guards
                    shared.counters[place] = sum(
                        amount << starts[name, counter]
                        for name, amounts, _ in consumption
                        for counter, amount in amounts
                    )
        return ready
