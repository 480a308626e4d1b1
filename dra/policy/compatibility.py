"""Which devices may be in use together: compatibility groups (KEP-5963), and drawbridge's rule `compatibleOnlyWith`.

Groups: all devices that consume one counter set and are in use must have a group in common. A device without groups may
be in use only with other devices without groups (`upstream`), or with any device (`proposal`).

compatibleOnlyWith: an expression over the *other* device. Two devices within the scope of a rule (a pool, a counter set
or a node) may be in use together only if the rules of both devices permit it. An expression that does not compile, or
that fails on a device, permits nothing: wrong data of a driver must neither permit a combination nor end the scheduling
of a pod.
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

# The state of a counter set: the groups that its devices in use have in common, NO_GROUPS if these devices have no
# groups, or None if no device is in use. The groups of one device have the same form; ANY_GROUP is compatible with all
# devices.
GroupState = frozenset[str] | None
NO_GROUPS: frozenset[str] = frozenset({""})  # no DNS label is empty
ANY_GROUP: GroupState = None
_STEPS_PER_EVALUATION = 10
# The scopes of a rule.
POOL: Final = "pool"
COUNTER_SET: Final = "counterSet"
NODE: Final = "node"


def own_state(groups: Iterable[str], *, wild: bool = False) -> GroupState:
    """Return the groups of one device in the form of a state. Without groups, a `wild` device has ANY_GROUP."""
    return frozenset(groups) or (ANY_GROUP if wild else NO_GROUPS)


def admits(state: GroupState, own: GroupState) -> bool:
    """Whether a device with these groups may be used while the counter set has this state."""
    return state is None or own is None or bool(state & own)


def join(state: GroupState, own: GroupState) -> GroupState:
    """Return the state with one more device in use.

    Incompatible devices, which claims may hold, are joined as in Kubernetes.
    """
    if state is None or own is None:
        return own if state is None else state
    if NO_GROUPS in (state, own):
        return state
    return state & own


def group_states(pool: Pool, use: PoolUse, rules: Rules) -> dict[str, GroupState]:
    """Return the state of each counter set of a pool that has devices in use."""
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
    """A device with its pool and node, on which it depends whether a rule applies to two devices."""

    pool: PoolId
    node: str  # the single node that may use the device; "" if several nodes may use it
    name: str
    id: DeviceId
    device: Device


def peer_of(page: Page, device: Device) -> Peer:
    id_ = (*page.pool, device.name)
    node = page.slice.spec.node_of(device)
    return Peer(page.pool, node, device.name, id_, device)


Peers: TypeAlias = "Sequence[Peer]"
Charge: TypeAlias = "Callable[[int], None]"


class CompatibilityRule(msgspec.Struct, frozen=True):
    """A compiled DeviceCompatibility. An expression that does not compile is None, and permits nothing."""

    name: str
    driver: str
    scope: str
    wild: bool  # whether a device of the rule is compatible with all devices if it declares no groups (`groups: proposal`)
    picks: Selector | None
    permits: Selector | None
    selective: bool
    restricts: bool

    def reaches(self, peer: Peer, other: Peer) -> bool:
        """Whether two devices of the rule's driver are within the scope of the rule."""
        if self.scope == NODE:
            return bool(peer.node) and peer.node == other.node
        if peer.pool != other.pool:
            return False
        return self.scope != COUNTER_SET or not _sets(peer.device).isdisjoint(_sets(other.device))

    def forbids(self, bearer: Peer, other: Peer) -> bool:
        """Whether the rule applies to the first device and does not permit the other device."""
        return self.carried_by(self.driver, bearer.device) and not self.allows(other.device)

    def carried_by(self, driver: str, device: Device) -> bool:
        """Whether the rule applies to a device. It also applies if its selector fails on the device."""
        return driver == self.driver and (not self.selective or _holds(self.picks, driver, device, failing=True))

    def allows(self, other: Device) -> bool:
        """Whether a device may be in use together with a device to which the rule applies."""
        return not self.restricts or _holds(self.permits, self.driver, other, failing=False)


class Rules:
    """All rules of a stock (`dra.stock`)."""

    def __init__(self, compatibilities: Iterable[DeviceCompatibility] = ()) -> None:
        self.by_driver: dict[str, list[CompatibilityRule]] = {}
        for compatibility in compatibilities:
            spec = compatibility.spec
            rule = CompatibilityRule(
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
        """List the expressions of all rules."""
        for rules in self.by_driver.values():
            for rule in rules:
                yield from filter(None, (rule.picks, rule.permits))

    def wild(self, driver: str, device: Device) -> bool:
        """Whether the device would be compatible with all devices if it declared no groups."""
        return any(rule.wild and rule.carried_by(driver, device) for rule in self.by_driver.get(driver, ()))

    def between(self, device: DeviceId, other_device: DeviceId, pools: Iterable[Pool]) -> str:
        """Name the rule that forbids the use of two devices together."""
        concerned = [pool for pool in pools if pool.id in (device[:2], other_device[:2])]
        by_pool = [_peers((*pool.pages(), *pool.unusable)) for pool in concerned]
        peers = {peer.id: peer for by_name in by_pool for peer in by_name.values()}
        first, second = peers[device], peers[other_device]
        for rule in self._restricting(device[0]):
            if rule.reaches(first, second) and (rule.forbids(first, second) or rule.forbids(second, first)):
                return f"DeviceCompatibility/{rule.name}"
        return "a rule"

    def _restricting(self, driver: str) -> list[CompatibilityRule]:
        return [rule for rule in self.by_driver.get(driver, ()) if rule.restricts]

    def conflicts(self, pool: Pool, budget: Budget | None = None) -> dict[str, frozenset[str]]:
        """Return, for each device of a pool, the devices of the pool that must not be in use together with it.

        The work is quadratic in the number of devices, so it is charged to the budget.
        """
        rules = self._restricting(pool.id[0])
        if not rules:
            return {}
        charge = (budget or Budget()).charge
        by_name = _peers(pool.pages())
        peers = tuple(by_name.values())
        against: dict[str, set[str]] = {name: set() for name in by_name}
        for rule in rules:
            is_pool_scope = rule.scope == POOL
            for bearer, others in _clashes(rule, peers, charge):
                bearer_conflicts = against[bearer.name]
                for other in others:
                    if other is not bearer and (is_pool_scope or rule.reaches(bearer, other)):
                        bearer_conflicts.add(other.name)
                        against[other.name].add(bearer.name)
        return {name: frozenset(others) for name, others in against.items() if others}

    def conflicts_across(
        self, pools: Iterable[Pool], node: str, budget: Budget | None = None
    ) -> dict[PoolId, dict[str, frozenset[DeviceId]]]:
        """Return, for each device of a node, the devices of the node's other pools that must not be in use with it."""
        if not self.about_nodes:
            return {}
        charge = (budget or Budget()).charge
        by_driver: dict[str, list[Pool]] = {}
        for pool in pools:
            by_driver.setdefault(pool.id[0], []).append(pool)
        against: dict[DeviceId, set[DeviceId]] = {}
        for rule in self.about_nodes:
            pools_of_driver = by_driver.get(rule.driver, [])
            if len(pools_of_driver) < 2:
                continue
            # Devices of unusable pools count as well, because claims may hold them.
            all_peers = (
                peer for pool in pools_of_driver for peer in _peers((*pool.accessible, *pool.unusable)).values()
            )
            peers = [peer for peer in all_peers if peer.node == node]
            for bearer, others in _clashes(rule, peers, charge):
                for other in others:
                    if bearer.pool != other.pool:
                        against.setdefault(bearer.id, set()).add(other.id)
                        against.setdefault(other.id, set()).add(bearer.id)
        by_pool: dict[PoolId, dict[str, frozenset[DeviceId]]] = {}
        for (driver, pool_name, name), conflicts in against.items():
            by_pool.setdefault((driver, pool_name), {})[name] = frozenset(conflicts)
        return by_pool


def _peers(pages: Iterable[Page]) -> dict[str, Peer]:
    """Index devices by name.

    If a name repeats, the first page counts; callers put pages that the node can reach first.
    """
    by_name: dict[str, Peer] = {}
    for page in pages:
        for device in page.devices:
            if device.name not in by_name:
                by_name[device.name] = peer_of(page, device)
    return by_name


def _clashes(rule: CompatibilityRule, peers: Peers, charge: Charge) -> Iterator[tuple[Peer, Peers]]:
    """Yield each device to which a rule applies, with all devices that the rule does not permit, whatever its scope."""
    charge(2 * _STEPS_PER_EVALUATION * len(peers))
    unwelcome = [peer for peer in peers if not rule.allows(peer.device)]
    if not unwelcome:
        return
    for bearer in peers:
        if rule.carried_by(rule.driver, bearer.device):
            charge(len(unwelcome))
            yield bearer, unwelcome


def conflicting_elsewhere(
    across: Mapping[PoolId, Mapping[str, frozenset[DeviceId]]], pool: PoolId, use: Callable[[PoolId], PoolUse]
) -> dict[str, tuple[DeviceId, ...]]:
    """Return, for each device of a pool, the devices that conflict with it and are in use in other pools."""
    conflicts = across.get(pool)
    if not conflicts:
        return {}
    in_use: set[DeviceId] = set()
    for other in across:
        used = use(other)
        in_use.update((*other, name) for name in used.dedicated | used.shared)
    return {name: tuple(sorted(busy)) for name, others in conflicts.items() if (busy := others & in_use)}


def _sets(device: Device) -> set[str]:
    return {consumption.counter_set for consumption in device.consumes_counters}


def conflicting(name: str, conflicts: Mapping[str, frozenset[str]], use: PoolUse) -> list[str]:
    """List the devices that conflict with a device and are in use."""
    return sorted(other for other in conflicts.get(name, ()) if use.holds(other))


def _holds(selector: Selector | None, driver: str, device: Device, *, failing: bool) -> bool:
    if selector is None:
        return failing
    try:
        return selector.matches(view_of(driver, device))
    except SelectorError:
        return failing
