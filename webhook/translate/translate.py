"""The translator: a raw pod and what is declared and known, to what shall be changed on it. No clock, no client.

     keys on containers ─▶ their dialect ─▶ the dialect's rule ─▶ demands ─▶ claims ─▶ containers ─▶ JSON Patch
      (pod_view)            (owner)           (case, dialects)      (demand)    (maker)   (sharing)        (rewrite)

A container is translated with all its keys or not at all. What stands in the way of one (no class, a scheduler that
would misread the claim, a quota that would lose its hold, an approximation the administrator does not want) leaves it as
it was, with the reason; what the legacy system or the API server would have refused is refused here, and then nothing on
the pod is changed. What was removed is recorded on the pod, so that doing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from cluster.patch import apply_json_patch
from dra.objects import template_site
from dra.raw import inside
from dra.wire import Json
from webhook import names
from webhook.claims import claim_maker
from webhook.dialects import Action, Left
from webhook.refusals import Denial
from webhook.translate.case import Case, make_cases
from webhook.translate.checks import CheckedPod, Context, judge
from webhook.translate.cpus import CPU, CPU_DIALECT, ask_for_cpus, leave_cpus, wanted_cpus
from webhook.translate.limits import exceeded_limit
from webhook.translate.owner import find_misspelt, find_owners
from webhook.translate.pod_template import at, lost_claims, name_of, namespace_of, paths
from webhook.translate.pod_view import view_pod
from webhook.translate.record import (
    LARGEST,
    NOTHING_WRITTEN,
    foreign_annotations,
    is_offline_record,
    read_record,
    removed_annotations,
)
from webhook.translate.report import Decision, Report
from webhook.translate.rewrite import (
    Given,
    asked_by_annotation,
    claims_on_pod,
    clean_annotations,
    remove_recorded,
    rewrite,
)
from webhook.translate.workload_kind import QUEUE, READ_ON_PODS, STANDALONE, Provenance, group_kind, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.budget import Budget
    from webhook.state import CustomKind, State
    from webhook.translate.pod_view import LegacyKey, PodView, Slot
    from webhook.translate.record import Original

    _LegacyKeys = tuple[LegacyKey, ...]

# Steps that a container, or a key on one, may cost.
_PRICE = 100
TOO_LARGE = f"with its record, the pod's annotations would be larger than {LARGEST // 1024} KiB"


class Translation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that translating one pod comes to."""

    decisions: tuple[Decision, ...] = ()
    operations: tuple[dict[str, Json], ...] = ()
    # Taking off annotations that only look like ours: all of the operations, where nothing is translated or refused.
    cleaning: tuple[dict[str, Json], ...] = ()
    # Name of a ResourceClaimTemplate: its spec.
    templates: Mapping[str, Json] = {}
    # The pod's claims of ours.
    given: tuple[Given, ...] = ()
    refusals: tuple[Denial, ...] = ()
    warnings: tuple[str, ...] = ()
    # Of the warnings those that would be refusals, were it certain that no node can serve it.
    doubts: tuple[Decision, ...] = ()
    # Whether containers were given claims for CPUs, which the kubelet would serve without.
    cpus: bool = False
    # Why the template stays although its pods get claims: they get them at the webhook.
    stays: str = ""

    @property
    def changed(self) -> bool:
        """Whether anything becomes of the pod's own keys."""
        return bool(self.operations) and self.operations != self.cleaning


NOTHING = Translation()


def translate(
    pod: Json,
    state: State,
    *,
    namespace: str,
    path: str = "",
    seal: bool = False,
    budget: Budget | None = None,
    origin: Provenance = STANDALONE,
    without_cpus: str = "",
) -> Translation:
    """Translate a pod, or the pod template that stands at `path` of a workload: the same result for every caller.

    `seal` writes the templates annotation, with the state's first key; offline it could not be verified. A template is also given
    the tolerations that ExtendedResourceToleration adds to pods before a webhook sees them, which it can't once the keys are gone.
    `without_cpus` says why CPUs get no claims here, whatever the configuration says.
    """
    configuration = state.configuration
    view = view_pod(pod, configuration)
    cpus = wanted_cpus(view, configuration, namespace) if configuration.claims_cpus else {}
    asks_for_devices = view.asks_for_devices or bool(cpus)
    if view.passed_by or not (asks_for_devices or view.marked):
        return NOTHING
    if origin.scheduler:
        view = replace(view, scheduler=origin.scheduler)
    quiet = view.bound or not asks_for_devices
    written = read_record(view, namespace, state.keys, offline=not seal) if view.marked else NOTHING_WRITTEN
    foreign = foreign_annotations(view, written) if view.marked else ()
    cleaning = clean_annotations(view, foreign, path) if foreign else ()
    report = Report(f"Pod/{namespace or 'default'}/{view.name}", configuration.file.approximations)
    if foreign and not is_offline_record(view):
        report.warnings.append(f"{', '.join(foreign)}: not written by drawbridge for this pod, and removed")
    earlier = claims_on_pod(view, written) if written.templates else ()
    if quiet:
        return _unchanged(report, cleaning, earlier)
    if view.labels.get(names.SKIP_LABEL, "false") != "false":  # it is not "true", or it would not be looked at
        report.add_misread(names.SKIP_LABEL, 'only the value "true" makes drawbridge skip the pod')
    if view.annotations.get(names.EXTENDED_RESOURCES, "leave") not in ("leave", "translate"):
        report.add_misread(names.EXTENDED_RESOURCES, 'only "leave" and "translate" are read')
    if problem := exceeded_limit(view, configuration):
        report.leave_pod(problem)
        return _unchanged(report, cleaning, earlier)
    if budget is not None:
        budget.charge(sum([_PRICE * (1 + len(slot.legacy_keys)) for slot in view.slots]) + _PRICE * len(cpus))
    new_keys, returned_keys = _split_keys(view, written.record, report)
    returned_annotations = _returned_annotations(view, written.record, report) if written.record.annotations else ()
    if returned_annotations:
        kept = {name: text for name, text in view.annotations.items() if name not in returned_annotations}
        view = replace(view, annotations=kept)
    owners = find_owners(view, configuration, written.record.containers)
    if owners.placing_systems:
        # What asks beside annotations that an earlier round took off, such as a label, is passed over.
        removed = set(removed_annotations(view, written))
        remaining = [one for one in owners.placing_systems if removed.isdisjoint([row.name for row in one[0].keys])]
        owners = replace(owners, placing_systems=tuple(remaining))
    if owners.mixed and new_keys:
        report.leave_pod(owners.mixed, new_keys.values())
        return _unchanged(report, cleaning, earlier)
    read_on_pods: dict[str, str] = {}
    for label, (read, what_for) in READ_ON_PODS.items():
        if label in view.labels or label in origin.labels:
            read_on_pods[read] = what_for
    misspelt_keys: Mapping[int, Left] = {}
    for slot in view.slots:
        if len(slot.limits) > len(slot.legacy_keys):
            misspelt_keys = find_misspelt(view, configuration, state.fleet)
            break
    found = make_cases(new_keys, owners, configuration, state.fleet)
    # What has its annotations taken off is no longer in the queue or group of their system.
    if owners.scheduled and owners.placing_systems:
        asking = [dialect for dialect, _ in owners.placing_systems]
        leaving = [row for case in found if case.open and case.dialect in asking for row in case.dialect.keys]
        if owners.scheduled.row in leaving:
            owners = replace(owners, scheduled=None)
    context = Context(
        pod=view,
        configuration=configuration,
        fleet=state.fleet,
        features=state.features,
        confirmed=state.confirmed and not (state.incomplete and state.unseen),
        claim_maker=claim_maker(configuration, state.fleet),
        scheduler=view.scheduler or "default-scheduler",
        quota=state.quotas.get(namespace, frozenset()),
        limit_range=state.limit_ranges.get(namespace, frozenset()),
        namespace=namespace,
        scheduled=bool(owners.scheduled or origin.scheduler),
        neglected=state.fleet.installed.neglects(view.selected, view.spec) if state.fleet.installed.autoscalers else "",
        queue=origin.queue or str(view.labels.get(QUEUE) or ""),
        recorded=written.record.containers,
        misspelt=misspelt_keys,
        read_on_pods=read_on_pods,
        cpus=bool(cpus),
    )
    if cpus:
        of_cpus = ask_for_cpus(view, cpus, state, namespace=namespace, written=written, others=tuple(found))
        for slot, answer in of_cpus:
            case = Case(dialect=CPU_DIALECT, slot_keys=((slot, ()),), container=slot.name, keys=(CPU,), keeps=True)
            if isinstance(answer, Left):
                found.append(replace(case, left=answer))
            else:
                found.append(replace(case, demands=answer.demands, notes=answer.notes, open=True))
        found = leave_cpus(found, without_cpus) if without_cpus else found
    verdict = judge(found, context)
    if context.neglected and verdict.translated:
        report.warnings.append(context.neglected)
    key = state.keys[0] if seal and state.keys else None
    before = len(report.decisions)
    report.add(verdict, owners)
    if report.refusals:
        return _unchanged(report, cleaning, earlier)
    change = rewrite(
        view,
        verdict,
        report,
        returned_keys=returned_keys,
        returned_annotations=returned_annotations,
        replaced_annotations=asked_by_annotation(verdict.translated) if owners.placing_systems else (),
        written=written,
        foreign=foreign,
        namespace=namespace,
        path=path,
        key=key,
        existing_templates=state.templates if state.confirmed else (),
    )
    if change.too_large:
        del report.decisions[before:]
        left = [case.leave(case.keys[0], TOO_LARGE) if case.open else case for case in verdict.cases]
        report.add(CheckedPod(cases=tuple(left)), owners)
        return _unchanged(report, cleaning, earlier)
    if not change.operations:
        return _unchanged(report, cleaning, earlier)
    return Translation(
        decisions=tuple(report.decisions),
        operations=change.operations,
        cleaning=cleaning,
        templates=change.templates,
        given=(*earlier, *change.given),
        warnings=tuple(report.warnings),
        cpus=bool(cpus) and any(case.keeps for case in verdict.translated),
    )


def _unchanged(report: Report, cleaning: tuple[dict[str, Json], ...], given: tuple[Given, ...]) -> Translation:
    """Nothing becomes of the pod's keys; annotations that are not ours go all the same."""
    return Translation(
        decisions=tuple(report.decisions),
        operations=() if report.refusals else cleaning,
        cleaning=cleaning,
        given=given,
        refusals=tuple(report.refusals),
        warnings=tuple(report.warnings),
    )


def given_earlier(pod: Json, state: State, *, namespace: str) -> tuple[Given, ...]:
    """Find the claims that a pod was given by us before, if its record is ours."""
    view = view_pod(pod, state.configuration)
    if not view.marked:
        return ()
    return claims_on_pod(view, read_record(view, namespace, state.keys))


def clean(pod: Json, state: State, *, namespace: str) -> tuple[dict[str, Json], ...]:
    """Take off what only looks like ours, without a look at anything else."""
    view = view_pod(pod, state.configuration)
    if view.passed_by or not view.marked:
        return ()
    record = read_record(view, namespace, state.keys)
    foreign = foreign_annotations(view, record)
    return clean_annotations(view, foreign)


def replay(pod: Json, old: Json, state: State, *, namespace: str) -> Translation:
    """On an update of a pod that was translated, take away again what the record says was taken, and nothing else.

    A second apply of the same manifest asks for the old keys and the old scheduler again; the API server would refuse
    that as a change of what can't be changed. A number that differs from the record is not touched: that is a change. Nor is
    anything on a pod whose record is not ours: to follow that would make the API server refuse the update.
    """
    before = view_pod(old, state.configuration)
    if not before.marked:
        return NOTHING
    record = read_record(before, namespace, state.keys).record
    if not record.containers:
        return NOTHING
    now = view_pod(pod, state.configuration)
    operations = remove_recorded(now, record)
    return Translation(operations=operations)


def _split_keys(
    pod: PodView, record: Original, report: Report
) -> tuple[dict[int, tuple[Slot, _LegacyKeys]], dict[str, tuple[str, ...]]]:
    """Separate new keys from those that another webhook put back: by container order, and by name."""
    new_keys: dict[int, tuple[Slot, _LegacyKeys]] = {}
    returned_keys: dict[str, tuple[str, ...]] = {}
    for slot in pod.slots:
        if not slot.legacy_keys:
            continue
        removed = record.containers.get(slot.name)
        if not removed:
            new_keys[slot.order] = slot, slot.legacy_keys
            continue
        unseen: list[LegacyKey] = []
        returned: list[str] = []
        for legacy_key in slot.legacy_keys:
            if legacy_key.key in removed:
                returned.append(legacy_key.key)
                report.add_returned_key(slot.name, legacy_key.key, legacy_key.raw, removed[legacy_key.key])
            else:
                unseen.append(legacy_key)
        if unseen:
            new_keys[slot.order] = slot, tuple(unseen)
        if returned:
            returned_keys[slot.name] = tuple(returned)
    return new_keys, returned_keys


def _returned_annotations(pod: PodView, record: Original, report: Report) -> tuple[str, ...]:
    """Name the annotations that were taken off and that another webhook put back."""
    removed = record.removed_annotations
    returned = [key for key in record.annotations if key in pod.annotations and key in removed]
    for key in returned:
        report.add_returned_key("", key, pod.annotations[key], removed[key])
    return tuple(returned)


CLAIMS = "resourceClaims"
_LOST = "keep the key: the webhook translates the pods; an administrator can install a CRD that keeps claims"

# Whole objects, in files. In a cluster the webhook sees pods, and warns about workloads: to rewrite them there would fight with
# their controllers.


def translate_object(obj: dict[str, Json], state: State, *, unknown: bool = False) -> Translation:
    """Translate a pod, or every pod template of a workload; refused as a whole if one of them is."""
    return merge(translate_each(obj, state, unknown=unknown).values())


def translate_each(
    obj: dict[str, Json], state: State, *, unknown: bool = False, budget: Budget | None = None, without_cpus: str = ""
) -> dict[str, Translation]:
    """Translate every pod template of an object, by the pointer to it; `without_cpus` as in `translate`."""
    name = name_of(obj)
    namespace = namespace_of(obj)
    version = str(obj.get("apiVersion", "")).rpartition("/")[2]
    defined = () if template_site(obj) else state.custom_kinds.get(group_kind(obj), ())
    definitions = [kind for kind in defined if version in kind.served]
    origin = origin_of(obj, state.configuration, is_defined=bool(definitions))
    done: dict[str, Translation] = {}
    for path in paths(obj, unknown=unknown):
        pod = at(obj, path)
        translation = translate(
            pod,
            state,
            namespace=namespace,
            path=path,
            budget=budget,
            origin=origin,
            without_cpus=without_cpus,
        )
        stays = origin.stays
        if translation.changed and not stays and definitions:
            stays = _dropped(apply_json_patch(obj, translation.operations), path, version, definitions)
        if translation.changed and stays:
            # What was decided about such a template is what becomes of its pods at the webhook.
            warning = f"the template stays: {stays}; its pods are translated at the webhook"
            translation = replace(
                translation, operations=(), templates={}, warnings=(warning, *translation.warnings), stays=stays
            )
        # Claims that the object has already.
        spec = inside(pod, "spec")
        if spec.get(CLAIMS) and (lost := origin.drops or _dropped(obj, path, version, definitions)):
            decision = Decision("", "", "", CLAIMS, Action.NOT_UNDERSTOOD, lost, code="D002", remedy=_LOST)
            warning = str(Denial(decision.code, f"{CLAIMS}: {lost}", _LOST))
            translation = replace(
                translation, decisions=(*translation.decisions, decision), warnings=(*translation.warnings, warning)
            )
        # The decisions speak of the object that the template stands in.
        decisions = tuple([replace(decision, object=name) for decision in translation.decisions])
        done[path] = replace(translation, decisions=decisions)
    return done


def _dropped(obj: dict[str, Json], path: str, version: str, definitions: Iterable[CustomKind]) -> str:
    """Say by which definition the API server drops claims of the template at `path`; "" if it keeps them."""
    for kind in definitions:
        if lost := lost_claims(obj, kind.prune(obj), path):
            return f"its CRD {kind.name} has no {lost} in {version}, so the API server would drop the claims"
    return ""


def merge(several: Iterable[Translation]) -> Translation:
    """Put the translations of an object's templates together."""
    done = tuple(several)
    if len(done) < 2:
        return done[0] if done else NOTHING
    decided: list[Decision] = []
    operations: list[dict[str, Json]] = []
    templates: dict[str, Json] = {}
    refusals: list[Denial] = []
    warnings: dict[str, None] = {}  # a set that keeps their order
    doubts: list[Decision] = []
    for one in done:
        doubts += one.doubts
        decided += one.decisions
        operations += one.operations
        templates |= one.templates
        refusals += one.refusals
        warnings |= dict.fromkeys(one.warnings)
    if refusals:
        operations, templates = [], {}
    return Translation(
        decisions=tuple(decided),
        operations=tuple(operations),
        templates=templates,
        refusals=tuple(refusals),
        warnings=tuple(warnings),
        doubts=tuple(doubts),
    )
