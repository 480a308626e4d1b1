"""The translator: a raw pod and what is declared and known, to what shall be changed on it. No clock, no client.

    words on containers ─▶ their dialect ─▶ the dialect's rule ─▶ demands ─▶ claims ─▶ containers ─▶ JSON Patch
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
from webhook.translate.case import Case, cases
from webhook.translate.checks import CheckedPod, Context, judge
from webhook.translate.cpus import CPU, CPU_DIALECT, ask_for_cpus, leave_cpus, wanted_cpus
from webhook.translate.limits import too_much
from webhook.translate.owner import misspelt, owners
from webhook.translate.pod_template import at, lost_claims, name_of, namespace_of, paths
from webhook.translate.pod_view import view_pod
from webhook.translate.record import LARGEST, NOTHING_WRITTEN, foreign, is_of_file, read_record, taken_off
from webhook.translate.report import Decision, Report
from webhook.translate.rewrite import Given, asked_by_annotation, clean_annotations, rewrite, standing, strip
from webhook.translate.workload_kind import ALONE, QUEUE, READ_ON_PODS, Provenance, group_kind, origin_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.budget import Budget
    from webhook.state import CustomKind, State
    from webhook.translate.pod_view import PodView, Slot, Word
    from webhook.translate.record import Original

    _Words = tuple[Word, ...]

# Steps that a container, or a word on one, may cost.
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
        """Whether anything becomes of the pod's own words."""
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
    origin: Provenance = ALONE,
    without_cpus: str = "",
) -> Translation:
    """Translate a pod, or the pod template that stands at `path` of a workload: the same words for every caller.

    `seal` writes the templates annotation, with the state's first key; offline it could not be verified. A template is also given
    the tolerations that ExtendedResourceToleration adds to pods before a webhook sees them, which it can't once the keys are gone.
    `without_cpus` says why CPUs get no claims here, whatever the configuration says.
    """
    configuration = state.configuration
    view = view_pod(pod, configuration)
    cpus = wanted_cpus(view, configuration, namespace) if configuration.claims_cpus else {}
    speaks = view.speaks or bool(cpus)
    if view.passed_by or not (speaks or view.marked):
        return NOTHING
    if origin.scheduler:
        view = replace(view, scheduler=origin.scheduler)
    quiet = view.bound or not speaks
    believed = read_record(view, namespace, state.keys, offline=not seal) if view.marked else NOTHING_WRITTEN
    strange = foreign(view, believed) if view.marked else ()
    cleaning = clean_annotations(view, strange, path) if strange else ()
    report = Report(f"Pod/{namespace or 'default'}/{view.name}", configuration.file.approximations)
    if strange and not is_of_file(view):
        report.warnings.append(f"{', '.join(strange)}: not written by drawbridge for this pod, and removed")
    earlier = standing(view, believed) if believed.templates else ()
    if quiet:
        return _alone(report, cleaning, earlier)
    if view.labels.get(names.SKIP_LABEL, "false") != "false":  # it is not "true", or it would not be looked at
        report.misread(names.SKIP_LABEL, 'only the value "true" makes drawbridge skip the pod')
    if view.annotations.get(names.EXTENDED_RESOURCES, "leave") not in ("leave", "translate"):
        report.misread(names.EXTENDED_RESOURCES, 'only "leave" and "translate" are read')
    if problem := too_much(view, configuration):
        report.pass_by(problem)
        return _alone(report, cleaning, earlier)
    if budget is not None:
        budget.charge(sum([_PRICE * (1 + len(slot.words)) for slot in view.slots]) + _PRICE * len(cpus))
    spoken, again = _fresh(view, believed.record, report)
    back = _back(view, believed.record, report) if believed.record.annotations else ()
    if back:
        kept = {name: text for name, text in view.annotations.items() if name not in back}
        view = replace(view, annotations=kept)
    whose = owners(view, configuration, believed.record.containers)
    if whose.asking:
        # What asks beside annotations that an earlier round took off, such as a label, is passed over.
        gone = set(taken_off(view, believed))
        still = [one for one in whose.asking if gone.isdisjoint([row.name for row in one[0].keys])]
        whose = replace(whose, asking=tuple(still))
    if whose.mixed and spoken:
        report.pass_by(whose.mixed, spoken.values())
        return _alone(report, cleaning, earlier)
    read_on_pods: dict[str, str] = {}
    for label, (read, what_for) in READ_ON_PODS.items():
        if label in view.labels or label in origin.labels:
            read_on_pods[read] = what_for
    wrong: Mapping[int, Left] = {}
    for slot in view.slots:
        if len(slot.limits) > len(slot.words):
            wrong = misspelt(view, configuration, state.fleet)
            break
    found = cases(spoken, whose, configuration, state.fleet)
    # What has its annotations taken off is no longer in the queue or group of their system.
    if whose.scheduled and whose.asking:
        asking = [dialect for dialect, _ in whose.asking]
        leaving = [row for case in found if case.open and case.dialect in asking for row in case.dialect.keys]
        if whose.scheduled.row in leaving:
            whose = replace(whose, scheduled=None)
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
        scheduled=bool(whose.scheduled or origin.scheduler),
        neglected=state.fleet.installed.neglects(view.selected, view.spec) if state.fleet.installed.autoscalers else "",
        queue=origin.queue or str(view.labels.get(QUEUE) or ""),
        recorded=believed.record.containers,
        misspelt=wrong,
        read_on_pods=read_on_pods,
        cpus=bool(cpus),
    )
    if cpus:
        of_cpus = ask_for_cpus(view, cpus, state, namespace=namespace, written=believed, others=tuple(found))
        for slot, answer in of_cpus:
            case = Case(dialect=CPU_DIALECT, words=((slot, ()),), container=slot.name, keys=(CPU,), keeps=True)
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
    report.add(verdict, whose)
    if report.refusals:
        return _alone(report, cleaning, earlier)
    change = rewrite(
        view,
        verdict,
        report,
        again=again,
        taken=back,
        asked=asked_by_annotation(verdict.translated) if whose.asking else (),
        written=believed,
        foreign=strange,
        namespace=namespace,
        path=path,
        key=key,
        there=state.templates if state.confirmed else (),
    )
    if change.too_large:
        del report.decisions[before:]
        left = [case.leave(case.keys[0], TOO_LARGE) if case.open else case for case in verdict.cases]
        report.add(CheckedPod(cases=tuple(left)), whose)
        return _alone(report, cleaning, earlier)
    if not change.operations:
        return _alone(report, cleaning, earlier)
    return Translation(
        decisions=tuple(report.decisions),
        operations=change.operations,
        cleaning=cleaning,
        templates=change.templates,
        given=(*earlier, *change.given),
        warnings=tuple(report.warnings),
        cpus=bool(cpus) and any(case.keeps for case in verdict.translated),
    )


def _alone(report: Report, cleaning: tuple[dict[str, Json], ...], given: tuple[Given, ...]) -> Translation:
    """Nothing becomes of the pod's words; annotations that are not ours go all the same."""
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
    return standing(view, read_record(view, namespace, state.keys))


def clean(pod: Json, state: State, *, namespace: str) -> tuple[dict[str, Json], ...]:
    """Take off what only looks like ours, without a look at anything else."""
    view = view_pod(pod, state.configuration)
    if view.passed_by or not view.marked:
        return ()
    record = read_record(view, namespace, state.keys)
    strange = foreign(view, record)
    return clean_annotations(view, strange)


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
    operations = strip(now, record)
    return Translation(operations=operations)


def _fresh(
    pod: PodView, record: Original, report: Report
) -> tuple[dict[int, tuple[Slot, _Words]], dict[str, tuple[str, ...]]]:
    """Tell words not seen before from those that another webhook put back: by container order, and by name."""
    spoken: dict[int, tuple[Slot, _Words]] = {}
    again: dict[str, tuple[str, ...]] = {}
    for slot in pod.slots:
        if not slot.words:
            continue
        removed = record.containers.get(slot.name)
        if not removed:
            spoken[slot.order] = slot, slot.words
            continue
        new: list[Word] = []
        back: list[str] = []
        for word in slot.words:
            if word.key in removed:
                back.append(word.key)
                report.back(slot.name, word.key, word.raw, removed[word.key])
            else:
                new.append(word)
        if new:
            spoken[slot.order] = slot, tuple(new)
        if back:
            again[slot.name] = tuple(back)
    return spoken, again


def _back(pod: PodView, record: Original, report: Report) -> tuple[str, ...]:
    """Name the annotations that were taken off and that another webhook put back."""
    taken = record.taken
    back = [key for key in record.annotations if key in pod.annotations and key in taken]
    for key in back:
        report.back("", key, pod.annotations[key], taken[key])
    return tuple(back)


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
    definitions = [one for one in defined if version in one.served]
    origin = origin_of(obj, state.configuration, is_defined=bool(definitions))
    done: dict[str, Translation] = {}
    for path in paths(obj, unknown=unknown):
        pod = at(obj, path)
        one = translate(
            pod,
            state,
            namespace=namespace,
            path=path,
            budget=budget,
            origin=origin,
            without_cpus=without_cpus,
        )
        stays = origin.stays
        if one.changed and not stays and definitions:
            stays = _dropped(apply_json_patch(obj, one.operations), path, version, definitions)
        if one.changed and stays:
            # What was decided about such a template is what becomes of its pods at the webhook.
            told = f"the template stays: {stays}; its pods are translated at the webhook"
            one = replace(one, operations=(), templates={}, warnings=(told, *one.warnings), stays=stays)
        # Claims that the object has already.
        spec = inside(pod, "spec")
        if spec.get(CLAIMS) and (lost := origin.drops or _dropped(obj, path, version, definitions)):
            decision = Decision("", "", "", CLAIMS, Action.NOT_UNDERSTOOD, lost, code="D002", remedy=_LOST)
            told = str(Denial(decision.code, f"{CLAIMS}: {lost}", _LOST))
            one = replace(one, decisions=(*one.decisions, decision), warnings=(*one.warnings, told))
        # The decisions speak of the object that the template stands in.
        decisions = tuple([replace(decision, object=name) for decision in one.decisions])
        done[path] = replace(one, decisions=decisions)
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
