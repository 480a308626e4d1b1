"""The gate's whole decision about an object, asked for by whoever has to say what would become of it. Pure.

    translate ▶ is a template's name taken ▶ could a node ever serve the claims ▶ what the API server says of the result

The gate takes these steps in two reviews, around whatever other webhooks do; this is what they come to together, in the mode of the
namespace (`modes`). Files are decided on by this function alone, so a command line that says yes where a cluster says no is a defect
of one of the steps and never of the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cluster.patch import apply_json_patch
from dra import validation
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.finding import Severity
from dra.pointer import split
from webhook.admission.elsewhere import look_elsewhere
from webhook.admission.modes import come_to, mode_in_files, workload_in_files
from webhook.admission.remainder import remainder
from webhook.admission.validate import (
    NOTHING,
    Found,
    choose_side,
    find_legacy,
    leave_all,
    prefer_side,
    serve_all,
    tell_side,
)
from webhook.claims import upkeep
from webhook.dialects import Action
from webhook.refusals import Code, sentence
from webhook.state import Mode
from webhook.translate import (
    Decision,
    Translation,
    at,
    mapping,
    merge,
    name_of,
    namespace_of,
    paths,
    translate_each,
)

if TYPE_CHECKING:
    from dra.finding import Finding
    from dra.wire import Json
    from webhook.sides import Choice
    from webhook.state import State

    _Object = dict[str, Any]

# About a second of work: on the words of an object, and on the claims of each of its pods.
STEPS = 1_000_000
_POD = {"apiVersion": "v1", "kind": "Pod"}


def decide_object(obj: dict[str, Json], state: State, *, unknown: bool = False) -> Translation:
    """Decide about a pod, or about the pods of a workload; in kinds we do not know only if `unknown`.

    What is refused has no operations: its words stay as they are, whoever refused it.
    """
    mode = mode_in_files(obj, state)
    return _decide(obj, state, mode, unknown=unknown)


def _decide(obj: _Object, state: State, mode: Mode, *, unknown: bool = False) -> Translation:
    budget = Budget(STEPS)
    try:
        done = translate_each(obj, state, unknown=unknown, budget=budget)
    except OutOfBudget as error:
        late = f"left as it is: it could not be decided in time ({error})"
        return Translation(warnings=(late,))
    judged: list[Translation] = []
    for path, one in done.items():
        verdict = _complete(obj, path, one, state)
        if mode is not Mode.OFF:
            verdict = _judge(obj, path, verdict, state)
        judged.append(come_to(verdict, obj, mode, state))
    judged.append(_decide_elsewhere(obj, state, mode, unknown=unknown))
    whole = merge(judged)
    if whole.refusals:
        return whole
    became = apply_json_patch(obj, whole.operations)
    errors: list[Finding] = []
    for path in done:
        errors += answer_of_api_server(became, path)
    told = _told_by_api_server(errors, became)
    return _refuse(whole, told)


def _decide_elsewhere(obj: _Object, state: State, mode: Mode, *, unknown: bool) -> Translation:
    """Decide about what stands in no pod template: nothing of it is changed, and its pods are decided on as they will come."""
    found = look_elsewhere(obj, state, unknown=unknown)
    name = name_of(obj)
    decided = [come_to(found.said, obj, mode, state)]
    for place, pod in found.pods.items():
        done = _decide(pod, state, mode)
        decisions: list[Decision] = []
        for one in done.decisions:
            about = _about(one, name, place)
            decisions.append(about)
        told = Translation(
            decisions=tuple(decisions),
            refusals=done.refusals,
            warnings=done.warnings,
        )
        decided.append(told)
    return merge(decided)


def _about(one: Decision, name: str, place: str) -> Decision:
    key = one.key
    if key.startswith("/"):  # a pointer into the pod, which is nowhere in the object
        key = split(key)[-1]
    return msgspec.structs.replace(one, object=name, container=place, key=key)


def answer_of_api_server(obj: _Object, path: str = "") -> list[Finding]:
    """Find why the API server would refuse an object for the pod template at `path`, or for anything else where it knows the kind."""
    judged = obj
    before = ""
    if path and path not in paths(obj):  # a kind that only its own operator knows
        judged = _pod_of(obj, path)
        before = path
    errors: list[Finding] = []
    for _, finding in validation.review([judged]):
        if finding.severity is Severity.ERROR:
            placed = msgspec.structs.replace(finding, path=before + finding.path)
            errors.append(placed)
    return errors


def _pod_of(obj: _Object, path: str) -> _Object:
    """Make a pod of a template, as whoever owns the object would."""
    template = mapping(at(obj, path))
    metadata = {"name": "of-a-template"} | mapping(template.get("metadata"))
    return _POD | template | {"metadata": metadata}


def _complete(obj: dict[str, Json], path: str, done: Translation, state: State) -> Translation:
    """Add what becomes of the words that the translation had nothing to say about."""
    name = name_of(obj)
    decisions = list(done.decisions)
    warnings = dict.fromkeys(done.warnings)
    others = remainder(at(obj, path), state, done.decisions)
    for one in others:
        about = msgspec.structs.replace(one, object=name)
        decisions.append(about)
        if one.code:
            what = f"{one.key}: {one.action}: {one.detail}"
            said = sentence(one.code, what)
            warnings[said] = None
    return msgspec.structs.replace(
        done,
        decisions=tuple(decisions),
        warnings=tuple(warnings),
    )


def _judge(obj: dict[str, Json], path: str, done: Translation, state: State) -> Translation:
    """Take the steps that follow the translation of one pod template."""
    if done.refusals:
        return done
    taken = _taken(obj, done, state)
    if taken:
        return _refuse(done, taken)
    choice = _choose(obj, path, done, state)
    if choice is not None and not choice.moved:
        return _leave(done, choice.why, quiet=choice.preferred)
    found = _serve(obj, path, done, state)
    still = find_legacy(done.decisions, state)
    if still and found.denials and done.given:
        return _leave(done, f"{still}, and no claim would do: {found.denials[0]}")
    warnings = (*found.warnings, *done.warnings)
    warned = msgspec.structs.replace(done, warnings=warnings)
    if choice is not None:
        beside = () if choice.preferred else (choice.why,)
        decisions = tell_side(done.decisions, choice)
        warned = msgspec.structs.replace(done, decisions=decisions, warnings=(*beside, *warnings))
    name = name_of(obj)
    named: list[Decision] = []
    for one in found.decisions:
        about = msgspec.structs.replace(one, object=name)
        named.append(about)
    return _refuse(warned, named)


def _taken(obj: dict[str, Json], done: Translation, state: State) -> list[Decision]:
    """Refuse what would use a template that holds something else than its name says."""
    if not state.confirmed:
        return []
    conflicts = upkeep.name_conflicts(done.templates, namespace_of(obj), state)
    name = name_of(obj)
    return [Decision(name, "", "", "", Action.REFUSED, text, code=Code.TAKEN) for text in conflicts]


def _serve(obj: dict[str, Json], path: str, done: Translation, state: State) -> Found:
    if state.stock is None:
        return NOTHING
    became = apply_json_patch(obj, done.operations)
    pod = mapping(at(became, path))
    try:
        return serve_all(pod, done, namespace_of(obj), state, Budget(STEPS))
    except OutOfBudget as error:
        return Found(warnings=(f"it could not be decided in time whether a node can serve this ({error})",))


def _choose(obj: dict[str, Json], path: str, done: Translation, state: State) -> Choice | None:
    """Choose on which side of a mixed fleet the pods are served."""
    preference = prefer_side(at(obj, path), done, workload_in_files(obj), state)
    return choose_side(preference, done.given, namespace_of(obj), state, Budget(STEPS))


def _refuse(done: Translation, decisions: list[Decision]) -> Translation:
    """Turn it back for these, if there are any: then nothing is changed."""
    if not decisions:
        return done
    refusals = tuple([sentence(one.code, one.detail, one.remedy) for one in decisions])
    return msgspec.structs.replace(
        done,
        decisions=(*done.decisions, *decisions),
        refusals=(*done.refusals, *refusals),
        operations=(),
        templates={},
        given=(),
    )


def _leave(done: Translation, reason: str, *, quiet: bool = False) -> Translation:
    """Leave it as it was written: what serves it there was not asked by us, or is its side of a mixed fleet."""
    return Translation(
        decisions=leave_all(done.decisions, reason),
        operations=done.cleaning,
        cleaning=done.cleaning,
        warnings=() if quiet else (f"left as it is: {reason}",),
    )


def _told_by_api_server(errors: list[Finding], obj: _Object) -> list[Decision]:
    name = name_of(obj)
    told: list[Decision] = []
    for error in errors:
        what = f"the API server refuses it: {error.message}"
        container, key = _word_at(obj, error.path)
        one = Decision(name, container, "", key, Action.REFUSED, what, code=error.code, remedy=error.hint)
        if one not in told:
            told.append(one)
    return told


def _word_at(obj: _Object, path: str) -> tuple[str, str]:
    """The container and the resource that stands at a place; the place itself, if it is of something else."""
    around, *inner = path.rsplit("/", 3)
    if len(inner) < 3 or inner[0] != "resources":
        return "", path
    container = mapping(at(obj, around))
    (key,) = split(f"/{inner[2]}")
    return str(container.get("name") or ""), key
