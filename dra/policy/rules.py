"""Which devices may be in use together: compatibility groups (KEP-5963) and `compatibleOnlyWith` (our own rule).

Groups: per counter set of a pool, all members must have one group in common. What a device without groups means is a
setting: `upstream` lets it only join others without groups, `proposal` lets it join anybody.

compatibleOnlyWith: an expression over the *other* device. Two different devices of one pool (or, with the narrow scope,
of one counter set) go together only if both directions permit it. A device never judges itself. What cannot be compiled
or evaluated permits nothing: slice content is the driver's, and must neither open a gap nor abort anybody's scheduling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.cel import Selector, view_of
from dra.cel import compile as compile_selector
from dra.errors import SelectorError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dra.budget import Budget
    from dra.objects import Device, DeviceCompatibility
    from dra.stock import Pool, PoolUse

# What the members of a counter set have in common: the names of groups, or NO_GROUPS if they have none.
# Nobody there is None. A device's own groups are put the same way; ANYBODY is a device that goes with all.
GroupState = frozenset[str] | None
NO_GROUPS: frozenset[str] = frozenset({""})  # no DNS label is empty
ANYBODY: GroupState = None
_EVALUATED = 10  # steps for judging a device by one expression


def own_state(groups: Iterable[str], *, wild: bool = False) -> GroupState:
    """Put what one device declares as the state of a counter set that has only this member."""
    return frozenset(groups) or (ANYBODY if wild else NO_GROUPS)


def admits(state: GroupState, own: GroupState) -> bool:
    """Say whether a device may join a counter set."""
    return state is None or own is None or bool(state & own)


def join(state: GroupState, own: GroupState) -> GroupState:
    """Fold one more member in; for histories that no allocator would have made, as upstream folds them."""
    if state is None or own is None:
        return own if state is None else state
    if NO_GROUPS in (state, own):
        return state
    return state & own


def group_states(pool: Pool, use: PoolUse, rules: Rules) -> dict[str, GroupState]:
    """Fold the groups of everything in use, per counter set, in slice order."""
    states: dict[str, GroupState] = {}
    if not (use.dedicated or use.shared):
        return states
    for page in pool.pages():
        for device in page.devices:
            if device.consumes_counters and use.holds(device.name):
                wild = rules.wild(pool.id[0], device)
                for consumption in device.consumes_counters:
                    counter_set = consumption.counter_set
                    own = own_state(consumption.compatibility_groups, wild=wild)
                    states[counter_set] = join(states.get(counter_set), own)
    return states


class Rule(msgspec.Struct, frozen=True):
    """One DeviceCompatibility, compiled. An expression that is None does not compile, and permits nothing."""

    name: str
    driver: str
    narrow: bool
    wild: bool
    picks: Selector | None
    permits: Selector | None
    selective: bool
    restricts: bool

    def carried_by(self, driver: str, device: Device) -> bool:
        """Say whether the rule is about a device; one that cannot be judged carries it."""
        return driver == self.driver and (not self.selective or _holds(self.picks, driver, device, failing=True))

    def allows(self, other: Device) -> bool:
        """Say whether the rule permits this device beside one that carries the rule."""
        return not self.restricts or _holds(self.permits, self.driver, other, failing=False)


class Rules:
    """All rules of a stock."""

    def __init__(self, compatibilities: Iterable[DeviceCompatibility] = ()) -> None:
        self.by_driver: dict[str, list[Rule]] = {}
        for compatibility in compatibilities:
            rule = _rule(compatibility)
            self.by_driver.setdefault(rule.driver, []).append(rule)

    def selectors(self) -> Iterator[Selector]:
        """List every expression that says something about devices."""
        for rules in self.by_driver.values():
            for rule in rules:
                yield from (one for one in (rule.picks, rule.permits) if one is not None)

    def wild(self, driver: str, device: Device) -> bool:
        """Say whether a device that declares no groups goes with everybody."""
        return any(rule.wild and rule.carried_by(driver, device) for rule in self.by_driver.get(driver, ()))

    def between(self, pool: Pool, one: str, other: str) -> str:
        """Name the rule that keeps two devices of a pool apart."""
        driver = pool.id[0]
        devices: dict[str, Device] = {}
        for page in pool.pages():
            for device in page.devices:
                devices[device.name] = device
        mine = devices[one]
        theirs = devices[other]
        for rule in self.by_driver.get(driver, ()):
            if not rule.restricts:
                continue
            if rule.carried_by(driver, theirs) and not rule.allows(mine):
                return f"DeviceCompatibility/{rule.name}"
            if rule.carried_by(driver, mine) and not rule.allows(theirs):
                return f"DeviceCompatibility/{rule.name}"
        return "a rule"

    def conflicts(self, pool: Pool, budget: Budget | None = None) -> dict[str, frozenset[str]]:
        """Name, for each device of a pool, the others that it must not be in use with.

        There may be as many pairs as devices squared: they are charged before they are looked at.
        """
        charge = budget.charge if budget is not None else _ignore
        driver = pool.id[0]
        rules = [rule for rule in self.by_driver.get(driver, ()) if rule.restricts]
        if not rules:
            return {}
        devices: dict[str, Device] = {}
        for page in pool.pages():
            for device in page.devices:
                devices[device.name] = device
        against: dict[str, set[str]] = {name: set() for name in devices}
        for rule in rules:
            charge(2 * _EVALUATED * len(devices))
            unwelcome = [device for device in devices.values() if not rule.allows(device)]
            if not unwelcome:
                continue
            for bearer in devices.values():
                if not rule.carried_by(driver, bearer):
                    continue
                charge(len(unwelcome))
                for other in unwelcome:
                    if other is bearer:
                        continue
                    if rule.narrow and _sets(bearer).isdisjoint(_sets(other)):
                        continue
                    against[bearer.name].add(other.name)
                    against[other.name].add(bearer.name)
        return {name: frozenset(others) for name, others in against.items() if others}


def _ignore(steps: int) -> None:
    del steps


def _sets(device: Device) -> set[str]:
    return {consumption.counter_set for consumption in device.consumes_counters}


def in_the_way(name: str, conflicts: Mapping[str, frozenset[str]], use: PoolUse) -> list[str]:
    """Name the devices in use that keep a device from being taken."""
    return sorted(other for other in conflicts.get(name, ()) if use.holds(other))


def _rule(compatibility: DeviceCompatibility) -> Rule:
    spec = compatibility.spec
    return Rule(
        compatibility.metadata.name,
        spec.driver,
        spec.scope == "counterSet",
        spec.groups == "proposal",
        _selector(spec.selector),
        _selector(spec.compatible_only_with),
        bool(spec.selector),
        bool(spec.compatible_only_with),
    )


def _selector(text: str) -> Selector | None:
    try:
        return compile_selector(text) if text else None
    except SelectorError:
        return None


def _holds(selector: Selector | None, driver: str, device: Device, *, failing: bool) -> bool:
    if selector is None:
        return failing
    try:
        return selector.matches(view_of(driver, device))
    except SelectorError:
        return failing
