"""Compatibility groups that surprise: devices that can never be in use beside others, and groups that change nothing.

The rule (KEP-5963): all devices in use of one counter set must have a group in common, and one without groups goes only
with others without groups.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from dra.validation.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dra.objects import CounterSet, ResourceSlice


class _Member(NamedTuple):
    number: int | None
    path: str
    device: str
    groups: frozenset[str]
    whole: bool  # takes all of some counter, so no device can be in use beside it


def group_problems(
    slices: Sequence[tuple[int | None, ResourceSlice]],
    counters: Mapping[str, CounterSet],
) -> Iterator[tuple[int | None, Problem]]:
    """Judge the groups of the slices of one pool."""
    sets: dict[str, list[_Member]] = defaultdict(list)
    for number, piece in slices:
        for index, device in enumerate(piece.spec.devices):
            for at, consumption in enumerate(device.consumes_counters):
                path = f"/spec/devices/{index}/consumesCounters/{at}/compatibilityGroups"
                groups = frozenset(consumption.compatibility_groups)
                name = consumption.counter_set
                have = counters[name].counters if name in counters else {}
                whole = any(key in have and one.value == have[key].value for key, one in consumption.counters.items())
                sets[name].append(_Member(number, path, device.name, groups, whole))
    for name, members in sets.items():
        if any(member.groups for member in members):
            yield from _set(name, members)


def _set(name: str, members: Sequence[_Member]) -> Iterator[tuple[int | None, Problem]]:
    grouped = [member for member in members if member.groups]
    bare = [member for member in members if not member.groups and not member.whole]
    common = frozenset.intersection(*(member.groups for member in grouped))
    several = len(members) > 1
    if common and several and len(grouped) == len(members):
        first = grouped[0]
        message = f"all devices of {name!r} have {', '.join(sorted(common))}: the groups keep no devices apart"
        yield first.number, Problem("D415", first.path, message)
        return
    if bare:
        first = bare[0]
        shown = sorted({repr(member.device) for member in grouped})
        others = ", ".join(shown[:3])
        path = first.path.removesuffix("/compatibilityGroups")
        message = f"{first.device!r} has no groups, so it is never in use beside {others} of {name!r}, which have"
        hint = "give it a group as well, or take the groups away; DeviceCompatibility with groups: proposal reads it as compatible with all"
        yield first.number, Problem("D408", path, message, hint)
    used = Counter(group for member in grouped for group in member.groups)
    for member in grouped:
        alone = all(used[group] == 1 for group in member.groups)
        if alone and several:
            message = f"no other device of {name!r} shares a group with {member.device!r}: it can only be in use alone"
            hint = "if it shall be exclusive, that is how to say it"
            yield member.number, Problem("D415", member.path, message, hint)
