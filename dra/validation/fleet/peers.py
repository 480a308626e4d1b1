"""Judges DeviceCompatibilities on the published devices: rules without effect, contradictory rules, and rules that exclude too much.

A rule is an expression over the other device. It restricts both devices, even if no rule applies to the other device. So a rule may
apply to one of two devices only, but two rules that contradict each other are most likely a mistake.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dra import cel
from dra.errors import SelectorError
from dra.finding import Findings, finding_at
from dra.policy import NODE, POOL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import DeviceCompatibility
    from dra.validation.fleet.published import PublishedDevice
    from dra.validation.fleet.world import World

# Limits on the compared devices of a pool or node, and on the compared rules of a driver. The work grows with the product of the two
# numbers, not with the square of the number of devices.
_MAX_DEVICES = 256
_MAX_RULES = 64


def peer_problems(rule: DeviceCompatibility, world: World) -> Findings:
    """Judge one rule on all published devices."""
    if not world.fleet.devices:
        return
    path = "/spec/compatibleOnlyWith"
    carriers = _carriers(rule, world.fleet.devices)
    if not carriers:
        where = "/spec/selector" if rule.spec.selector else "/spec/driver"
        yield finding_at("D503", where, f"no published device of {rule.spec.driver!r} has the rule")
        return
    permits = cel.compile_or_none(rule.spec.compatible_only_with)
    if permits is None:
        return
    spec, spots = rule.spec, _by_scope(rule, world.fleet.devices)
    nowhere = [published.reference for published in carriers if not published.node] if spec.scope == NODE else []
    if nowhere:
        are, them = (f" and {len(nowhere) - 1} more are", "them") if len(nowhere) > 1 else (" is", "it")
        message = f"{nowhere[0]}{are} on no single node, so the rule does not apply to {them}"
        yield finding_at("D508", "/spec/scope", message)
    # Beyond the limits, the absence of other findings proves nothing, so a finding reports that a limit was reached.
    rules = len(_rules_of(spec.driver, world))
    if rules > _MAX_RULES:
        message = (
            f"driver {spec.driver!r} has {rules} rules, and only the first {_MAX_RULES} were compared with this one"
        )
        yield finding_at("D509", "/spec/driver", message)
    for (kind, name), devices in spots.items():
        if len(devices) > _MAX_DEVICES:
            message = f"{kind} {name!r} has {len(devices)} devices of driver {spec.driver!r}, and only the first {_MAX_DEVICES} of a {kind} were compared"
            yield finding_at("D509", "/spec/scope", message)
            break  # one example is enough
    codes: set[str] = set()
    for spot, own_carriers in _by_scope(rule, carriers).items():
        peers = spots[spot][:_MAX_DEVICES]
        for problem in _judge(rule, permits, own_carriers[:_MAX_DEVICES], peers, world):
            if problem.code not in codes:  # one example of each code is enough
                codes.add(problem.code)
                yield replace(problem, path=path)


def _rules_of(driver: str, world: World) -> list[DeviceCompatibility]:
    return [other for other in world.compatibilities if other.spec.driver == driver]


def _by_scope(
    rule: DeviceCompatibility, devices: Sequence[PublishedDevice]
) -> dict[tuple[str, str], list[PublishedDevice]]:
    """Group the devices of the rule's driver by the pool or node within which they are compared."""
    spots: dict[tuple[str, str], list[PublishedDevice]] = {}
    for published in devices:
        spot = ("node", published.node) if rule.spec.scope == NODE else ("pool", published.pool)
        if spot[1] and published.driver == rule.spec.driver:
            spots.setdefault(spot, []).append(published)
    return spots


def _judge(
    rule: DeviceCompatibility,
    permits: cel.Selector,
    carriers: Sequence[PublishedDevice],
    peers: Sequence[PublishedDevice],
    world: World,
) -> Findings:
    """Judge a rule on the devices of one pool or node."""
    verdicts = {peer.reference: _permits(permits, peer) for peer in peers}
    failed = next((peer for peer in peers if isinstance(verdicts[peer.reference], str)), None)
    if failed is not None:
        yield finding_at(
            "D505",
            "",
            f"it fails on {failed.reference}, so it does not permit that device: {verdicts[failed.reference]}",
        )
    yield from _disagreement(rule, carriers, peers, verdicts, world)
    refused = [peer for peer in peers if verdicts[peer.reference] is not True]
    if rule.spec.scope == POOL:
        yield from _reach(permits, carriers, peers, refused)
    if len(refused) == len(peers) and len(peers) > 1:
        first = carriers[0]
        where = f"on the node {first.node!r}" if rule.spec.scope == NODE else f"of the pool {first.pool!r}"
        message = f"it permits no device {where}, so {first.device.name!r} can only be in use alone"
        yield finding_at("D504", "", message)


def _disagreement(
    rule: DeviceCompatibility,
    carriers: Sequence[PublishedDevice],
    peers: Sequence[PublishedDevice],
    verdicts: dict[str, bool | str],
    world: World,
) -> Findings:
    """Report a device whose rule permits another device, although a rule of the other device does not permit the first one."""
    for other in _rules_of(rule.spec.driver, world)[:_MAX_RULES]:
        opposite = cel.compile_or_none(other.spec.compatible_only_with)
        if opposite is None:
            continue
        # Each rule is evaluated once on each device. Then only pairs of devices within the scope are compared.
        about_nodes = other.spec.scope == NODE
        permitted: dict[str, list[PublishedDevice]] = {}  # by pool; "" for a rule of scope Node
        for peer in _carriers(other, peers):
            if verdicts[peer.reference] is True:
                permitted.setdefault("" if about_nodes else peer.pool, []).append(peer)
        for carrier in carriers:
            mates = permitted.get("" if about_nodes else carrier.pool, ())
            permitted_peer = next((mate for mate in mates if mate.reference != carrier.reference), None)
            if permitted_peer is None or _permits(opposite, carrier) is True:
                continue
            owner = "its own rule" if other is rule else f"the rule {other.metadata.name!r}"
            message = f"{carrier.reference} permits {permitted_peer.device.name!r}, but {owner} on {permitted_peer.device.name!r} does not permit it"
            yield finding_at("D501", "", message)
            return


def _reach(
    permits: cel.Selector,
    carriers: Sequence[PublishedDevice],
    peers: Sequence[PublishedDevice],
    refused: Sequence[PublishedDevice],
) -> Findings:
    """Report a rule that excludes devices of other hardware although it reads no attribute that identifies the hardware."""
    sets = {peer.device.name: frozenset(use.counter_set for use in peer.device.consumes_counters) for peer in peers}
    distinct = {names for names in sets.values() if names}
    if len(distinct) < 2 or permits.reads.everything:
        return
    for domain, name in ((domain, name) for kind, domain, name in permits.reads.names if kind == "attributes"):
        values: dict[frozenset[str], set[str]] = {names: set() for names in distinct}
        for peer in peers:
            names = sets[peer.device.name]
            if names:
                values[names].add(repr(peer.attribute(f"{domain}/{name}")))
        if all(len(texts) == 1 for texts in values.values()) and len(set.union(*values.values())) == len(distinct):
            return  # the attribute is equal on all devices of a counter set and differs between counter sets
    examples: dict[frozenset[str], PublishedDevice] = {}
    for peer in refused:
        examples.setdefault(sets[peer.device.name], peer)
    examples.pop(frozenset(), None)
    judged_sets: set[frozenset[str]] = {frozenset()}
    for carrier in carriers:
        own_sets = sets[carrier.device.name]
        if own_sets in judged_sets:
            continue
        judged_sets.add(own_sets)
        other = next((peer for names, peer in examples.items() if not names & own_sets), None)
        if other is not None:
            message = (
                f"it forbids {carrier.device.name!r} and {other.device.name!r} together, although they share no counter set: "
                "the expression reads no attribute that differs between counter sets"
            )
            hint = "set scope: counterSet, or let the expression read an attribute that identifies the hardware"
            yield finding_at("D502", "", message, hint)
            return


def _carriers(rule: DeviceCompatibility, devices: Sequence[PublishedDevice]) -> list[PublishedDevice]:
    driver_devices = [published for published in devices if published.driver == rule.spec.driver]
    if not rule.spec.selector:
        return driver_devices
    picks = cel.compile_or_none(rule.spec.selector)
    if picks is None:
        return driver_devices
    return [published for published in driver_devices if _permits(picks, published) is not False]


def _permits(selector: cel.Selector, published: PublishedDevice) -> bool | str:
    try:
        return selector.matches(cel.view_of(published.driver, published.device))
    except SelectorError as error:
        return str(error)
