"""The whole decision about an object in a file, as the webhook would decide about its pods. Pure.

    translate ▶ is a template's name taken ▶ could a node ever serve the claims ▶ would the API server store the result

The webhook takes these steps in two reviews, with other webhooks between them; this module takes all of them, in the mode of the
namespace. Commands decide about files by this function alone.

| decided | enforce | warn | observe | off |
|---|---|---|---|---|
| translated, refused | done | left: `warn: would be …` | left: `observe: would be …` | left |
| left, not understood | told | told | told | left |

Only `enforce` changes or refuses an object; the API server refuses in every mode. A canary is chosen by the controller's name. Pods of a
CronJob, or of an unknown kind, get that name only when they are made, so the canary is taken to cover them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cluster.patch import apply_json_patch
from dra import validation
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.finding import Severity
from dra.objects import is_extended, versions
from dra.pointer import split
from dra.raw import Object, inside, mapping
from dra.wire import WireError
from webhook.admission import template_lifecycle
from webhook.admission.behind_fence import add_stranded
from webhook.admission.limit_ranges import fill_in
from webhook.admission.plugin_requests import plugin_request
from webhook.admission.unanswered_requests import unanswered_requests
from webhook.admission.unknown_kinds import decide_unknown_kind
from webhook.admission.validate import (
    NOTHING,
    add_choice,
    choose_nodes,
    claims_after,
    find_plugin_fallback,
    inspect_claim,
    judge_requests,
    judge_unchanged,
    leave_all,
    leave_unserved_cpus,
    place_in,
    prefer_nodes,
    workload_in_files,
)
from webhook.dialects import Action
from webhook.refusals import Code, Denial
from webhook.state import Mode, mode_of, why_not, workload
from webhook.translate import (
    Decision,
    Operation,
    Translation,
    at,
    find_placeholder,
    group_kind,
    merge,
    name_of,
    namespace_of,
    paths,
    translate_each,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from dra.finding import Finding
    from dra.wire import Json
    from webhook.admission.limit_ranges import Filled
    from webhook.admission.validate import Found
    from webhook.state import State


# About a second of work: for the keys of an object, and for the claims of each of its pods.
STEPS = 1_000_000
# Kinds whose own name is the one that their pods give as their controller's.
_NAMED = (("", "Pod"), ("apps", "Deployment"), ("apps", "StatefulSet"), ("apps", "DaemonSet"), ("batch", "Job"))
# Kinds that the webhook judges although they are no pods and make none.
_CLAIMS = (("resource.k8s.io", "ResourceClaim"), ("resource.k8s.io", "ResourceClaimTemplate"))
# Actions that every mode leaves as they are.
_STAYING = (Action.LEFT, Action.NOT_UNDERSTOOD)
# Phases of a pod that no kubelet has begun.
_NOT_YET = (None, "", "Pending")
# Actions that change a pod.
_CHANGING = (Action.TRANSLATED, Action.APPROXIMATED, Action.IGNORED)


def decide_object(
    obj: dict[str, Json], state: State, *, unknown: bool = False, about_devices: bool = False
) -> Translation:
    """Decide about a pod, the pods of a workload, or a claim; about kinds that are not known only if `unknown`.

    A refused object has no operations: its fields stay as they are. With `about_devices` nothing is told of what the API server refuses
    of an object that asks for no device.
    """
    if group_kind(obj) in _CLAIMS:
        return _decide_claim(obj, state)
    given, conflict = given_by_runtime(obj, state, unknown=unknown)
    if conflict:
        return conflict
    if given:
        obj = apply_json_patch(obj, given)
    mode = mode_of(state, workload_in_files(obj))
    if mode is Mode.WARN and group_kind(obj) not in _NAMED and not why_not(state, namespace_of(obj)):
        mode = Mode.ENFORCE
    filled = fill_in(obj, state, unknown=unknown)
    done = _decide(filled.object, state, mode, unknown=unknown, filled=filled, about_devices=about_devices)
    done = replace(done, operations=filled.undo(done.operations))
    # Where an operation is on what the RuntimeClass gives, that has to be there.
    if given and any("/nodeSelector" in one["path"] or "/tolerations" in one["path"] for one in done.operations):
        done = replace(done, operations=(*given, *done.operations))
    return done


def given_by_runtime(
    obj: Object, state: State, *, unknown: bool = False
) -> tuple[tuple[Operation, ...], Translation | None]:
    """Give what the API server adds to pods of an object by their RuntimeClass, or the refusal where both do not agree."""
    runtimes = state.fleet.installed.runtimes
    operations: list[Operation] = []
    for path in paths(obj, unknown=unknown) if runtimes else ():
        spec = inside(at(obj, path), "spec")
        name = spec.get("runtimeClassName")
        runtime = runtimes.get(name) if isinstance(name, str) else None
        changed, key = runtime.schedule(spec) if runtime else ({}, "")
        if key:
            text = f"the API server refuses it: RuntimeClass {name} sets a different {key} in its nodeSelector"
            remedy = "remove one of the two"
            return (), _refuse(Translation(), [_refused(obj, key, text, Code.NEVER, remedy)])
        operations += [{"op": "add", "path": f"{path}/spec/{one}", "value": value} for one, value in changed.items()]
    return tuple(operations), None


def _decide_claim(obj: Object, state: State) -> Translation:
    """Decide about a claim, or those that a template makes; one that has its devices was let in already."""
    claim = mapping(versions.upgrade(obj).value)
    if mapping(claim.get("status")).get("allocation"):
        return Translation()
    namespace = namespace_of(obj)
    mode = mode_of(state, workload(namespace, mapping(obj.get("metadata"))))
    name = name_of(obj)
    done = Translation()
    if mode is not Mode.OFF:
        with suppress(WireError, OutOfBudget):
            found = inspect_claim(claim, namespace, state, Budget(STEPS))
            done = replace(done, warnings=tuple(map(str, found.warnings)))
            done = _in_mode(_apply_problems(done, found, name), obj, mode, state)
    return done


def _decide(
    obj: Object,
    state: State,
    mode: Mode,
    *,
    unknown: bool = False,
    filled: Filled | None = None,
    about_devices: bool = False,
) -> Translation:
    budget = Budget(STEPS)
    try:
        done = translate_each(obj, state, unknown=unknown, budget=budget)
        for path, one in done.items():
            done[path] = _leave_unserved_cpus(obj, path, one, state, unknown=unknown)
    except OutOfBudget as error:
        late = f"left as it is: it could not be decided in time ({error})"
        return Translation(warnings=(late,))
    name = name_of(obj)
    judged: list[Translation] = []
    for path, one in done.items():
        # The keys that no table has.
        decisions = list(one.decisions)
        warnings: dict[str, None] = {}
        for other in unanswered_requests(at(obj, path), state, one.decisions, is_template=bool(path)):
            decisions.append(replace(other, object=name))
            if other.code:
                warnings[str(Denial(other.code, f"{other.key}: {other.action}: {other.detail}"))] = None
        verdict = replace(one, decisions=tuple(decisions))
        if mode is not Mode.OFF and not verdict.refusals:
            verdict = _judge(obj, path, verdict, state)
        # Words on the pod that are not understood are named in every case.
        warnings = dict.fromkeys((*verdict.warnings, *warnings))
        verdict = replace(verdict, warnings=tuple(warnings))
        judged.append(_leave_to_webhook(_in_mode(verdict, obj, mode, state), one.stays))
    # Requests outside of pod templates: the object keeps them, and its pods are decided about as they will be made.
    found = decide_unknown_kind(obj, state, unknown=unknown)
    judged.append(_in_mode(found.translation, obj, mode, state))
    for place, pod in found.pods.items():
        of_pod = _decide(pod, state, mode)
        pod_translation = Translation(
            decisions=_for_object(of_pod.decisions, name, place),
            refusals=of_pod.refusals,
            warnings=of_pod.warnings,
            doubts=_for_object(of_pod.doubts, name, place),
        )
        judged.append(_leave_to_webhook(pod_translation, f"it is read by {found.reader}"))
    merged = merge(judged)
    if merged.refusals:
        return merged
    patched = apply_json_patch(obj, merged.operations)
    if filled is not None and filled.given and group_kind(obj) != ("", "Pod"):  # a workload is stored as it is written
        patched = apply_json_patch(filled.written, filled.undo(merged.operations))
    asks = merged.decisions or any(mapping(at(obj, f"{path}/spec")).get("resourceClaims") for path in done)
    return _refuse(merged, _refused_by_api_server(patched, done, of_devices_alone=about_devices and not asks))


def _refused(obj: Object, key: str, text: str, code: str, remedy: str = "", *, container: str = "") -> Decision:
    return Decision(name_of(obj), container, "", key, Action.REFUSED, text, code=code, remedy=remedy)


def _refused_by_api_server(obj: Object, places: Iterable[str], *, of_devices_alone: bool) -> list[Decision]:
    """Say what the API server would refuse of an object with pod templates at these paths, or of their requests for devices alone."""
    unfilled: list[Decision] = []
    refused: dict[Decision, None] = {}
    for place in places:
        for fault in answer_of_api_server(obj, place):
            container, key = "", fault.path
            around, *inner = key.rsplit("/", 3)
            (resource,) = split(f"/{inner[2]}") if len(inner) == 3 and inner[0] == "resources" else ("",)
            if of_devices_alone and not is_extended(resource):
                continue
            if placeholder := find_placeholder(at(obj, key)):
                text = f"{placeholder} is a placeholder that is not filled in"
                unfilled.append(_refused(obj, key, text, "D011", validation.CODES["D011"].hint))
                continue
            if resource:
                container, key = str(mapping(at(obj, around)).get("name") or ""), resource
            text = f"the API server refuses it: {fault.message}"
            refused[_refused(obj, key, text, fault.code, fault.hint, container=container)] = None
    return [*unfilled[:1], *refused]  # each further placeholder has the same cause


def _for_object(decisions: Iterable[Decision], name: str, place: str) -> tuple[Decision, ...]:
    """Say what was decided of a pod of the object that makes it, which has its request at `place`."""
    moved: list[Decision] = []
    for one in decisions:
        # A pointer into the pod means nothing in the object.
        key = split(one.key)[-1] if one.key.startswith("/") else one.key
        moved.append(replace(one, object=name, container=place, key=key))
    return tuple(moved)


def _leave_unserved_cpus(obj: Object, path: str, done: Translation, state: State, *, unknown: bool) -> Translation:
    def translate_again(without_cpus: str) -> Translation:
        return translate_each(obj, state, unknown=unknown, budget=Budget(STEPS), without_cpus=without_cpus)[path]

    return leave_unserved_cpus(
        obj, path, done, state, Budget(STEPS), again=translate_again, namespace=namespace_of(obj)
    )


def answer_of_api_server(obj: Object, path: str = "") -> list[Finding]:
    """Find why the API server would refuse an object for the pod template at `path`, or an object of a kind that it knows."""
    judged = obj
    before = ""
    if path and path not in paths(obj):  # a kind of another project: its operator makes a pod of the template
        template = mapping(at(obj, path))
        metadata = {"name": "of-a-template"} | mapping(template.get("metadata"))
        judged = {"apiVersion": "v1", "kind": "Pod"} | template | {"metadata": metadata}
        before = path
    errors: list[Finding] = []
    for _, finding in validation.review([judged]):
        if finding.severity is Severity.ERROR:
            placed = replace(finding, path=before + finding.path)
            errors.append(placed)
    return errors


def _judge(obj: dict[str, Json], path: str, done: Translation, state: State) -> Translation:
    """Take the steps that follow the translation of one pod template."""
    name, namespace = name_of(obj), namespace_of(obj)
    if state.confirmed:
        conflicts = template_lifecycle.name_conflicts(done.templates, namespace, state)
        if conflicts:
            return _refuse(done, [_refused(obj, "", text, Code.TAKEN) for text in conflicts])
    # Which nodes of a mixed fleet serve the pods.
    owner = workload_in_files(obj)
    preference = prefer_nodes(at(obj, path), done, owner, state)
    pod = mapping(at(apply_json_patch(obj, done.operations), path))
    given_claims = claims_after(pod, done, state)
    choice = choose_nodes(preference, given_claims, namespace, state, Budget(STEPS))
    # A pod of a dump that runs, or has run, was let in.
    waits = mapping(obj.get("status")).get("phase") in _NOT_YET or group_kind(obj) != ("", "Pod")
    written = mapping(at(obj, path))
    by_plugin = plugin_request(written, state, done.decisions) if waits else None
    unchanged = plugin_request(written, state) if waits else None
    if choice is not None and not choice.moved:
        left = _leave(done, choice.why, quiet=choice.preferred)
        with suppress(OutOfBudget):
            plugin_found = judge_unchanged(
                unchanged, given_claims, namespace, state, Budget(STEPS), controller=owner.kind
            )
            left = replace(left, warnings=(*left.warnings, *map(str, plugin_found.warnings)))
            left = _apply_problems(left, plugin_found, name)
        return left
    # Whether a node could ever serve the claims.
    found = NOTHING
    late: tuple[str, ...] = ()
    plugin_reason = ""
    if state.stock is not None or by_plugin is not None:
        budget = Budget(STEPS)
        claims = given_claims if state.stock is not None else ()
        try:
            place = place_in(pod)
            found = judge_requests(
                claims, namespace, state, budget, by_plugin=by_plugin, place=place, controller=owner.kind
            )
            plugin_reason, found = find_plugin_fallback(found, done.decisions, unchanged, state, budget)
        except OutOfBudget as error:
            late = (f"it could not be decided in time whether a node can serve this ({error})",)
    if plugin_reason and done.given:
        return _leave(done, f"{plugin_reason}, and no claim could replace it: {found.denials[0]}")
    decisions, stranded = add_stranded(done.decisions, given_claims, state, name)
    warnings = (*late, *map(str, found.warnings), *done.warnings, *stranded)
    if choice is not None:
        decisions = add_choice(decisions, choice)
        warnings = warnings if choice.preferred else (choice.why, *warnings)
    warned = replace(done, decisions=decisions, warnings=warnings)
    return _apply_problems(warned, found, name)


def _apply_problems(done: Translation, found: Found, name: str) -> Translation:
    """Refuse an object for what was found, or keep in mind what is only warned of."""
    decisions = [replace(one, object=name) for one in found.decisions]
    if found.denials:
        return _refuse(done, decisions)
    return replace(done, doubts=tuple(decisions)) if decisions else done


def _refuse(done: Translation, decisions: list[Decision]) -> Translation:
    """Refuse for these decisions, if there are any: then nothing is changed."""
    if not decisions:
        return done
    refusals = tuple([Denial(one.code, one.detail, one.remedy) for one in decisions])
    return replace(
        done,
        decisions=(*done.decisions, *decisions),
        refusals=(*done.refusals, *refusals),
        operations=(),
        templates={},
        given=(),
    )


def _leave_to_webhook(done: Translation, stays: str) -> Translation:
    """Say of keys whose object stays, for the reason `stays`, that they are left to the webhook, and what it makes of them."""
    if not stays:
        return done
    decisions: list[Decision] = []
    for one in done.decisions:
        if one.action not in _CHANGING:
            decisions.append(one)
            continue
        detail = f"{stays}; on its pods: {one.action}" + (f": {one.detail}" if one.detail else "")
        left = {"action": Action.AT_WEBHOOK, "detail": detail, "pods": one.action.value, "stays": stays}
        decisions.append(replace(one, **left))
    return replace(done, decisions=tuple(decisions))


def leave_refused_keys(done: Translation) -> Translation:
    """Say of the keys of a refused object, which all stay as they are, what each would be."""
    if not done.refusals:
        return done
    stays = _as_left(done.decisions, "the object is refused; otherwise it would be", _CHANGING)
    return replace(done, decisions=stays)


def _as_left(decisions: Iterable[Decision], would: str, actions: Container[Action]) -> tuple[Decision, ...]:
    """Say of decisions with these actions what the keys, which stay, would be."""
    left: list[Decision] = []
    for one in decisions:
        if one.action not in actions:
            left.append(one)
            continue
        detail = f": {one.detail}" if one.detail else ""
        left.append(replace(one, action=Action.LEFT, detail=f"{would} {one.action}{detail}"))
    return tuple(left)


def _leave(done: Translation, reason: str, *, quiet: bool = False) -> Translation:
    """Leave the pods unchanged: a device plugin still serves them, or nodes of a mixed fleet do without claims."""
    return Translation(
        decisions=leave_all(done.decisions, reason),
        operations=done.cleaning,
        cleaning=done.cleaning,
        warnings=() if quiet else (f"left as it is: {reason}",),
    )


def _in_mode(done: Translation, obj: Object, mode: Mode, state: State) -> Translation:
    """Apply a mode to a verdict, by the table above."""
    if mode is Mode.ENFORCE:
        return done
    reason = why_not(state, namespace_of(obj)) or "the canary does not cover it"
    left = f"left as it is: {reason}"
    if mode is Mode.OFF:
        if not done.decisions:
            return Translation()
        return Translation(
            decisions=tuple(
                [
                    replace(one, action=Action.LEFT, detail=reason, code="", remedy="", basis="")
                    for one in done.decisions
                ]
            ),
            warnings=(left,),
        )
    operations = done.cleaning if mode is Mode.WARN else ()
    if not done.refusals and all(one.action in _STAYING for one in done.decisions):
        return replace(done, operations=operations)
    would = f"{mode}: would be"
    refused = [str(one.prefixed(f"{would} refused: ")) for one in done.refusals]
    return Translation(
        decisions=_as_left(done.decisions, would, (*_CHANGING, Action.AT_WEBHOOK, Action.REFUSED)),
        operations=operations,
        cleaning=done.cleaning,
        warnings=(left, *refused, *done.warnings),
        doubts=done.doubts,
    )
