"""Rules about claims, templates and classes against the published devices: requests that no device can serve, and selectors that fail.

These rules do not consider which devices are in use.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from dra import cel
from dra.errors import CapacityError, SelectorError
from dra.finding import Finding, Findings, finding_at
from dra.objects import blocks, selector_of, selects
from dra.pointer import member
from dra.policy import FENCE_TOLERATION
from dra.stock import charges
from dra.validation.fields.limits import list_or_none
from dra.validation.fields.shape import guess
from dra.validation.fleet.world import ADMIN_LABEL
from dra.validation.parameters.reach import class_settings, reach_problems

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from dra.objects import (
        Device,
        DeviceClaim,
        DeviceClass,
        DeviceConstraint,
        DeviceSelector,
        DeviceSubRequest,
        DeviceTaintRule,
        ExactDeviceRequest,
    )
    from dra.quantity import Quantity
    from dra.validation.fleet.published import Fleet, Matches, SelectorFailure
    from dra.validation.fleet.world import World

    Ask = ExactDeviceRequest | DeviceSubRequest

MAX_DEVICES: Final = 32
MAX_PARAMETERS: Final = 64
_DRIVER: Final = re.compile(r"""device\.driver\s*==\s*["']([^"']+)""")


class _NamedRequest(NamedTuple):
    """A request or an alternative of a request, its path, and the names by which constraints may refer to it."""

    request: Ask
    path: str
    names: frozenset[str]


def claim_problems(devices: DeviceClaim, path: str, namespace: str, world: World) -> Findings:
    """Judge the requests of a claim against the claim's namespace, the classes and the published devices."""
    named_requests: list[_NamedRequest] = []  # each alternative is an element
    least = 0  # the smallest number of devices that satisfies the claim
    for index, request in enumerate(devices.requests):
        pointer = f"{path}/requests/{index}"
        if request.exactly is not None:
            named_requests.append(_NamedRequest(request.exactly, f"{pointer}/exactly", frozenset({request.name})))
        for number, sub in enumerate(request.first_available):
            names = frozenset({request.name, f"{request.name}/{sub.name}"})
            named_requests.append(_NamedRequest(sub, f"{pointer}/firstAvailable/{number}", names))
        counts = [1 if ask.allocation_mode == "All" else max(ask.count, 1) for ask in request.alternatives.values()]
        least += min(counts, default=0)
    if least > MAX_DEVICES:
        message = f"the claim needs {least} devices, and a claim gets at most {MAX_DEVICES}"
        yield finding_at("D307", f"{path}/requests", message)
    picked: list[tuple[_NamedRequest, Matches]] = []
    for named in named_requests:
        pointer = f"{named.path}/allocationMode"
        wants_all = named.request.allocation_mode == "All"
        if wants_all and any(_covers(constraint, named) for constraint in devices.constraints):
            message = "a constraint covers a request for All devices: the first device that violates the constraint ends scheduling with an error"
            yield finding_at("D308", pointer, message, "select the devices with selectors instead")
        if wants_all and len(named.names) > 1:
            message = "allocationMode All in an alternative ends scheduling with an error while any pool of the node is being updated, even if an earlier alternative fits"
            yield finding_at("D308", pointer, message, "prefer a count")
        if getattr(named.request, "admin_access", None):
            labelled = world.admin_namespaces.get(namespace)
            if labelled is None:
                message = f"the API server refuses it unless the namespace has the label {ADMIN_LABEL}=true"
                yield finding_at("D310", f"{named.path}/adminAccess", message)
            elif not labelled:
                message = f"the namespace {namespace!r} does not have the label {ADMIN_LABEL}=true"
                yield finding_at("D119", f"{named.path}/adminAccess", message)
        device_class = world.classes.get(named.request.device_class_name)
        if device_class is None:
            name = named.request.device_class_name
            hint = guess(name, world.classes)
            if name and world.classes and (world.whole or hint):
                fatal = ", which is an error even if an earlier alternative fits" if len(named.names) > 1 else ""
                message = f"there is no class {name!r}{fatal}; the classes are {list_or_none(world.classes)}"
                yield finding_at("D301", f"{named.path}/deviceClassName", message, hint)
        elif world.fleet.devices:
            matches = yield from _select(named, device_class, world.fleet)
            picked.append((named, matches))
            yield from _amount_problems(named.request, named.path, matches)
    for index, constraint in enumerate(devices.constraints):
        yield from _constraint(constraint, f"{path}/constraints/{index}", picked)
    # An allocation contains the parameters of each class once, and the parameters of the claim.
    class_names = {named.request.device_class_name for named in named_requests if len(named.names) == 1}
    total = len(devices.config)
    total += sum(len(world.classes[name].spec.config) for name in class_names if name in world.classes)
    if total > MAX_PARAMETERS:
        message = (
            f"the claim and its classes have {total} entries together, and an allocation holds at most {MAX_PARAMETERS}"
        )
        yield finding_at("D316", f"{path}/config", message)
    slices = [piece.slice for piece in world.pieces] if devices.config else []
    yield from reach_problems(devices, path, world.classes, slices=slices, minor=world.minor)


def _covers(constraint: DeviceConstraint, named: _NamedRequest) -> bool:
    return not constraint.requests or bool(named.names & set(constraint.requests))


def _select(named: _NamedRequest, device_class: DeviceClass, fleet: Fleet) -> Generator[Finding, None, Matches]:
    """Judge the selectors of a request on the devices of its class."""
    name = named.request.device_class_name
    of_class = fleet.matching(device_class.spec.selectors)
    if of_class.failure is not None:
        message = f"a selector of class {name!r} fails on {_failure_text(of_class.failure)}"
        yield finding_at("D304", f"{named.path}/deviceClassName", message)
    if not of_class.devices:
        if of_class.failure is None:
            yield finding_at("D302", f"{named.path}/deviceClassName", f"no published device belongs to class {name!r}")
        return of_class
    matches = fleet.matching(named.request.selectors, of_class)
    none = f"none of the {len(of_class.devices)} devices of class {name!r} matches"
    yield from _selector_problems(matches, f"{named.path}/selectors", none, fleet, named.request.selectors)
    return matches


def class_problems(device_class: DeviceClass, world: World) -> Findings:
    """Judge a class against the published devices and the other classes."""
    name = device_class.spec.extended_resource_name
    others = [other.metadata.name for other in world.classes.values() if other.spec.extended_resource_name == name]
    if name is not None and len(others) > 1:
        yield finding_at("D309", "/spec/extendedResourceName", f"{list_or_none(sorted(others))} all serve {name}")
    setting_problems = list(class_settings(device_class))
    yield from setting_problems
    if not world.fleet.devices:
        return
    selectors = device_class.spec.selectors
    matches = world.fleet.matching(selectors)
    none = f"none of the {len(world.fleet.devices)} published devices matches"
    yield from _selector_problems(matches, "/spec/selectors", none, world.fleet, selectors)
    if name is not None and matches.devices and (taints := _taints_of_all(matches, world)):
        message = (
            f"all {len(matches.devices)} devices that could serve {name} are tainted ({list_or_none(taints)}), "
            f"and the claims that kube-scheduler creates for {name} tolerate no taint"
        )
        yield finding_at("D318", "/spec/extendedResourceName", message)
    drivers = {published.driver for published in matches.devices}
    for index, config in enumerate(device_class.spec.config):
        pointer = f"/spec/config/{index}/opaque/driver"
        reported = any(problem.path == pointer for problem in setting_problems)
        if config.opaque is not None and drivers and config.opaque.driver not in drivers and not reported:
            message = f"the class selects devices of {', '.join(sorted(drivers))}, not of {config.opaque.driver!r}"
            yield finding_at("D313", pointer, message)


def _taints_of_all(matches: Matches, world: World) -> list[str]:
    """Return the taints because of which a claim without tolerations gets none of these devices; empty if it can get any.

    The taint `drawbridge.dev/fence` does not count, because drawbridge adds the toleration of this taint to claims.
    """
    keys: set[str] = set()
    rules = [(selector_of(rule, world.minor), rule.spec.taint) for rule in world.rules.values()]
    for published in matches.devices:
        ruled = [taint for selector, taint in rules if selects(selector, *published.id)]
        blocking = {taint.key for taint in (*published.device.taints, *ruled) if blocks(taint, (FENCE_TOLERATION,))}
        if not blocking:
            return []
        keys |= blocking
    return sorted(keys)


def _selector_problems(
    matches: Matches, path: str, otherwise: str, fleet: Fleet, selectors: Sequence[DeviceSelector]
) -> Findings:
    """Report selectors that fail or select no device, and attributes in selectors that no device has."""
    if matches.failure is not None:
        pointer, key = f"{path}/{matches.failure.selector}/cel/expression", matches.failure.missing_key
        guard = ""  # the remedy for a missing key: test for it, because a failing selector ends scheduling
        if key.isidentifier():
            guard = f'write .?{key}.orValue(...) or test `"{key}" in ...` first: the scheduler gives up on the pod where a selector fails'
        yield finding_at("D304", pointer, f"it fails on {_failure_text(matches.failure)}", guard)
    if matches.devices and matches.failure is None:
        return
    unknown = False
    for index, selector in enumerate(selectors):
        for problem in _unknown_names(selector, f"{path}/{index}/cel/expression", fleet):
            unknown = True
            yield problem
    if not matches.devices and not unknown and matches.failure is None:
        yield finding_at("D302", path, otherwise)


def _failure_text(failure: SelectorFailure) -> str:
    return f"{failure.device.reference}: {failure.error}"


def _unknown_names(selector: DeviceSelector, path: str, fleet: Fleet) -> Findings:
    """Report attributes and capacities that an expression reads and no published device has."""
    if selector.cel is None:
        return
    try:
        reads = cel.compile(selector.cel.expression).reads
    except SelectorError:
        return
    absent = set(_DRIVER.findall(selector.cel.expression)) - {published.driver for published in fleet.devices}
    reported_domains: set[str] = set()
    for kind, domain, name in sorted(reads.names):
        published_names = fleet.names(kind)
        if (domain, name) in published_names:
            continue
        siblings = sorted(other for other_domain, other in published_names if other_domain == domain)
        domains = sorted({other_domain for other_domain, _ in published_names})
        noun = "attribute" if kind == "attributes" else "capacity"
        published_text = (
            f"{domain} publishes {', '.join(siblings[:8])}"
            if siblings
            else f"{noun} names are published in the domains {', '.join(domains[:5])}"
            if domains
            else f"no {noun} is published at all"
        )
        hint = guess(name, siblings) if siblings else guess(domain, domains)
        if domain in absent and not hint:  # no device of this domain is published, so its attributes are unknown
            if domain not in reported_domains:
                message = f"no device of driver {domain} is published"
                yield finding_at("D302", path, message, "run the driver, or add its ResourceSlices to the input")
            reported_domains.add(domain)
            continue
        yield finding_at("D303", path, f"no published device has the {noun} {domain}/{name}; {published_text}", hint)


def _constraint(constraint: DeviceConstraint, path: str, picked: Sequence[tuple[_NamedRequest, Matches]]) -> Findings:
    field = "matchAttribute" if constraint.match_attribute is not None else "distinctAttribute"
    name = constraint.match_attribute if constraint.match_attribute is not None else constraint.distinct_attribute
    if constraint.match_attribute is not None and constraint.distinct_attribute is not None:
        message = "matchAttribute is also set, so distinctAttribute is ignored"
        yield finding_at("D306", f"{path}/distinctAttribute", message, "write two constraints")
    if name is None:
        return
    for named, matches in picked:
        derived = any(attribute.name == name for attribute in named.request.derived_attributes)
        published = derived or any(device.attribute(name) for device in matches.devices)
        if matches.devices and not published and _covers(constraint, named):
            message = f"no device that matches {'/'.join(sorted(named.names, key=len)[-1:])!r} has the attribute {name}, so the constraint refuses all of them"
            yield finding_at("D306", f"{path}/{field}", message)


def rule_problems(rule: DeviceTaintRule, world: World) -> Findings:
    """Judge whether a taint rule matches published devices."""
    selector = rule.spec.device_selector
    if selector is None:
        tainted = "no device at all" if selector_of(rule, world.minor) is None else "every device of the cluster"
        yield finding_at("D317", "/spec", f"without deviceSelector the rule taints {tainted}")
        return
    path = "/spec/deviceSelector"
    if selector.driver is selector.pool is selector.device is None:
        yield finding_at("D317", path, "an empty deviceSelector taints every device of the cluster")
        return
    devices = world.fleet.devices
    if devices and not any(selects(selector, *published.id) for published in devices):
        yield finding_at("D317", path, "it selects no published device")


def _amount_problems(request: Ask, path: str, matches: Matches) -> Findings:
    """Judge the number of devices and the amounts of a request against the devices that match it."""
    devices = matches.devices
    if not devices:
        return
    if request.count > len(devices) and matches.failure is None:
        message = f"{request.count} devices are requested, and only {len(devices)} published devices match"
        yield finding_at("D305", f"{path}/count", message)
    requested = request.capacity.requests if request.capacity is not None else {}
    if not requested:
        # A request for shared devices that states no amount may take the whole capacity of a device.
        shared = [published.device for published in devices if published.device.allow_multiple_allocations]
        policies = ((name, capacity.request_policy) for device in shared for name, capacity in device.capacity.items())
        unbounded = sorted({name for name, policy in policies if policy is None or policy.default is None})
        if len(shared) == len(devices) and unbounded:
            message = (
                f"the devices are shared, and a request without capacity.requests takes all of {', '.join(unbounded)}"
            )
            yield finding_at("D311", path, message, f"say how much of {unbounded[0]} is needed")
        return
    path = f"{path}/capacity/requests"
    fits = True
    for name, amount in requested.items():
        capacities = [published.device.capacity for published in devices]
        values = [capacity[name].value for capacity in capacities if name in capacity]
        if not values:
            published = sorted(set().union(*capacities))
            message = f"no matching device has a capacity {name!r}; they have {list_or_none(published)}"
            same_name = [key for key in published if key.rpartition("/")[2] == name.rpartition("/")[2]]
            yield finding_at("D314", member(path, name), message, f"write {same_name[0]}" if same_name else "")
            fits = False
        elif amount > max(values):
            message = f"{amount} is more than any matching device has: at most {max(values)}"
            yield finding_at("D305", member(path, name), message)
            fits = False
    if fits and not any(_offers(published.device, requested) for published in devices):
        yield finding_at("D305", path, "no matching device's request policy offers these amounts together")


def _offers(device: Device, requested: Mapping[str, Quantity]) -> bool:
    try:
        amounts = charges(requested, device.capacity)
    except CapacityError:
        return False
    return amounts is not None and all(amount <= device.capacity[name].value for name, amount in amounts.items())
