"""Pods in files as an API server shows them to webhooks: with what the LimitRanges of their namespace give to containers.

Files are judged by these amounts, and keep their own: an API server gives them again. What it refuses of a pod for its LimitRanges is not
looked at here. Mirrors kubernetes:plugin/pkg/admission/limitranger (mergeContainerResources), which comes before webhooks and after the
API's defaults: a container that is limited has a request already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from cluster.patch import apply_json_patch
from webhook.translate import at, group_kind, mapping, namespace_of, paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.wire import Json
    from webhook.state import ContainerDefaults, State
    from webhook.translate import Operation

    _Object = dict[str, Any]

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
