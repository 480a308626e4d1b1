"""What a verdict about a file comes to in the mode of its namespace: the gate's own rule, told before the gate is asked. Pure.

| decided | enforce | warn | observe | off |
|---|---|---|---|---|
| translated, refused | so it is | left: `warn: would be …` | left: `observe: would be …` | left |
| left, not understood | so it is | so it is | so it is | left |

Only in `enforce` is anything changed or turned back; the API server has its say in every mode. A canary is asked by the name that pods
give their controller. Of a CronJob's, and of those of other projects' kinds, nobody knows it before they are made: such are covered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from webhook.dialects import Action
from webhook.state import Mode, Workload, mode_of, why_not, workload
from webhook.translate import Translation, controller_kind, group_kind, mapping, namespace_of

if TYPE_CHECKING:
    from dra.wire import Json
    from webhook.state import State
    from webhook.translate import Decision

    _Object = dict[str, Json]

# What pods name as their controller under the name that stands in the file.
_NAMED = (("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "Job"))
_POD = ("", "Pod")
# What stays in any mode.
_STAYING = (Action.LEFT, Action.NOT_UNDERSTOOD)


def mode_in_files(obj: _Object, state: State) -> Mode:
    """Say how far the gate would go for the pods of an object."""
    kind = group_kind(obj)
    mode = mode_of(state, workload_in_files(obj))
    if mode is Mode.WARN and kind not in (_POD, *_NAMED) and not why_not(state, namespace_of(obj)):
        return Mode.ENFORCE
    return mode


def workload_in_files(obj: _Object) -> Workload:
    """Name the controller of the pods of an object, as they will name it."""
    kind = group_kind(obj)
    namespace = namespace_of(obj)
    metadata = mapping(obj.get("metadata"))
    if kind == _POD:
        return workload(namespace, metadata)
    return Workload(namespace, controller_kind(kind[1]), str(metadata.get("name") or ""))


def come_to(done: Translation, obj: _Object, mode: Mode, state: State) -> Translation:
    """Say what a verdict comes to in a mode."""
    if mode is Mode.ENFORCE:
        return done
    reason = why_not(state, namespace_of(obj)) or "the canary does not cover it"
    if mode is Mode.OFF:
        return _pass_by(done, reason)
    operations = done.cleaning if mode is Mode.WARN else ()
    stays = all(one.action in _STAYING for one in done.decisions)
    if stays and not done.refusals:
        return msgspec.structs.replace(done, operations=operations)
    would = f"{mode}: would be"
    refused = [f"{would} refused: {text}" for text in done.refusals]
    decisions = [_told(one, would) for one in done.decisions]
    warnings = (f"left as it is: {reason}", *refused, *done.warnings)
    return Translation(
        decisions=tuple(decisions),
        operations=operations,
        cleaning=done.cleaning,
        warnings=warnings,
    )


def _told(one: Decision, would: str) -> Decision:
    """Leave a word, and say what would become of it."""
    if one.action in _STAYING:
        return one
    detail = f"{would} {one.action}"
    if one.detail:
        detail = f"{detail}: {one.detail}"
    return msgspec.structs.replace(one, action=Action.LEFT, detail=detail)


def _pass_by(done: Translation, reason: str) -> Translation:
    """Leave everything as it was written, as the gate does where it is off."""
    if not done.decisions:
        return Translation()
    decisions: list[Decision] = []
    for one in done.decisions:
        left = msgspec.structs.replace(
            one,
            action=Action.LEFT,
            detail=reason,
            code="",
            remedy="",
            basis="",
        )
        decisions.append(left)
    return Translation(
        decisions=tuple(decisions),
        warnings=(f"left as it is: {reason}",),
    )
