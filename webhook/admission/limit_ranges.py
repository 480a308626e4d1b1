"""Pods in files as an API server shows them to webhooks: with what the LimitRanges of their namespace give to containers.

Files are judged by these amounts, and keep their own: an API server gives them again. What it refuses of a pod for the bounds of
containers is a finding of `check`; bounds of whole pods are not looked at. Mirrors kubernetes:plugin/pkg/admission/limitranger (mergeContainerResources), which comes before webhooks and after the
API's defaults: a container that is limited has a request already.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.patch import apply_json_patch
from dra.errors import QuantityError
from dra.quantity import NANO, Quantity, parse
from webhook.dialects import Action
from webhook.translate import Decision, at, group_kind, mapping, name_of, namespace_of, paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dra.wire import Json
    from webhook.state import Bounds, ContainerDefaults, State
    from webhook.translate import Operation

    _Object = dict[str, Any]

_Read = dict[str, Quantity]
_LISTS = ("containers", "initContainers")
_PARTS = ("limits", "requests")


class Filled(NamedTuple):
    """An object as it is written and as it is judged, and the resources of each container that was given something, by its pointer: before and after."""

    written: dict[str, Any]
    object: dict[str, Any]
    given: dict[str, tuple[Json, dict[str, Json]]]

    def undo(self, operations: Sequence[Operation]) -> tuple[Operation, ...]:
        """Turn operations on the object as it is judged into such on the object as it is written."""
        if not self.given or not operations:
            return tuple(operations)
        became = apply_json_patch(self.object, tuple(operations))
        kept: list[Operation] = []
        for one in operations:
            container, _, inside = one["path"].partition("/resources")
            if not (container in self.given and (not inside or inside.startswith("/"))):
                kept.append(one)
        for container, (before, filled) in self.given.items():
            after = _take_back(mapping(at(became, f"{container}/resources")), before, filled)
            path = f"{container}/resources"
            if after and after != before:
                kept.append({"op": "add", "path": path, "value": after})
            elif not after and before:
                kept.append({"op": "remove", "path": path})
        return tuple(kept)


def fill_in(obj: _Object, state: State, *, unknown: bool = False) -> Filled:
    """Give the containers of an object's pods what the LimitRanges of its namespace give them."""
    defaults = state.container_defaults.get(namespace_of(obj))
    metadata = mapping(obj.get("metadata"))
    if defaults is None or (
        group_kind(obj) == ("", "Pod") and metadata.get("uid")
    ):  # an API server has given it already
        return Filled(obj, obj, {})
    given: dict[str, tuple[Json, dict[str, Json]]] = {}
    for path in paths(obj, unknown=unknown):
        spec = mapping(mapping(at(obj, path)).get("spec"))
        for some in _LISTS:
            containers = spec.get(some)
            for i, raw in enumerate(containers if isinstance(containers, list) else ()):
                before = mapping(raw).get("resources") if isinstance(raw, dict) else None
                if isinstance(raw, dict) and (before is None or isinstance(before, dict)):
                    filled = _fill(before or {}, defaults)
                    if filled != (before or {}):
                        given[f"{path}/spec/{some}/{i}"] = before, filled
    operations: list[Operation] = []
    for place, (_, filled) in given.items():
        operations.append({"op": "add", "path": f"{place}/resources", "value": filled})
    return Filled(obj, apply_json_patch(obj, tuple(operations)) if given else obj, given)


def out_of_bounds(obj: _Object, state: State, *, unknown: bool = False) -> list[Decision]:
    """Say which containers of an object's pods an API server would refuse for the LimitRanges of the namespace."""
    defaults = state.container_defaults.get(namespace_of(obj))
    found: list[Decision] = []
    filled = fill_in(obj, state, unknown=unknown).object
    for path in paths(obj, unknown=unknown) if defaults is not None and not _is_stored(obj) else ():
        spec = mapping(mapping(at(filled, path)).get("spec"))
        for some in _LISTS:
            containers = spec.get(some)
            for raw in containers if isinstance(containers, list) else ():
                resources = mapping(mapping(raw).get("resources"))
                limits = mapping(resources.get("limits"))
                requests = {**limits, **mapping(resources.get("requests"))}
                for bounds in defaults.bounds if defaults is not None else ():
                    for key, text in _beyond(bounds, _read(limits), _read(requests)):
                        told = f"LimitRange {bounds.name} would have the API server refuse it: {text}"
                        name = str(mapping(raw).get("name") or "")
                        found.append(Decision(name_of(obj), name, "", key, Action.LEFT, told, code="D219"))
    return found


def _beyond(bounds: Bounds, limits: _Read, requests: _Read) -> Iterator[tuple[str, str]]:
    """Compare amounts with bounds; what is not named is beyond each."""
    for key, least in bounds.least.items():
        for word, amounts in (("request", requests), ("limit", limits)):
            amount = amounts.get(key)
            if (amount is None and word == "request") or (amount is not None and amount < least):
                yield key, f"{word} {amount or 'is not named, which'} is below {least}"
    for key, most in bounds.most.items():
        for word, amounts in (("limit", limits), ("request", requests)):
            amount = amounts.get(key)
            if (amount is None and word == "limit") or (amount is not None and amount > most):
                yield key, f"{word} {amount or 'is not named, which'} is above {most}"
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


def _is_stored(obj: _Object) -> bool:
    """Say whether an object is a pod that an API server has filled in already."""
    metadata = mapping(obj.get("metadata"))
    return group_kind(obj) == ("", "Pod") and bool(metadata.get("uid"))


def _fill(resources: dict[str, Json], defaults: ContainerDefaults) -> dict[str, Json]:
    limits, requests = resources.get("limits"), resources.get("requests")
    limits, requests = mapping(limits), mapping(requests)
    asked = {**limits, **requests}  # what is limited has a request of as much
    more_limits = {name: amount for name, amount in defaults.limits.items() if name not in limits}
    more_requests = {name: amount for name, amount in defaults.requests.items() if name not in asked}
    filled = dict(resources)
    if more_limits:
        filled["limits"] = {**limits, **more_limits}
    if more_requests:
        filled["requests"] = {**requests, **more_requests}
    return filled


def _take_back(became: dict[str, Json], before: Json, filled: dict[str, Json]) -> dict[str, Json]:
    """Take out of what became of resources what was filled in."""
    own = mapping(before)
    after = dict(became)
    for part in _PARTS:
        if part not in became:
            continue
        amounts, written = mapping(became[part]), mapping(own.get(part))
        kept = {
            name: amount
            for name, amount in amounts.items()
            if name in written or mapping(filled.get(part)).get(name) != amount
        }
        if kept or (part in own and not written):
            after[part] = kept
        else:
            del after[part]
    return after
