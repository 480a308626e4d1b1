"""Translates a pod, or the pod templates of an object: claims replace the keys of device plugins.

    pod_view.view_pod         the keys on the containers
    owner.find_owners         the dialect of each key
    case.make_cases           the device requests of each container, by the rules of its dialect (`webhook.dialects`)
    checks.check_cases              the claims for them (`webhook.claims.maker`, `sharing`), and why some keys stay or are refused
    rewrite.rewrite           the JSON Patch (`json_patch`), with the annotations (`record`)

A container is translated with all its keys or not at all. It stays unchanged, with a reason, if there is no DeviceClass for it, if its scheduler
does not support claims, if a ResourceQuota would no longer count it, or if a claim could only approximate a key and the administrator excludes
approximations. The pod is refused if the device plugin or the API server would refuse it. Annotations record the removed keys, so a second
translation changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from dra.budget import Budget
from dra.finding import stated
from dra.objects import template_site
from dra.raw import inside
from webhook import names
from webhook.dialects import Outcome
from webhook.translate.case import make_cases, make_cpu_cases
from webhook.translate.checks import CheckedPod, check_cases, leave_cpus, make_context
from webhook.translate.cpus import with_cpus
from webhook.translate.json_patch import apply_own
from webhook.translate.limits import exceeded_limit
from webhook.translate.owner import find_owners
from webhook.translate.pod_report import Decision, PodReport
from webhook.translate.pod_template import is_unknown_kind, lost_claims, name_of, namespace_of, resolve_pointer
from webhook.translate.pod_view import has_own_annotation, view_pod
from webhook.translate.record import (
    LARGEST,
    NOTHING_WRITTEN,
    foreign_annotations,
    is_offline_record,
    read_record,
)
from webhook.translate.rewrite import (
    UNCHANGED,
    PodClaim,
    Rewrite,
    Round,
    claims_on_pod,
    clean_annotations,
    remove_recorded,
    rewrite,
)
from webhook.translate.verdict import NOTHING, PodVerdict
from webhook.translate.workload_kind import STANDALONE, Provenance, group_kind, origin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dra.wire import Json
    from webhook.state import CustomKind, State
    from webhook.translate.case import Case
    from webhook.translate.owner import Owners
    from webhook.translate.pod_view import LegacyKey, PodView, Slot
    from webhook.translate.record import Original

    _LegacyKeys = tuple[LegacyKey, ...]

# Steps of the budget for each container and each key.
_PRICE = 100
TOO_LARGE = f"with its record, the pod's annotations would be larger than {LARGEST // 1024} KiB"


def translate(
    pod: Json,
    state: State,
    *,
    namespace: str,
    path: str = "",
    sign: bool = False,
    budget: Budget | None = None,
    origin: Provenance = STANDALONE,
    name: str = "",
    cpus_left: str = "",
    judge_others: Callable[[PodView], Iterable[Decision]] = lambda _: (),
) -> PodVerdict:
    """Translate a pod, or the pod template at `path` of a workload.

    `sign` adds the annotation of signed templates, with the state's first key; in files there is no such annotation. `origin` is what
    the pods of a template get from its workload. Decisions name the object `name`, or else the pod. `cpus_left` is the reason why the
    kubelet, and no claim, assigns the CPUs; "" if claims may do so. `judge_others` decides about keys of no dialect.
    """
    configuration = state.configuration
    view = view_pod(pod, configuration)
    if configuration.claims_cpus:
        view = with_cpus(view, configuration, namespace)
    if view.is_skipped or not (view.asks_for_devices or view.marked):
        return NOTHING
    if origin.scheduler:
        view = replace(view, scheduler=origin.scheduler)
    report = PodReport(name or f"Pod/{namespace or 'default'}/{view.name}", configuration.file.approximations)
    written = NOTHING_WRITTEN
    cleaning: tuple[dict[str, Json], ...] = ()
    if view.marked:
        written = read_record(view, namespace, state.keys, offline=not sign)
        cleaning = clean_annotations(view, written, path)
        if cleaning and not is_offline_record(view):
            foreign_names = ", ".join(foreign_annotations(view, written))
            report.warnings.append(f"{foreign_names}: not written by drawbridge for this pod, and removed")
    change = UNCHANGED
    if view.asks_for_devices and not view.bound:
        report.decisions += [replace(decision, object=report.object_name) for decision in judge_others(view)]
        key = state.keys[0] if sign and state.keys else None
        current = Round(view, written, namespace, path, key)
        change = _translate_keys(current, state, report, budget, origin=origin, cpus_left=cpus_left)
    earlier_claims = claims_on_pod(view, written) if written.templates else ()
    return PodVerdict(
        decisions=tuple(report.decisions),
        operations=change.operations or (() if report.refusals else cleaning),
        cleaning=cleaning,
        templates=change.templates,
        added_claims=(*earlier_claims, *change.added_claims),
        claims_cpus=change.cpus,
        refusals=tuple(report.refusals),
        notes=tuple(report.warnings),
    )


def _translate_keys(
    current: Round,
    state: State,
    report: PodReport,
    budget: Budget | None,
    *,
    origin: Provenance,
    cpus_left: str,
) -> Rewrite:
    """Translate a pod that has keys, and report the outcome of each; UNCHANGED if all stay or the pod is refused."""
    configuration = state.configuration
    pod, written, namespace = current.pod, current.written, current.namespace
    _report_misread(pod, report)
    if problem := exceeded_limit(pod, configuration):
        report.leave_pod(problem)
        return UNCHANGED
    budget = budget or Budget()
    key_count = len(pod.cpus) + sum([len(slot.legacy_keys) for slot in pod.slots])
    budget.charge(_PRICE * (len(pod.slots) + key_count))
    new_keys, returned_keys = _split_keys(pod, written.record, report)
    returned_annotations = _returned_annotations(pod, written.record, report) if written.record.annotations else ()
    if returned_annotations:
        remaining = {name: text for name, text in pod.annotations.items() if name not in returned_annotations}
        pod = replace(pod, annotations=remaining)
    owners = find_owners(pod, configuration, written)
    if owners.mixed and new_keys:
        report.leave_pod(owners.mixed, new_keys.values())
        return UNCHANGED
    cases = make_cases(new_keys, owners, configuration, state.fleet)
    if owners.scheduled and owners.placing_systems:
        owners = _without_removed_group(owners, cases)
    if pod.cpus:
        of_cpus = make_cpu_cases(pod, state, cases, namespace=namespace, written=written)
        cases += leave_cpus(of_cpus, cpus_left) if cpus_left else of_cpus
    context = make_context(pod, state, owners, written, budget, origin=origin, namespace=namespace)
    checked = check_cases(cases, context)
    if context.neglected and checked.translated:
        report.warnings.append(context.neglected)
    reported = len(report.decisions)
    report.add(checked, owners)
    if report.refusals:
        return UNCHANGED
    current = Round(pod, written, namespace, current.path, current.key, returned_keys, returned_annotations)
    change = rewrite(current, checked, report.decisions, state.templates if state.confirmed else (), budget)
    if change.too_large:
        del report.decisions[reported:]
        left = [case.leave(case.keys[0], TOO_LARGE) if case.open else case for case in checked.cases]
        report.add(CheckedPod(cases=tuple(left)), owners)
    return change


def _report_misread(pod: PodView, report: PodReport) -> None:
    if pod.labels.get(names.SKIP_LABEL, "false") != "false":
        report.add_misread(names.SKIP_LABEL, 'only the value "true" makes drawbridge skip the pod')
    if pod.annotations.get(names.EXTENDED_RESOURCES, "leave") not in ("leave", "translate"):
        report.add_misread(names.EXTENDED_RESOURCES, 'only "leave" and "translate" are read')


def claims_added_earlier(pod: Json, state: State, *, namespace: str) -> tuple[PodClaim, ...]:
    """Return the claims that an earlier round put on a pod; none if another writer wrote its record."""
    view = view_pod(pod, state.configuration)
    if not view.marked:
        return ()
    return claims_on_pod(view, read_record(view, namespace, state.keys))


def clean(pod: Json, state: State, *, namespace: str) -> tuple[dict[str, Json], ...]:
    """Return the operations that remove drawbridge's annotations from a pod if another writer wrote them."""
    if not has_own_annotation(pod):
        return ()
    view = view_pod(pod, state.configuration)
    if view.is_skipped:
        return ()
    return clean_annotations(view, read_record(view, namespace, state.keys))


def replay(pod: Json, old: Json, state: State, *, namespace: str) -> PodVerdict:
    """Remove the recorded keys that an update of a translated pod brings back.

    A second apply of a manifest brings the old keys and the old scheduler back, and the API server refuses that: these fields are
    immutable. An amount that differs from the record stays, since its author changed it. A record of another writer has no effect.
    """
    before = view_pod(old, state.configuration)
    if not before.marked:
        return NOTHING
    record = read_record(before, namespace, state.keys).record
    if not record.containers:
        return NOTHING
    now = view_pod(pod, state.configuration)
    operations = remove_recorded(now, record)
    return PodVerdict(operations=operations, cleaning=operations)


def _split_keys(
    pod: PodView, record: Original, report: PodReport
) -> tuple[dict[int, tuple[Slot, _LegacyKeys]], dict[str, tuple[str, ...]]]:
    """Return the new keys by container order, and the keys that another webhook put back by container name."""
    new_keys: dict[int, tuple[Slot, _LegacyKeys]] = {}
    returned_keys: dict[str, tuple[str, ...]] = {}
    for slot in pod.slots:
        if not slot.legacy_keys:
            continue
        removed = record.containers.get(slot.name)
        if not removed:
            new_keys[slot.order] = slot, slot.legacy_keys
            continue
        new: list[LegacyKey] = []
        returned: list[str] = []
        for legacy_key in slot.legacy_keys:
            if legacy_key.key in removed:
                returned.append(legacy_key.key)
                report.add_returned_key(slot.name, legacy_key.key, legacy_key.raw, removed[legacy_key.key])
            else:
                new.append(legacy_key)
        if new:
            new_keys[slot.order] = slot, tuple(new)
        if returned:
            returned_keys[slot.name] = tuple(returned)
    return new_keys, returned_keys


def _returned_annotations(pod: PodView, record: Original, report: PodReport) -> tuple[str, ...]:
    """List the annotations that an earlier round removed and another webhook put back."""
    removed = record.removed_annotations
    returned = [key for key in record.annotations if key in pod.annotations and key in removed]
    for key in returned:
        report.add_returned_key("", key, pod.annotations[key], removed[key])
    return tuple(returned)


def _without_removed_group(owners: Owners, cases: Sequence[Case]) -> Owners:
    """Return the owners without the queue or group (`scheduled`) if claims replace the requests of the system that has it.

    The pod then leaves this system, so it does not need the system's scheduler.
    """
    placing = [dialect for dialect, _ in owners.placing_systems]
    removed = [row for case in cases if case.open and case.dialect in placing for row in case.dialect.keys]
    return replace(owners, scheduled=None) if owners.scheduled and owners.scheduled.row in removed else owners


CLAIMS = "resourceClaims"
_LOST = "keep the key: the webhook translates the pods; an administrator can install a CRD that keeps claims"

# Workloads are translated in files only. In a cluster the webhook translates pods: controllers would undo changes to other objects.


def translate_template(
    obj: dict[str, Json],
    path: str,
    state: State,
    *,
    rewrite_unknown: bool = False,
    budget: Budget | None = None,
    cpus_left: str = "",
) -> PodVerdict:
    """Translate the pod template at `path` of an object, or a pod.

    The template of an unknown kind stays, because its controller may read the keys; with `rewrite_unknown` it is translated nevertheless.
    """
    pod = resolve_pointer(obj, path)
    version = str(obj.get("apiVersion", "")).rpartition("/")[2]
    kinds_of_name = () if template_site(obj) else state.custom_kinds.get(group_kind(obj), ())
    definitions = [kind for kind in kinds_of_name if version in kind.served]
    origin = origin_of(obj, state.configuration, is_defined=bool(definitions))
    verdict = translate(
        pod,
        state,
        namespace=namespace_of(obj),
        path=path,
        budget=budget,
        origin=origin,
        name=name_of(obj),
        cpus_left=cpus_left,
    )
    stays = origin.stays
    if verdict.changed and not stays and definitions:
        stays = _why_dropped(apply_own(obj, verdict.operations), path, version, definitions)
    if not stays and is_unknown_kind(obj) and not rewrite_unknown:
        stays = f"drawbridge does not know how {obj.get('kind') or 'an object without a kind'} uses it"
    if verdict.changed and stays:
        # Keep the decisions: the webhook makes the same decisions for the pods of this template.
        warning = f"the template stays: {stays}; the webhook translates its pods"
        verdict = replace(verdict, operations=(), templates={}, notes=(warning, *verdict.notes), stays=stays)
    # Claims that the author wrote into the template.
    spec = inside(pod, "spec")
    if spec.get(CLAIMS) and (lost := origin.drops or _why_dropped(obj, path, version, definitions)):
        decision = Decision(name_of(obj), "", "", CLAIMS, Outcome.UNKNOWN, lost, code="D002", remedy=_LOST)
        warning = str(stated(decision.code, f"{CLAIMS}: {lost}", _LOST))
        verdict = replace(verdict, decisions=(*verdict.decisions, decision), notes=(*verdict.notes, warning))
    return verdict


def _why_dropped(obj: dict[str, Json], path: str, version: str, definitions: Iterable[CustomKind]) -> str:
    """Return the reason if the API server drops claims of the template at `path`, because a CRD lacks the field; "" otherwise."""
    for kind in definitions:
        if lost := lost_claims(obj, kind.prune(obj), path):
            return f"its CRD {kind.name} has no {lost} in {version}, so the API server would drop the claims"
    return ""
