"""Applies the default amounts and the bounds of LimitRanges to pods in files, as the API server does before it calls webhooks.

Objects in files are judged with the default amounts. The amounts are removed again from the result, because the API server adds them itself.
An amount beyond a bound is a finding of `drawbridge check`. Mirrors kubernetes:plugin/pkg/admission/limitranger (mergeContainerResources,
PodValidateLimitFunc), which runs before webhooks and after the API's defaults, so a container with a limit has a request already.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from dra.errors import QuantityError
from dra.quantity import NANO, Quantity, from_json
from dra.raw import Object, inside, mapping, members
from webhook.dialects import Outcome
from webhook.translate import Decision, apply_own, group_kind, name_of, namespace_of, paths, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cluster.objects import LimitRange, LimitRangeItem
    from dra.wire import Json
    from webhook.state import State
    from webhook.translate import Operation


_Quantities = dict[str, Quantity]
_CONTAINER_FIELDS = ("initContainers", "containers")  # in starting order
_AMOUNT_FIELDS = ("limits", "requests")
_POD_LEVEL_RESOURCES = ("cpu", "memory")  # resources with pod-level amounts


class Filled(NamedTuple):
    """An object as it is in the file (`written`), and the same object with default amounts (`object`).

    `defaulted` has the containers that got amounts, by pointer: their `resources` in the file, and with default amounts.
    """

    written: dict[str, Any]
    object: dict[str, Any]
    defaulted: dict[str, tuple[Json, dict[str, Json]]]

    def undo(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """Convert operations on `object` into operations on `written`."""
        if not self.defaulted or not operations:
            return tuple(operations)
        changed = apply_own(self.object, operations)
        reverted: list[Operation] = []
        for operation in operations:
            container, _, inside = operation["path"].partition("/resources")
            if not (container in self.defaulted and (not inside or inside.startswith("/"))):
                reverted.append(operation)
        for container, (before, filled) in self.defaulted.items():
            after = _take_back(mapping(resolve_pointer(changed, f"{container}/resources")), before, filled)
            path = f"{container}/resources"
            if after and after != before:
                reverted.append({"op": "add", "path": path, "value": after})
            elif not after and before:
                reverted.append({"op": "remove", "path": path})
        return tuple(reverted)


def fill_in(obj: Object, state: State) -> Filled:
    """Add the default amounts of the namespace's LimitRanges to the containers of an object's pods."""
    ranges = state.file_limit_ranges.get(namespace_of(obj))
    if not ranges or _is_stored(obj):
        return Filled(obj, obj, {})
    defaults = _defaults(ranges)
    defaulted: dict[str, tuple[Json, dict[str, Json]]] = {}
    for path in paths(obj):
        spec = inside(resolve_pointer(obj, path), "spec")
        for pointer, container in _containers(spec):
            before = container.get("resources")
            if before is None or isinstance(before, dict):
                filled = _fill(before or {}, defaults)
                if filled != (before or {}):
                    defaulted[f"{path}/spec/{pointer}"] = before, filled
    operations: list[Operation] = []
    for pointer, (_, filled) in defaulted.items():
        operations.append({"op": "add", "path": f"{pointer}/resources", "value": filled})
    return Filled(obj, apply_own(obj, operations) if defaulted else obj, defaulted)


def out_of_bounds(obj: Object, state: State) -> list[Decision]:
    """Return a decision for each amount that a LimitRange of the namespace forbids; the container is "" if the amount is the whole pod's."""
    decisions: list[Decision] = []
    ranges = state.file_limit_ranges.get(namespace_of(obj))
    if not ranges or _is_stored(obj):
        return decisions
    all_bounds = [(range_.metadata.name, bounds) for range_ in _sorted(ranges) for bounds in range_.spec.limits]
    filled = fill_in(obj, state).object
    for path in paths(obj):
        spec, written = [inside(resolve_pointer(version, path), "spec") for version in (filled, obj)]
        judged: list[tuple[str, str, _Quantities, _Quantities]] = []
        for _, container in _containers(spec):
            limits, requests = [_amounts(container, part) for part in _AMOUNT_FIELDS]
            judged.append(("Container", str(container.get("name") or ""), limits, requests))
        judged.append(("Pod", "", *_amounts_of_pod(spec, written)))
        for range_name, bounds in all_bounds:
            for type_, name, limits, requests in judged:
                for key, text in _beyond(bounds, limits, requests) if type_ == bounds.type else ():
                    subject = "all containers together: " if type_ == "Pod" else ""
                    message = f"the API server would refuse the pod because of LimitRange {range_name}: {subject}{text}"
                    decisions.append(Decision(name_of(obj), name, "", key, Outcome.LEFT, message, code="D219"))
    return decisions


def _containers(spec: dict[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    """List the containers of a pod, each with its pointer below the spec."""
    for field in _CONTAINER_FIELDS:
        for i, raw in enumerate(members(spec.get(field))):
            if isinstance(raw, dict):
                yield f"{field}/{i}", raw


def _amounts(container: dict[str, Json], part: str) -> _Quantities:
    """Return the limits or the requests of a container. A missing request equals the limit."""
    resources = mapping(container.get("resources"))
    limits = _read(mapping(resources.get("limits")))
    return limits if part == "limits" else limits | _read(mapping(resources.get("requests")))


def _amounts_of_pod(spec: dict[str, Json], written: dict[str, Json]) -> tuple[_Quantities, _Quantities]:
    """Return the limits and the requests of a pod: its pod-level amounts, or else the sums over its containers."""
    limits, requests = [_total(spec, part) for part in _AMOUNT_FIELDS]
    own = mapping(spec.get("resources"))
    own_limits, own_requests = _read(mapping(own.get("limits"))), _read(mapping(own.get("requests")))
    if own_limits:  # the API server sets missing pod-level requests before it applies LimitRanges
        own_requests = own_limits | _total(written, "requests") | own_requests
    for name in _POD_LEVEL_RESOURCES:
        limits |= {name: own_limits[name]} if name in own_limits else {}
        requests |= {name: own_requests[name]} if name in own_requests else {}
    return limits, requests


def _total(spec: dict[str, Json], part: str) -> _Quantities:
    """Return for each resource the larger of two sums of limits or requests.

    One is over containers and sidecars, the other over an init container and the sidecars before it.
    """
    lasting: _Quantities = {}
    init_peak: _Quantities = {}
    for pointer, container in _containers(spec):
        is_ending = pointer.startswith("initContainers/") and container.get("restartPolicy") != "Always"
        for name, amount in _amounts(container, part).items():
            at_once = lasting[name] + amount if name in lasting else amount
            if is_ending:
                init_peak[name] = max(at_once, init_peak.get(name, at_once))
            else:
                lasting[name] = at_once
    return lasting | {name: max(amount, lasting.get(name, amount)) for name, amount in init_peak.items()}


def _beyond(bounds: LimitRangeItem, limits: _Quantities, requests: _Quantities) -> Iterator[tuple[str, str]]:
    """Yield each resource that violates a bound, with the reason.

    A missing request violates a minimum. A missing limit violates a maximum. A missing request or limit violates a ratio.
    """
    for key, least in bounds.min.items():
        for part, amounts in (("request", requests), ("limit", limits)):
            amount = amounts.get(key)
            if (amount is None and part == "request") or (amount is not None and amount < least):
                yield (
                    key,
                    f"{part} {amount} is below {least}"
                    if amount is not None
                    else f"the {part} is missing; the minimum is {least}",
                )
    for key, most in bounds.max.items():
        for part, amounts in (("limit", limits), ("request", requests)):
            amount = amounts.get(key)
            if (amount is None and part == "limit") or (amount is not None and amount > most):
                yield (
                    key,
                    f"{part} {amount} is above {most}"
                    if amount is not None
                    else f"the {part} is missing; the maximum is {most}",
                )
    for key, ratio in bounds.max_limit_request_ratio.items():
        limit, request = limits.get(key), requests.get(key)
        if not limit or not request or not limit.nano or not request.nano:
            yield key, f"the limit may be at most {ratio} times the request, so both are needed"
        elif limit.nano * NANO > ratio.nano * request.nano:
            yield key, f"limit {limit} is more than {ratio} times request {request}"


def _read(amounts: dict[str, Json]) -> _Quantities:
    """Parse amounts. An invalid amount is skipped; another check reports it."""
    quantities: _Quantities = {}
    for name, value in amounts.items():
        with suppress(QuantityError):
            quantities[name] = from_json(value)
    return quantities


def _is_stored(obj: Object) -> bool:
    """Return whether an object is a pod that an API server has stored, so that it has the default amounts."""
    metadata = mapping(obj.get("metadata"))
    return group_kind(obj) == ("", "Pod") and bool(metadata.get("uid"))


def _sorted(ranges: Iterable[LimitRange]) -> list[LimitRange]:
    """Sort LimitRanges by name; the API server applies them in an undefined order."""
    return sorted(ranges, key=lambda entry: entry.metadata.name)


def _defaults(ranges: Iterable[LimitRange]) -> dict[str, dict[str, str]]:
    """Return the default limits and requests of the containers of a namespace. The first LimitRange by name wins.

    The API server first defaults the LimitRange itself: `max` becomes the default limit, and the default limit, or else `min`, becomes the default
    request. Mirrors kubernetes:pkg/apis/core/v1/defaults.go (SetDefaults_LimitRangeItem).
    """
    defaults: dict[str, dict[str, str]] = {"limits": {}, "requests": {}}
    for limit_range in reversed(_sorted(ranges)):
        for item in limit_range.spec.limits:
            if item.type == "Container":
                limits = {**item.max, **item.default}
                requests = {**item.min, **limits, **item.default_request}
                defaults["limits"] |= {name: str(amount) for name, amount in limits.items()}
                defaults["requests"] |= {name: str(amount) for name, amount in requests.items()}
    return defaults


def _fill(resources: dict[str, Json], defaults: dict[str, dict[str, str]]) -> dict[str, Json]:
    limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
    requested = {**limits, **requests}  # a missing request equals the limit
    more_limits = {name: amount for name, amount in defaults["limits"].items() if name not in limits}
    more_requests = {name: amount for name, amount in defaults["requests"].items() if name not in requested}
    filled = dict(resources)
    if more_limits:
        filled["limits"] = {**limits, **more_limits}
    if more_requests:
        filled["requests"] = {**requests, **more_requests}
    return filled


def _take_back(changed: dict[str, Json], before: Json, filled: dict[str, Json]) -> dict[str, Json]:
    """Return the changed resources without the amounts that were filled in."""
    own = mapping(before)
    after = dict(changed)
    for part in _AMOUNT_FIELDS:
        if part not in changed:
            continue
        amounts, written = mapping(changed[part]), mapping(own.get(part))
        remaining = {
            name: amount
            for name, amount in amounts.items()
            if name in written or mapping(filled.get(part)).get(name) != amount
        }
        if remaining or (part in own and not written):
            after[part] = remaining
        else:
            del after[part]
    return after
