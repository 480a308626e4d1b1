"""Rules about the requests and devices to which the parameters of a claim or class apply.

An entry of `config` should apply to devices of its driver and kind, and no other entry should override it. Drivers read the entries from
the allocation. Since 1.37, a list of all requests becomes an empty list there, which means all requests. Drivers compare the names in
a list with the request names of results, which are `request/alternative` for alternatives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dra.finding import Findings, finding_at
from dra.pointer import escape
from dra.raw import inside
from dra.server import CURRENT
from dra.validation.fields.limits import list_or_none
from dra.validation.parameters.entries import parameter_problems, recognise
from dra.validation.parameters.scope import DeviceScope
from dra.validation.parameters.tables import DRIVERS, Order

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from dra.budget import Budget
    from dra.objects import (
        DeviceClaim,
        DeviceClaimConfiguration,
        DeviceClass,
        DeviceSelector,
        DeviceSubRequest,
        ExactDeviceRequest,
        ResourceSlice,
    )
    from dra.validation.parameters.entries import Recognised
    from dra.validation.parameters.tables import KnownDriver

# The API server's limits for entries and for requests, and for the alternatives of a request.
_MAX: Final = 32
_CLEARS: Final = 37  # the minor from which on the API server makes a list that names every request empty
_ALTERNATIVES: Final = 8
_GPU: Final = DRIVERS["gpu.nvidia.com"]
# The classes whose devices a driver prepares only with parameters of a kind, and the name of the kind.
_CLASSES: Final = {
    kind.device_class: name for driver in DRIVERS.values() for name, kind in driver.kinds.items() if kind.device_class
}


class _Alternative(NamedTuple):
    """A request without alternatives, or one alternative."""

    request: str
    name: str
    expressions: tuple[str, ...]


class _Entry(NamedTuple):
    """An entry of `config`, and the requests and alternatives to which it applies."""

    path: str
    driver: str
    known: Recognised | None
    leaves: list[_Alternative]
    names: frozenset[str]  # the names of the leaves


def claim_settings(
    devices: DeviceClaim,
    path: str,
    classes: Mapping[str, DeviceClass],
    budget: Budget | None = None,
    slices: Collection[ResourceSlice] = (),
) -> Findings:
    """Judge each entry of a claim's driver parameters by itself, and against the claim's requests and the published slices."""
    for index, config in enumerate(devices.config[:_MAX]):
        yield from parameter_problems(config.opaque, f"{path}/config/{index}/opaque")
    yield from reach_problems(devices, path, classes, budget, slices)


def reach_problems(
    devices: DeviceClaim,
    path: str,
    classes: Mapping[str, DeviceClass],
    budget: Budget | None = None,
    slices: Collection[ResourceSlice] = (),
    *,
    minor: int = CURRENT,
) -> Findings:
    """Judge to which requests and devices the driver parameters of a claim apply."""
    yield from _channel_lacks(devices, path, classes)
    if not devices.config:
        return
    scope = DeviceScope(budget)
    leaves: list[_Alternative] = []
    for request in devices.requests[:_MAX]:
        if request.exactly is not None:
            leaves.append(_Alternative(request.name, request.name, _picks(request.exactly, classes)))
        for sub in request.first_available[:_ALTERNATIVES]:
            leaf = _Alternative(request.name, f"{request.name}/{sub.name}", _picks(sub, classes))
            leaves.append(leaf)
    entries: list[_Entry] = []
    for index, config in enumerate(devices.config[:_MAX]):
        requests = config.requests
        named = [leaf for leaf in leaves if not requests or leaf.request in requests or leaf.name in requests]
        if config.opaque is None or not named:
            continue  # another check reports names that no request has
        pointer, driver = f"{path}/config/{index}", config.opaque.driver
        names = [leaf.name for leaf in named]
        entry = _Entry(pointer, driver, recognise(config.opaque), named, frozenset(names))
        entries.append(entry)
        reached = [leaf for leaf in named if scope.may_pick(leaf.expressions, driver)]
        if not reached:
            message = f"by its class and selectors, {list_or_none(names)} cannot get a device of {driver!r}"
            yield finding_at("D706", f"{pointer}/opaque/driver", message)
            continue
        # An entry that applies to all requests must fit at least one of them; any other entry must fit each of its requests.
        is_for_all = len(named) == len(leaves)
        if entry.known is not None:
            for group in [reached] if is_for_all else [[leaf] for leaf in reached]:
                yield from _mismatch(scope, entry.known, group, pointer)
        if driver in DRIVERS:
            is_empty = not requests or (is_for_all and minor >= _CLEARS)
            yield from _lists(entry, requests, DRIVERS[driver], is_for_all=is_empty)
    # An entry has no effect if another entry of the same kind applies to all of its requests and takes precedence.
    for number, entry in enumerate(entries):
        if entry.known is None:
            continue
        order = entry.known.driver.order
        rivals = entries[number + 1 :] if order is Order.LAST else entries[:number] if order is Order.FIRST else []
        same_kind = [rival for rival in rivals if rival.known is not None and rival.known.kind is entry.known.kind]
        winner = next((rival for rival in same_kind if rival.names >= entry.names), None)
        if winner is not None:
            message = f"of several entries for a device, {entry.driver} uses {order.value}, which is {winner.path}"
            yield finding_at("D708", entry.path, message, "write all settings in one entry")
    yield from _passed_through(scope, leaves, entries, path)
    yield from _sharing_problems(devices, path, slices)


def class_settings(device_class: DeviceClass) -> Findings:
    """Judge to which devices of a class the driver parameters of the class apply."""
    scope, leaf = DeviceScope(), _Alternative("", "", _expressions(device_class.spec.selectors))
    for index, config in enumerate(device_class.spec.config[:_MAX]):
        if config.opaque is None:
            continue
        path, driver = f"/spec/config/{index}", config.opaque.driver
        if not scope.may_pick(leaf.expressions, driver):
            yield finding_at("D313", f"{path}/opaque/driver", f"the class selects no devices of {driver!r}")
        elif known := recognise(config.opaque):
            yield from _mismatch(scope, known, [leaf], path)


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    return tuple(selector.cel.expression for selector in selectors[:_MAX] if selector.cel is not None)


def _picks(request: ExactDeviceRequest | DeviceSubRequest, classes: Mapping[str, DeviceClass]) -> tuple[str, ...]:
    """Return the selectors of a request and of its class. An unknown class counts as a class without selectors."""
    class_ = classes.get(request.device_class_name)
    of_class = _expressions(class_.spec.selectors) if class_ is not None else ()
    return (*of_class, *_expressions(request.selectors))


def _mismatch(scope: DeviceScope, known: Recognised, leaves: list[_Alternative], path: str) -> Findings:
    """Report parameters whose kind is for devices that none of the requests can get."""
    driver, kind_types = known.driver, known.kind.devices
    reachable_types = _types(scope, driver, leaves)
    if not kind_types or not reachable_types or kind_types.intersection(reachable_types):
        return
    names = [leaf.name for leaf in leaves if leaf.name]
    subject = f"{list_or_none(names)} can get" if names else "the class selects"
    intended_types = " or ".join(sorted(kind_types))
    message = f"a {known.name} is for devices of type {intended_types}, and {subject} devices of type {', '.join(reachable_types)}"
    kinds = [name for name, kind in driver.kinds.items() if kind.devices.intersection(reachable_types)]
    hint = f"write kind: {' or '.join(kinds)}" if kinds else ""
    yield finding_at("D705", f"{path}/opaque/parameters/kind", message, hint)


def _types(scope: DeviceScope, driver: KnownDriver, leaves: list[_Alternative]) -> list[str]:
    """Return the types of devices that the requests may get."""
    return [
        type_ for type_ in driver.types if any(scope.may_pick(leaf.expressions, driver.name, type_) for leaf in leaves)
    ]


def _lists(entry: _Entry, requests: Sequence[str], driver: KnownDriver, *, is_for_all: bool) -> Findings:
    """Report lists of requests that the driver interprets differently from the API."""
    if driver.listed_only and is_for_all:
        cause = "it names no request"
        if requests:
            cause = "it names every request, and Kubernetes 1.37 makes such a list empty"
        message = f"{cause}; {driver.name} applies an entry without names to no device"
        hint = "name some of several requests: this driver does not read an empty list as all requests"
        yield finding_at("D707", f"{entry.path}/requests", message, hint)
    for index, name in enumerate(requests[:_MAX] if not is_for_all else ()):
        alternatives = [leaf.name for leaf in entry.leaves if leaf.request == name and leaf.name != name]
        if alternatives:
            message = f"{name!r} has alternatives, and {driver.name} compares the name of the allocated alternative"
            yield finding_at(
                "D707", f"{entry.path}/requests/{index}", message, f"name {list_or_none(alternatives)} instead"
            )


def _passed_through(scope: DeviceScope, leaves: list[_Alternative], entries: list[_Entry], path: str) -> Findings:
    """Report several configurations of VFIO devices: the driver uses only one per claim."""
    vfio = [entry for entry in entries if entry.known is not None and entry.known.name == "VfioDeviceConfig"]
    set_ups: set[str] = set()
    for leaf in leaves if vfio else ():
        if _types(scope, _GPU, [leaf]) == ["vfio"]:
            set_up = "the driver's defaults"  # if no entry applies
            for entry in vfio:  # the last entry that applies counts
                if leaf.name in entry.names:
                    set_up = entry.path
            set_ups.add(set_up)
    if len(set_ups) > 1:
        message = f"{' and '.join(sorted(set_ups))} set up VFIO devices, and the driver uses one set-up for all devices of a claim"
        yield finding_at("D704", f"{path}/config", message, "write one entry for all requests, or two claims")


# ---- Channels and daemons of ComputeDomains ------------------------------------------------------------------------


def asks_for_channels(devices: DeviceClaim) -> bool:
    """Return whether a claim requests the class for channels or for daemons of a ComputeDomain that NVIDIA's chart creates."""
    return any(
        request.exactly is not None and request.exactly.device_class_name in _CLASSES for request in devices.requests
    )


def _channel_lacks(devices: DeviceClaim, path: str, classes: Mapping[str, DeviceClass]) -> Findings:
    """Report a request for a channel or a daemon if no entry names the ComputeDomain."""
    for index, request in enumerate(devices.requests[:_MAX]):
        name = request.exactly.device_class_name if request.exactly is not None else ""
        kind = _CLASSES.get(name)
        if kind is None:
            continue
        class_ = classes.get(name)
        entries = [entry.opaque for entry in class_.spec.config] if class_ is not None else []
        listed = [config for config in devices.config[:_MAX] if not config.requests or request.name in config.requests]
        entries += [config.opaque for config in listed]
        if kind not in [known.name for known in map(recognise, entries) if known is not None]:
            problem = f"no {kind} says to which ComputeDomain request {request.name!r} belongs"
            yield finding_at("D710", f"{path}/requests/{index}", f"{problem}: the driver refuses to prepare it")


# ---- Sharing ---------------------------------------------------------------------------------------------------------


def _sharing_problems(devices: DeviceClaim, path: str, slices: Collection[ResourceSlice]) -> Findings:
    """Judge the MPS settings of a claim against the claim's requests, and against the mode of NVIDIA's driver on its nodes."""
    for index, config in enumerate(devices.config[:_MAX]):
        sharing = _sharing(config)
        if sharing.get("strategy") != "MPS":
            continue
        pointer = f"{path}/config/{index}/opaque/parameters/sharing"
        reached = [
            request.exactly
            for request in devices.requests[:_MAX]
            if request.exactly is not None and (not config.requests or request.name in config.requests)
        ]
        capacities = [name for request in reached if request.capacity is not None for name in request.capacity.requests]
        if any(name.rpartition("/")[2] == "shares" for name in capacities):
            message = "the request is for shares of GPUs, for which the driver refuses MPS"
            yield finding_at("D704", f"{pointer}/strategy", message)
        elif config.opaque is not None and config.opaque.driver == _GPU.name and _is_partitioned(slices):
            message = "the driver runs with DynamicMIG on each of its nodes, and then refuses MPS"
            yield finding_at(
                "D704", f"{pointer}/strategy", message, "leave MPS out, or select nodes without DynamicMIG"
            )
        # If a request has alternatives or allocationMode All, the number of devices to which the entry applies is unknown.
        count_known = not any(request.first_available for request in devices.requests)
        if not reached or not count_known or any(request.allocation_mode == "All" for request in reached):
            continue
        count = sum(max(request.count, 1) for request in reached)
        mps = sharing.get("mpsConfig")
        limits = mps.get("defaultPerDevicePinnedMemoryLimit") if isinstance(mps, dict) else None
        for name in limits if isinstance(limits, dict) else ():
            # The driver numbers the devices of a claim from 0.
            if name.isascii() and name.isdecimal() and len(name) < 7 and int(name) >= count:
                where = f"{pointer}/mpsConfig/defaultPerDevicePinnedMemoryLimit/{escape(name)}"
                message = f"the entry is for {count} devices, and the last of them has index {count - 1}"
                yield finding_at("D703", where, message)


def _is_partitioned(slices: Collection[ResourceSlice]) -> bool:
    """Return whether NVIDIA's driver runs with DynamicMIG on all of its nodes. It publishes counters only in this mode."""
    specs = [slice_.spec for slice_ in slices if slice_.spec.driver == _GPU.name]
    counting = {spec.node_name for spec in specs if spec.shared_counters}
    return bool(specs) and all(spec.node_name in counting for spec in specs)


def strategy_of(devices: DeviceClaim) -> str:
    """Return the strategy by which containers share the devices of a claim; "" for alternatives and for shares of devices."""
    if any(request.exactly is None or request.exactly.capacity is not None for request in devices.requests):
        return ""
    for config in devices.config[:_MAX]:
        strategy = _sharing(config).get("strategy")
        if isinstance(strategy, str) and strategy:
            return strategy
    return ""


def _sharing(config: DeviceClaimConfiguration) -> Mapping[str, Any]:
    known = recognise(config.opaque)
    return inside(known.parameters, "sharing") if known is not None else {}
