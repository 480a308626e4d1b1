"""Units: devices tied together by counter sets or compatibility rules, typically the partitions of one physical device.

A unit's fields are contiguous, so that isomorphic units have equal local integers and a result for one unit holds for all of them. A
`UnitPattern` is everything about a unit that depends neither on its position nor on which of its devices are in use.

A device has these fields: a token (dedicated devices), a token for each claim with admin access, a first-share flag (shareable devices
that consume counters), the remaining capacities, and an exclusion field for compatibility rules. They are followed by the counters of the
unit's counter sets. Among the common fields, each counter set has one field for its groups.

A (leaf, device) pair is (flag, cost, join, cost2, join2). Taking the device subtracts `cost` from the state and ANDs `join` with the common
fields while `flag` is set in the state; afterwards `cost2` and `join2` apply. So further shares do not pay for counters and groups again,
and a request with admin access takes the token only if the device is free.
"""

from __future__ import annotations

from collections import defaultdict
from math import gcd

import msgspec

from allocator.packing import BitFields, spans
from dra.stock import Consumption

# flag, cost, join, cost2, join2: see above. It is a plain tuple, because the search unpacks one for every candidate, and a named tuple
# takes twice as long to unpack.
Pair = tuple[int, int, int, int, int]
Amounts = tuple[tuple[str, int], ...]  # what a share takes of each capacity, without amounts of zero


_Scaled = tuple[int, int]  # start of a field, and the amount of one unit in it
_Counter = tuple[int, int, int]  # start, amount of one unit, and the highest value
_Groups = tuple[int, tuple[str, ...]]  # start of the bits, and the name for each


class Takes(msgspec.Struct, frozen=True):
    """The amounts that the leaves of a question would take of a device of one kind."""

    amounts: tuple[Amounts | None, ...]  # by leaf, of the device's capacities; None if the leaf cannot have the device
    faults: tuple[bool, ...]  # by leaf: the in-tree allocator ends with an error when it tries the device
    declared: Amounts  # the declared values of the capacities taken


class UnitMember(msgspec.Struct, frozen=True):
    """One device of a unit, described so that equal devices of other units are equal. Hashable: patterns are cached by their members."""

    multi: bool
    # Per leaf: the amounts that the leaf would take of the device's capacities (none for dedicated devices), or None if it cannot have it.
    takes: tuple[Amounts | None, ...]
    faults: tuple[bool, ...]
    capacity: Amounts  # the declared values of the capacities taken
    consumption: Consumption  # counter sets renamed to "0", "1", … in order of appearance; groups as admitted names
    incompatible: tuple[int, ...]  # positions of the members that must not be in use together with this one


class Leaves(msgspec.Struct, frozen=True):
    """The properties of a question's leaves on which the fields depend."""

    claims: tuple[int, ...]
    admin: tuple[bool, ...]


class UnitPattern(msgspec.Struct, frozen=True, eq=False):
    """The fields of a unit and what each leaf takes of each member, relative to the unit's base."""

    id: int
    size: int
    guards: int
    common: int
    common_guards: int
    open: int  # all ones between the common guards: "no restriction"
    rows: tuple[tuple[Pair | None, ...], ...]  # per member, per leaf
    own: tuple[int, ...]  # per member: its own fields, without guards
    keep: tuple[tuple[int, int], ...]  # per member: the fields that later members read
    token: tuple[int, ...]  # per member: the bit of its token, -1 if it has none
    admin: tuple[dict[int, int], ...]  # per member: claim → bit
    first: tuple[int, ...]  # per member: the bit that is set until a share is taken, -1 if there is none
    capacity: tuple[dict[str, tuple[int, int]], ...]  # per member: name → start, unit
    counters: dict[tuple[str, str], tuple[int, int, int]]  # set, counter → start, unit, most that can be needed
    groups: dict[str, tuple[int, tuple[str, ...]]]  # set → start, names
    capacity_guards: int
    ready: int  # the state with nothing in use; counters are filled in per unit


def pattern(id_: int, members: tuple[UnitMember, ...], leaves: Leaves) -> UnitPattern:
    return _PatternBuilder(members, leaves).build(id_)


class _PatternBuilder:
    def __init__(self, members: tuple[UnitMember, ...], leaves: Leaves) -> None:
        self.members = members
        self.leaves = leaves
        self.left = BitFields()
        self.common = BitFields()
        self.ready = 0
        self.capacity_guards = 0
        self.token: list[int] = []
        self.admin: list[dict[int, int]] = []
        self.first: list[int] = []
        self.exclusions: list[int] = []
        self.capacity: list[dict[str, _Scaled]] = []
        self.counters: dict[tuple[str, str], _Counter] = {}
        self.groups: dict[str, _Groups] = {}

    def build(self, id_: int) -> UnitPattern:
        own = [self._own_fields(member) for member in self.members]
        # Each counter has one field, wide enough for all members together. Admin access may consume a device's counters again.
        again = 1 + sum(self.leaves.admin)
        amounts: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        group_names: dict[str, dict[str, None]] = {}
        for member in self.members:
            for use in member.consumption:
                for name, amount in use.counters:
                    amounts[use.counter_set, name].append(amount)
                group_names.setdefault(use.counter_set, {}).update(dict.fromkeys(use.groups))
        for key, all_amounts in amounts.items():
            unit = gcd(*all_amounts)
            if unit:
                highest = sum(all_amounts) // unit * again
                self.counters[key] = self.left.add(highest.bit_length()), unit, highest
        for counter_set, names in group_names.items():
            groups = tuple(names)
            if groups not in ((), ("",)):
                self.groups[counter_set] = self.common.add(len(groups)), groups
        guards = self.left.guards
        opened = ((1 << self.common.width) - 1) & ~self.common.guards
        rows = tuple(
            tuple(self._pair(at, leaf, opened) for leaf in range(len(self.leaves.claims)))
            for at in range(len(self.members))
        )
        return UnitPattern(
            id_,
            self.left.width,
            guards,
            self.common.width,
            self.common.guards,
            opened,
            rows,
            tuple(((1 << end) - (1 << start)) & ~guards for start, end in own),
            _keeps(rows, guards, self.common.guards),
            tuple(self.token),
            tuple(self.admin),
            tuple(self.first),
            tuple(self.capacity),
            self.counters,
            self.groups,
            self.capacity_guards,
            self.ready | guards,
        )

    def _own_fields(self, member: UnitMember) -> tuple[int, int]:
        start = self.left.width
        admins: dict[int, int] = {}
        token = first = exclusion = -1
        if not member.multi:
            token = self._field(1, 1)
            claims = {
                self.leaves.claims[leaf]
                for leaf, taken in enumerate(member.takes)
                if self.leaves.admin[leaf] and (taken is not None or member.faults[leaf])
            }
            for claim in sorted(claims):
                admins[claim] = self._field(1, 1)
        elif member.consumption or member.incompatible:
            first = self._field(1, 1)
        if member.incompatible:
            exclusion = self._field(len(member.incompatible).bit_length(), len(member.incompatible))
        capacities: dict[str, tuple[int, int]] = {}
        for name, value in member.capacity:
            amounts = [dict(taken).get(name, 0) for taken in member.takes if taken is not None]
            unit = gcd(*amounts)
            units = value // unit
            begin = self._field(units.bit_length(), units)
            capacities[name] = begin, unit
            self.capacity_guards |= 1 << (self.left.width - 1)
        self.token.append(token)
        self.admin.append(admins)
        self.first.append(first)
        self.exclusions.append(exclusion)
        self.capacity.append(capacities)
        return start, self.left.width

    def _field(self, width: int, value: int) -> int:
        start = self.left.add(width)
        self.ready |= value << start
        return start

    def _pair(self, at: int, leaf: int, opened: int) -> Pair | None:
        """Return the amounts that a leaf takes of a member (see the module docstring)."""
        member = self.members[at]
        taken = member.takes[leaf]
        if taken is None:
            return None
        # Counters and groups are charged once, however many shares there are.
        once, join = 0, opened
        for counter_set, counters, groups in member.consumption:
            for name, amount in counters:
                if (counter_set, name) in self.counters:
                    start, unit, _ = self.counters[counter_set, name]
                    once += amount // unit << start
            if groups and counter_set in self.groups:
                start, names = self.groups[counter_set]
                for bit, name in enumerate(names, start):
                    if name not in groups:
                        join &= ~(1 << bit)
        share = 0
        for name, amount in taken:
            begin, unit = self.capacity[at][name]
            share += amount // unit << begin
        first_time = share + once
        if member.incompatible:
            # Empty the member's exclusion field, and subtract one from the field of each member that must not be in use together with it.
            first_time += len(member.incompatible) << self.exclusions[at]
            first_time += sum(1 << self.exclusions[other] for other in member.incompatible)
        if member.multi:
            first = self.first[at]
            if first < 0:
                return 0, 0, 0, share, opened
            mark = 1 << first
            return mark, first_time + mark, join, share, opened
        token = 1 << self.token[at]
        admin_bit = self.admin[at].get(self.leaves.claims[leaf], -1)
        mark = 1 << admin_bit if admin_bit >= 0 else 0
        dedicated = first_time + token + mark
        if self.leaves.admin[leaf]:
            return token, dedicated, join, share + once + mark, join
        return 0, 0, 0, dedicated, join


def _keeps(
    rows: tuple[tuple[Pair | None, ...], ...],
    guards: int,
    common_guards: int,
) -> tuple[tuple[int, int], ...]:
    """Return, for each member, the fields that later members read. In a partial state, all other fields can be dropped."""
    left_fields = [(1 << end) - (1 << start) for start, end in spans(guards)]
    common_fields = [(1 << end) - (1 << start) for start, end in spans(common_guards)]
    keeps: list[tuple[int, int]] = []
    left, common = guards, 0
    for row in reversed(rows):
        keeps.append((left, common))
        for pair in row:
            if pair is None:
                continue
            flag, cost, join, again, join_again = pair
            fields_read = flag | cost | again
            open_always = join & join_again
            for field in left_fields:
                if fields_read & field:
                    left |= field
            for field in common_fields:
                if open_always & field != field:
                    common |= field
    keeps.reverse()
    return tuple(keeps)
