"""Which devices may be in use together: compatibility groups (KEP-5963) and `compatibleOnlyWith` (our own rule).

Groups: per counter set of a pool, all members must have one group in common. What a device without groups means is a
setting: `upstream` lets it only join others without groups, `proposal` lets it join any.

compatibleOnlyWith: an expression over the *other* device. Two different devices of one pool (or, with the narrow scope,
of one counter set) go together only if both directions permit it. A device never judges itself. What cannot be compiled
or evaluated permits nothing: slice content is the driver's, and must neither open a gap nor abort the scheduling of a pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from dra.budget import Budget
from dra.cel import Selector, compile_or_none, view_of
from dra.errors import SelectorError
from dra.objects import Device
from dra.stock import PoolId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from dra.objects import DeviceCompatibility
    from dra.stock import Page, Pool, PoolUse

DeviceId = tuple[str, str, str]  # driver, pool, name

# What the members of a counter set have in common: the names of groups, or NO_GROUPS if they have none.
# None stands for no member. A device's own groups are put the same way; ANY_GROUP is a device that goes with all.
GroupState = frozenset[str] | None
NO_GROUPS: frozenset[str] = frozenset({""})  # no DNS label is empty
ANY_GROUP: GroupState = None
_EVALUATED = 10  # steps for judging a device by one expression
POOL: Final = "pool"  # the scopes of a rule
COUNTER_SET: Final = "counterSet"
NODE: Final = "node"


def own_state(groups: Iterable[str], *, wild: bool = False) -> GroupState:
    """Put what one device declares as the state of a counter set that has only this member."""
    return frozenset(groups) or (ANY_GROUP if wild else NO_GROUPS)


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


class Peer(msgspec.Struct, frozen=True, eq=False):
    """A device where it stands, as rules about two of them see it."""

    pool: PoolId
    node: str  # the one that it is on; "" if it may be used from several
    name: str
    id: DeviceId
    device: Device


def peer_of(page: Page, device: Device) -> Peer:
    """Say of a device of a page where it stands."""
    id_ = (*page.pool, device.name)
    node = page.slice.spec.node_of(device)
    return Peer(page.pool, node, device.name, id_, device)


Peers: TypeAlias = "Sequence[Peer]"
Charge: TypeAlias = "Callable[[int], None]"


class Rule(msgspec.Struct, frozen=True):
    """One DeviceCompatibility, compiled. An expression that does not compile permits nothing."""

    name: str
    driver: str
    scope: str
    wild: bool
    picks: Selector | None
    permits: Selector | None
    selective: bool
    restricts: bool

    def reaches(self, one: Peer, other: Peer) -> bool:
        """Say whether two devices of the rule's driver are near enough for the rule to be about them."""
        if self.scope == NODE:
            return bool(one.node) and one.node == other.node
        if one.pool != other.pool:
            return False
        return self.scope != COUNTER_SET or not _sets(one.device).isdisjoint(_sets(other.device))

    def parts(self, bearer: Peer, other: Peer) -> bool:
        """Say whether one device carries the rule, and the other is not permitted beside it."""
        return self.carried_by(self.driver, bearer.device) and not self.allows(other.device)

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
            spec = compatibility.spec
            rule = Rule(
                compatibility.metadata.name,
                spec.driver,
                spec.scope,
                spec.groups == "proposal",
                compile_or_none(spec.selector),
                compile_or_none(spec.compatible_only_with),
                bool(spec.selector),
                bool(spec.compatible_only_with),
            )
            self.by_driver.setdefault(rule.driver, []).append(rule)
        every = [rule for rules in self.by_driver.values() for rule in rules]
        self.about_nodes = [rule for rule in every if rule.restricts and rule.scope == NODE]

    def selectors(self) -> Iterator[Selector]:
        """List every expression that says something about devices."""
        for rules in self.by_driver.values():
            for rule in rules:
                yield from (one for one in (rule.picks, rule.permits) if one is not None)

    def wild(self, driver: str, device: Device) -> bool:
        """Say whether a device that declares no groups goes with all others."""
        return any(rule.wild and rule.carried_by(driver, device) for rule in self.by_driver.get(driver, ()))

    def between(self, mine: DeviceId, theirs: DeviceId, pools: Iterable[Pool]) -> str:
        """Name the rule that keeps two devices of some pools apart."""
        peers: dict[DeviceId, Peer] = {}
        for pool in pools:
            if pool.id not in (mine[:2], theirs[:2]):
                continue
            pages = (*pool.pages(), *pool.unusable)
            for peer in _peers(pages).values():
                peers[peer.id] = peer
        one, other = peers[mine], peers[theirs]
        for rule in self._restricting(mine[0]):
            if rule.reaches(one, other) and (rule.parts(one, other) or rule.parts(other, one)):
                return f"DeviceCompatibility/{rule.name}"
        return "a rule"

    def _restricting(self, driver: str) -> list[Rule]:
        return [rule for rule in self.by_driver.get(driver, ()) if rule.restricts]

    def conflicts(self, pool: Pool, budget: Budget | None = None) -> dict[str, frozenset[str]]:
        """Name, for each device of a pool, the others of the pool that it must not be in use with.

        There may be as many pairs as devices squared: they are charged before they are looked at.
        """
        rules = self._restricting(pool.id[0])
        if not rules:
            return {}
        charge = (budget or Budget()).charge
        by_name = _peers(pool.pages())
        peers = tuple(by_name.values())
        against: dict[str, set[str]] = {name: set() for name in by_name}
        for rule in rules:
            wide = rule.scope == POOL
            for bearer, others in _clashes(rule, peers, charge):
                mine = against[bearer.name]
                for other in others:
                    if other is not bearer and (wide or rule.reaches(bearer, other)):
                        mine.add(other.name)
                        against[other.name].add(bearer.name)
        return {name: frozenset(others) for name, others in against.items() if others}

    def conflicts_across(
        self, pools: Iterable[Pool], node: str, budget: Budget | None = None
    ) -> dict[PoolId, dict[str, frozenset[DeviceId]]]:
        """Name, for the devices of each pool of a node, those of its other pools that they must not be in use with."""
        if not self.about_nodes:
            return {}
        charge = (budget or Budget()).charge
        by_driver: dict[str, list[Pool]] = {}
        for pool in pools:
            by_driver.setdefault(pool.id[0], []).append(pool)
        against: dict[DeviceId, set[DeviceId]] = {}
        for rule in self.about_nodes:
            mine = by_driver.get(rule.driver, [])
            if len(mine) < 2:
                continue
            # Those of a pool included that cannot be used just now.
            there = (peer for pool in mine for peer in _peers((*pool.here, *pool.unusable)).values())
            peers = [peer for peer in there if peer.node == node]
            for bearer, others in _clashes(rule, peers, charge):
                for other in others:
                    if bearer.pool != other.pool:
                        against.setdefault(bearer.id, set()).add(other.id)
                        against.setdefault(other.id, set()).add(bearer.id)
        found: dict[PoolId, dict[str, frozenset[DeviceId]]] = {}
        for (driver, pool_name, name), apart in against.items():
            found.setdefault((driver, pool_name), {})[name] = frozenset(apart)
        return found


def _peers(pages: Iterable[Page]) -> dict[str, Peer]:
    """List devices by name. Nodes may use a name twice: the pages that the looking node can reach come first, and count."""
    found: dict[str, Peer] = {}
    for page in pages:
        for device in page.devices:
            if device.name not in found:
                found[device.name] = peer_of(page, device)
    return found


def _clashes(rule: Rule, peers: Peers, charge: Charge) -> Iterator[tuple[Peer, Peers]]:
    """Yield the devices that carry a rule, each with those that are not permitted beside it, near enough or not."""
    charge(2 * _EVALUATED * len(peers))
    unwelcome = [peer for peer in peers if not rule.allows(peer.device)]
    if not unwelcome:
        return
    for bearer in peers:
        if rule.carried_by(rule.driver, bearer.device):
            charge(len(unwelcome))
            yield bearer, unwelcome


def away(
    across: Mapping[PoolId, Mapping[str, frozenset[DeviceId]]], pool: PoolId, use: Callable[[PoolId], PoolUse]
) -> dict[str, tuple[DeviceId, ...]]:
    """Name, for devices of a pool, those in use in other pools that keep them from being taken."""
    apart = across.get(pool)
    if not apart:
        return {}
    held: set[DeviceId] = set()
    for other in across:
        there = use(other)
        held.update((*other, name) for name in there.dedicated | there.shared)
    return {name: tuple(sorted(busy)) for name, others in apart.items() if (busy := others & held)}


def _sets(device: Device) -> set[str]:
    return {consumption.counter_set for consumption in device.consumes_counters}


def in_the_way(name: str, conflicts: Mapping[str, frozenset[str]], use: PoolUse) -> list[str]:
    """Name the devices in use that keep a device from being taken."""
    return sorted(other for other in conflicts.get(name, ()) if use.holds(other))


def _holds(selector: Selector | None, driver: str, device: Device, *, failing: bool) -> bool:
    if selector is None:
        return failing
    try:
        return selector.matches(view_of(driver, device))
    except SelectorError:
        return failing
