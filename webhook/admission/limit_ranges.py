"""Pods in files as an API server shows them to webhooks: with what the LimitRanges of their namespace give to containers.

Files are judged by these amounts, and keep their own: an API server gives them again. What it refuses of a pod for the bounds of
containers and of whole pods is a finding of `check`. Mirrors kubernetes:plugin/pkg/admission/limitranger (mergeContainerResources,
PodValidateLimitFunc), which comes before webhooks and after the API's defaults: a container that is limited has a request already.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from dra.errors import QuantityError
from dra.quantity import NANO, Quantity, parse
from dra.raw import Object, inside, mapping, members
from webhook.dialects import Outcome
from webhook.translate import Decision, apply_own, group_kind, name_of, namespace_of, paths, resolve_pointer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dra.wire import Json
    from webhook.state import Bounds, ContainerDefaults, State
    from webhook.translate import Operation


_Read = dict[str, Quantity]
_LISTS = ("containers", "initContainers")
_PARTS = ("limits", "requests")
_OF_PODS = ("cpu", "memory")  # what a pod can ask for as a whole


class Filled(NamedTuple):
    """An object as it is written and as it is judged, and the resources of each container that was given something, by its pointer: before and after."""

    written: dict[str, Any]
    object: dict[str, Any]
    given: dict[str, tuple[Json, dict[str, Json]]]

    def undo(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """Turn operations on the object as it is judged into such on the object as it is written."""
        if not self.given or not operations:
            return tuple(operations)
        changed = apply_own(self.object, operations)
        reverted: list[Operation] = []
        for operation in operations:
            container, _, inside = operation["path"].partition("/resources")
            if not (container in self.given and (not inside or inside.startswith("/"))):
                reverted.append(operation)
        for container, (before, filled) in self.given.items():
            after = _take_back(mapping(resolve_pointer(changed, f"{container}/resources")), before, filled)
            path = f"{container}/resources"
            if after and after != before:
                reverted.append({"op": "add", "path": path, "value": after})
            elif not after and before:
                reverted.append({"op": "remove", "path": path})
        return tuple(reverted)


def fill_in(obj: Object, state: State) -> Filled:
    """Add what the LimitRanges of the namespace add to the containers of an object's pods."""
    defaults = state.container_defaults.get(namespace_of(obj))
    if defaults is None or _is_stored(obj):
        return Filled(obj, obj, {})
    given: dict[str, tuple[Json, dict[str, Json]]] = {}
    for path in paths(obj):
        spec = inside(resolve_pointer(obj, path), "spec")
        for place, container in _containers(spec):
            before = container.get("resources")
            if before is None or isinstance(before, dict):
                filled = _fill(before or {}, defaults)
                if filled != (before or {}):
                    given[f"{path}/spec/{place}"] = before, filled
    operations: list[Operation] = []
    for place, (_, filled) in given.items():
        operations.append({"op": "add", "path": f"{place}/resources", "value": filled})
    return Filled(obj, apply_own(obj, operations) if given else obj, given)


def out_of_bounds(obj: Object, state: State) -> list[Decision]:
    """List the containers, or "" for the whole pod, for which LimitRanges of the namespace would have an object's pods refused."""
    defaults = state.container_defaults.get(namespace_of(obj))
    found: list[Decision] = []
    if defaults is None or not defaults.bounds or _is_stored(obj):
        return found
    filled = fill_in(obj, state).object
    for path in paths(obj):
        spec, written = [inside(resolve_pointer(one, path), "spec") for one in (filled, obj)]
        judged: list[tuple[str, str, _Read, _Read]] = []
        for _, container in _containers(spec):
            limits, requests = [_amounts(container, part) for part in _PARTS]
            judged.append(("Container", str(container.get("name") or ""), limits, requests))
        judged.append(("Pod", "", *_amounts_of_pod(spec, written)))
        for bounds in defaults.bounds:
            for type_, name, limits, requests in judged:
                for key, text in _beyond(bounds, limits, requests) if type_ == bounds.type else ():
                    of_pod = "all containers together: " if type_ == "Pod" else ""
                    message = f"LimitRange {bounds.name} would have the API server refuse it: {of_pod}{text}"
                    found.append(Decision(name_of(obj), name, "", key, Outcome.LEFT, message, code="D219"))
    return found


def _containers(spec: dict[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    """List the containers of a pod, each with its place in the spec."""
    for field in _LISTS:
        for i, raw in enumerate(members(spec.get(field))):
            if isinstance(raw, dict):
                yield f"{field}/{i}", raw


def _amounts(container: dict[str, Json], part: str) -> _Read:
    """Read the limits or requests of a container; an amount with a limit has a request of as much."""
    resources = mapping(container.get("resources"))
    limits = _read(mapping(resources.get("limits")))
    return limits if part == "limits" else limits | _read(mapping(resources.get("requests")))


def _amounts_of_pod(spec: dict[str, Json], written: dict[str, Json]) -> tuple[_Read, _Read]:
    """Add up the limits and requests of a pod's containers; what the pod asks for as a whole is in their place."""
    limits, requests = [_total(spec, part) for part in _PARTS]
    own = mapping(spec.get("resources"))
    own_limits, own_requests = _read(mapping(own.get("limits"))), _read(mapping(own.get("requests")))
    if own_limits:  # the API's default, from before the LimitRanges
        own_requests = own_limits | _total(written, "requests") | own_requests
    for name in _OF_PODS:
        limits |= {name: own_limits[name]} if name in own_limits else {}
        requests |= {name: own_requests[name]} if name in own_requests else {}
    return limits, requests


def _total(spec: dict[str, Json], part: str) -> _Read:
    """Add up the limits or requests of containers and sidecars, or take those of an init container that has more."""
    total: _Read = {}
    sidecars: _Read = {}
    starting: _Read = {}
    for place, container in _containers(spec):
        amounts = _amounts(container, part)
        if place.startswith("containers/"):
            total = _plus(total, amounts)
            continue
        at_once = _plus(sidecars, amounts)
        if container.get("restartPolicy") == "Always":
            total, sidecars = _plus(total, amounts), at_once
        starting = _larger(starting, at_once)
    return _larger(total, starting)


def _plus(left: _Read, right: _Read) -> _Read:
    return left | {name: left[name] + amount if name in left else amount for name, amount in right.items()}


def _larger(left: _Read, right: _Read) -> _Read:
    return left | {name: amount for name, amount in right.items() if name not in left or amount > left[name]}


def _beyond(bounds: Bounds, limits: _Read, requests: _Read) -> Iterator[tuple[str, str]]:
    """Compare amounts with bounds; an amount that is not named is beyond each."""
    for key, least in bounds.least.items():
        for part, amounts in (("request", requests), ("limit", limits)):
            amount = amounts.get(key)
            if (amount is None and part == "request") or (amount is not None and amount < least):
                yield key, f"{part} {amount or 'is missing, which'} is below {least}"
    for key, most in bounds.most.items():
        for part, amounts in (("limit", limits), ("request", requests)):
            amount = amounts.get(key)
            if (amount is None and part == "limit") or (amount is not None and amount > most):
                yield key, f"{part} {amount or 'is missing, which'} is above {most}"
    for key, ratio in bounds.ratio.items():
        limit, request = limits.get(key), requests.get(key)
        if not limit or not request or not limit.nano or not request.nano:
            yield key, f"a limit of at most {ratio} times the request needs both"
        elif limit.nano * NANO > ratio.nano * request.nano:
            yield key, f"limit {limit} is more than {ratio} times request {request}"


def _read(amounts: dict[str, Json]) -> _Read:
    """Read amounts; one that is not an amount is another finding."""
    found: _Read = {}
    for name, value in amounts.items():
        with suppress(QuantityError):
            found[name] = parse(value if isinstance(value, str) else repr(value))
    return found


def _is_stored(obj: Object) -> bool:
    """Return whether an object is a pod that an API server has filled in already."""
    metadata = mapping(obj.get("metadata"))
    return group_kind(obj) == ("", "Pod") and bool(metadata.get("uid"))


def _fill(resources: dict[str, Json], defaults: ContainerDefaults) -> dict[str, Json]:
    limits, requests = mapping(resources.get("limits")), mapping(resources.get("requests"))
    requested = {**limits, **requests}  # an amount with a limit has a request of as much
    more_limits = {name: amount for name, amount in defaults.limits.items() if name not in limits}
    more_requests = {name: amount for name, amount in defaults.requests.items() if name not in requested}
    filled = dict(resources)
    if more_limits:
        filled["limits"] = {**limits, **more_limits}
    if more_requests:
        filled["requests"] = {**requests, **more_requests}
    return filled


def _take_back(changed: dict[str, Json], before: Json, filled: dict[str, Json]) -> dict[str, Json]:
    """Take out of what became of resources what was filled in."""
    own = mapping(before)
    after = dict(changed)
    for part in _PARTS:
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
