"""What the entries of a claim or a class reach: devices of their driver and kind, and none that another entry takes from them.

Lists are compared as an allocation carries them: since 1.37 one that names every request is cleared, and means all. Drivers compare the names in it with
those of results, which for an alternative is `request/alternative`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dra.validation.fields.limits import some
from dra.validation.parameters.channels import channel_lacks
from dra.validation.parameters.driver import Order
from dra.validation.parameters.judge import parameter_problems, recognise
from dra.validation.parameters.nvidia import GPU
from dra.validation.parameters.scope import DeviceScope
from dra.validation.parameters.sharing import sharing_problems
from dra.validation.parameters.table import DRIVERS
from dra.validation.problem import Problem, Problems

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dra.budget import Budget
    from dra.objects import (
        DeviceClaim,
        DeviceClaimConfiguration,
        DeviceClass,
        DeviceSelector,
        DeviceSubRequest,
        ExactDeviceRequest,
    )
    from dra.validation.parameters.driver import Driver
    from dra.validation.parameters.judge import Recognised

# More entries and requests than these are refused by the API server.
_MOST: Final = 32
_ALTERNATIVES: Final = 8


class _Leaf(NamedTuple):
    """A request that can get devices: one without alternatives, or one alternative."""

    request: str
    name: str
    expressions: tuple[str, ...]


class _Setting(NamedTuple):
    config: DeviceClaimConfiguration
    path: str
    driver: str
    known: Recognised | None
    leaves: list[_Leaf]
    names: frozenset[str]  # of the leaves
    # It is for every request, by an empty list or by one that names them all.
    whole: bool


def claim_settings(
    devices: DeviceClaim, path: str, classes: Mapping[str, DeviceClass], budget: Budget | None = None
) -> Problems:
    """Judge the driver parameters of a claim, each by itself and against what the claim asks for."""
    for index, config in enumerate(devices.config[:_MOST]):
        yield from parameter_problems(config.opaque, f"{path}/config/{index}/opaque")
    yield from reach_problems(devices, path, classes, budget)


def reach_problems(
    devices: DeviceClaim, path: str, classes: Mapping[str, DeviceClass], budget: Budget | None = None
) -> Problems:
    """Judge what the driver parameters of a claim reach."""
    yield from channel_lacks(devices, path, classes)
    if not devices.config:
        return
    scope, leaves = DeviceScope(budget), _leaves(devices, classes)
    entries = _entries(devices, path, leaves)
    for entry in entries:
        reached = [leaf for leaf in entry.leaves if _may_get(scope, leaf, entry.driver)]
        if not reached:
            yield _nowhere(entry)
            continue
        yield from _kinds(scope, entry, reached)
        yield from _lists(entry)
    yield from _overridden(entries)
    yield from _passed_through(scope, leaves, entries, path)
    yield from sharing_problems(devices, path)


def class_settings(device_class: DeviceClass) -> Problems:
    """Judge what the driver parameters of a class reach, by what the class selects."""
    scope, expressions = DeviceScope(), _expressions(device_class.spec.selectors)
    leaf = _Leaf("", "", expressions)
    for index, config in enumerate(device_class.spec.config[:_MOST]):
        if config.opaque is None:
            continue
        path, driver = f"/spec/config/{index}", config.opaque.driver
        if not _may_get(scope, leaf, driver):
            yield Problem("D313", f"{path}/opaque/driver", f"the class selects no devices of {driver!r}")
        elif known := recognise(config.opaque):
            yield from _mismatch(scope, known, [leaf], path)


def _expressions(selectors: Sequence[DeviceSelector]) -> tuple[str, ...]:
    return tuple(one.cel.expression for one in selectors[:_MOST] if one.cel is not None)


def _leaves(devices: DeviceClaim, classes: Mapping[str, DeviceClass]) -> list[_Leaf]:
    leaves = []
    for request in devices.requests[:_MOST]:
        if request.exactly is not None:
            picks = _picks(request.exactly, classes)
            leaves.append(_Leaf(request.name, request.name, picks))
        for sub in request.first_available[:_ALTERNATIVES]:
            picks = _picks(sub, classes)
            name = f"{request.name}/{sub.name}"
            leaves.append(_Leaf(request.name, name, picks))
    return leaves


def _picks(demand: ExactDeviceRequest | DeviceSubRequest, classes: Mapping[str, DeviceClass]) -> tuple[str, ...]:
    """The selectors of a request and of its class; of a class that we do not know none, so it may be anything."""
    class_ = classes.get(demand.device_class_name)
    of_class = _expressions(class_.spec.selectors) if class_ is not None else ()
    return (*of_class, *_expressions(demand.selectors))


def _entries(devices: DeviceClaim, path: str, leaves: list[_Leaf]) -> list[_Setting]:
    entries = []
    for index, config in enumerate(devices.config[:_MOST]):
        reached = [leaf for leaf in leaves if _names(config, leaf)]
        if config.opaque is None or not reached:
            continue  # said where references are judged
        at, driver = f"{path}/config/{index}", config.opaque.driver
        known = recognise(config.opaque)
        whole = len(reached) == len(leaves)
        names = frozenset([leaf.name for leaf in reached])
        entry = _Setting(config, at, driver, known, reached, names, whole)
        entries.append(entry)
    return entries


def _names(config: DeviceClaimConfiguration, leaf: _Leaf) -> bool:
    return not config.requests or leaf.request in config.requests or leaf.name in config.requests


def _may_get(scope: DeviceScope, leaf: _Leaf, driver: str, type_: str = "") -> bool:
    return scope.may_pick(leaf.expressions, driver, type_)


def _nowhere(entry: _Setting) -> Problem:
    names = some([leaf.name for leaf in entry.leaves])
    message = f"{names} cannot get a device of {entry.driver!r}, by what its class and its selectors say of the driver"
    return Problem("D706", f"{entry.path}/opaque/driver", message)


def _kinds(scope: DeviceScope, entry: _Setting, reached: list[_Leaf]) -> Problems:
    if entry.known is None:
        return
    if entry.whole:
        yield from _mismatch(scope, entry.known, reached, entry.path)
        return
    for leaf in reached:
        yield from _mismatch(scope, entry.known, [leaf], entry.path)


def _mismatch(scope: DeviceScope, known: Recognised, leaves: list[_Leaf], path: str) -> Problems:
    """Complain about a kind whose devices none of the requests can get."""
    driver, meant = known.driver, known.kind.devices
    got = _types(scope, driver, leaves)
    if not meant or not got or meant.intersection(got):
        return
    names = [leaf.name for leaf in leaves if leaf.name]
    who = f"{some(names)} can get" if names else "the class selects"
    wanted = " or ".join(sorted(meant))
    message = f"a {known.name} is for devices of type {wanted}, {who} those of type {', '.join(got)}"
    hint = _kind_for(driver, got)
    yield Problem("D705", f"{path}/opaque/parameters/kind", message, hint)


def _types(scope: DeviceScope, driver: Driver, leaves: list[_Leaf]) -> list[str]:
    """The types of device that some of the requests may get."""
    return [one for one in driver.types if any(_may_get(scope, leaf, driver.name, one) for leaf in leaves)]


def _kind_for(driver: Driver, types: list[str]) -> str:
    names = [name for name, kind in driver.kinds.items() if kind.devices.intersection(types)]
    return f"write kind: {' or '.join(names)}" if names else ""


def _lists(entry: _Setting) -> Problems:
    """Complain about lists that the driver reads otherwise than the claim means them."""
    driver = DRIVERS.get(entry.driver)
    if driver is None:
        return
    if driver.listed_only and entry.whole:
        said = (
            "its list names every request, which Kubernetes 1.37 makes an empty list"
            if entry.config.requests
            else "it names no request"
        )
        message = f"{said}, and {driver.name} applies an entry without names to no device"
        hint = "name some of several requests: the driver has to learn that an empty list means all"
        yield Problem("D707", f"{entry.path}/requests", message, hint)  # fmt: skip
    if entry.whole:
        return
    for index, name in enumerate(entry.config.requests[:_MOST]):
        alternatives = [leaf.name for leaf in entry.leaves if leaf.request == name and leaf.name != name]
        if alternatives:
            message = f"{name!r} has alternatives, and {driver.name} looks for the name of the one that was taken"
            hint = f"name {some(alternatives)} instead"
            yield Problem("D707", f"{entry.path}/requests/{index}", message, hint)


def _overridden(entries: list[_Setting]) -> Problems:
    """Complain about entries of which nothing is left: drivers take one for each device."""
    for number, entry in enumerate(entries):
        order = entry.known.driver.order if entry.known is not None else Order.MERGED
        rivals: list[_Setting] = []
        if order is Order.LAST:
            rivals = entries[number + 1 :]
        elif order is Order.FIRST:
            rivals = entries[:number]
        for rival in rivals:
            if _covers(rival, entry):
                message = f"{entry.driver} takes one entry for a device, {order.value}: that is {rival.path}"
                yield Problem("D708", entry.path, message, "write what is to hold in one entry")
                break


def _covers(rival: _Setting, entry: _Setting) -> bool:
    """Whether an entry of the same kind reaches all that another one does."""
    if rival.known is None or entry.known is None or rival.known.kind is not entry.known.kind:
        return False
    return rival.names >= entry.names


def _passed_through(scope: DeviceScope, leaves: list[_Leaf], entries: list[_Setting], path: str) -> Problems:
    """Complain about several set-ups of devices that are passed through: the driver takes one a claim, and what it assumes is one as well."""
    vfio = [entry for entry in entries if entry.known is not None and entry.known.name == "VfioDeviceConfig"]
    if not vfio:
        return
    taken: set[str] = set()
    for leaf in leaves:
        if _types(scope, GPU, [leaf]) == ["vfio"]:
            setup = _last(vfio, leaf)
            taken.add(setup)
    if len(taken) > 1:
        listed = " and ".join(sorted(taken))
        message = f"devices are passed through by {listed}, and the driver takes one set-up for all of a claim"
        yield Problem("D704", f"{path}/config", message, "write one entry for all requests, or two claims")


def _last(entries: list[_Setting], leaf: _Leaf) -> str:
    reaching = [entry.path for entry in entries if leaf.name in entry.names]
    return reaching[-1] if reaching else "what the driver assumes"
