"""The whole path of a review: its bytes and a state in, the bytes of an answer and a record out. No I/O.

    decode ▶ is it ours, is it on? ▶ decide: what it comes to ▶ answer: what is said and done about it in this mode
                                                              ▶ judge_claims: can the claims that a pod is given be served?

`decide` knows no modes, so observe and warn decide exactly what enforce would; `answer` knows nothing else. An object that cannot be
read is refused; an object of another kind is allowed unread; a review that exceeds its budget is allowed unchanged, with a warning.

The claims of a pod are judged here as well, which spares the API server a second call (`webhook.admission.registration`). That is a
step of its own: which devices are free changes with every pod, and the translation of a pod does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from dra.budget import UNBOUNDED, Budget
from dra.errors import OutOfBudget
from dra.raw import inside
from dra.wire import Json, Wire, WireError
from webhook.admission import admission_review as reviews
from webhook.admission import template_lifecycle
from webhook.admission.behind_fence import add_stranded
from webhook.admission.extended_claims import extended_given
from webhook.admission.plugin_requests import PluginRequest, plugin_request
from webhook.admission.validate import (
    DEFAULT_SCHEDULER,
    NOWHERE,
    PLACING,
    REPLACED,
    add_choice,
    all_claims,
    choose_nodes,
    deny_or_warn,
    find_plugin_fallback,
    inspect,
    judge_requests,
    judge_unchanged,
    leave_all,
    leave_unserved_cpus,
    own_claims,
    place_in,
    prefer_nodes,
    preview_warnings,
)
from webhook.mixed_fleet import Preference
from webhook.names import WAY_OUT
from webhook.refusals import INVALID, Code, Denial, Warned
from webhook.state import Mode, doubts, mode_of, workload
from webhook.translate import Decision, PodClaim, Translation, clean, is_passed_by, replay, translate

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from webhook.admission.admission_review import AdmissionRequest
    from webhook.admission.validate import Found
    from webhook.mixed_fleet import Choice
    from webhook.state import State

    # Says whether the caller has stopped waiting for the answer.
    Impatient = Callable[[], bool] | None

# What becomes of the object of a review; the metric `drawbridge_reviews_total` has it as its label `outcome`.
Became: TypeAlias = Literal[
    "untouched",
    "left",
    "cleaned",
    "translated",
    "replayed",
    "warned",
    "refused",
    "unreadable",
    "undecided",
    "out of scope",
    "off",
]
REFUSED: Final = "refused"  # a request that is turned back
UNDECIDED: Final = "undecided"  # one that took too long
# Which of its limits a review meets first (steps, time, a place among others) depends on how busy the machine is.
TOO_LATE = "it could not be decided in time"
# About a second of work; the deadline of the service is much shorter.
STEPS = 1_000_000

UNTOUCHED: Final = "untouched"
OUT_OF_SCOPE: Final = "out of scope"
OFF: Final = "off"
_SILENT = frozenset((UNTOUCHED, OUT_OF_SCOPE, OFF))
_UNSEEN = frozenset((OUT_OF_SCOPE, OFF))
# Names of outcomes where the mode changes nothing.
_WOULD = {
    REFUSED: "would refuse",
    "cleaned": "would clean",
    "translated": "would translate",
    "replayed": "would replay",
}


class Record(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """What was decided, for the log, the metrics and the audit trail."""

    path: str
    uid: str
    outcome: str
    mode: str = ""
    operation: str = ""
    object: str = ""
    user: str = ""
    dry_run: bool = False
    decisions: tuple[Decision, ...] = ()
    templates: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def worth_telling(self) -> bool:
        """Whether the log gets a line: most pods need nothing."""
        return bool(self.decisions or self.problems) or self.outcome not in (UNTOUCHED, OUT_OF_SCOPE)


class Outcome(Wire, frozen=True, kw_only=True):
    """An answer and its record."""

    response: reviews.Response
    record: Record
    # All of them; the response has room for a few.
    warnings: tuple[Warned, ...] = ()
    # All claims that the pod will have, its namespace and scheduler, and the operations that stay if it gets no claims.
    given: tuple[PodClaim, ...] = ()
    namespace: str = ""
    scheduler: str = ""
    restoring: tuple[dict[str, Json], ...] = ()
    # The pod's constraints on its node.
    place: Mapping[str, Any] = NOWHERE
    # What device plugins have to serve, if anything is to be judged; and what they would if the pod were left after all.
    by_plugin: PluginRequest | None = None
    unchanged: PluginRequest | None = None
    # Which nodes of a mixed fleet the pod prefers; None if it has no choice.
    preference: Preference | None = None
    # Whether the time ended before everything was decided: a later review may find more.
    is_late: bool = False
    # The kind of the pod's controller.
    controller: str = ""

    @property
    def body(self) -> bytes:
        """The answer as the API server reads it."""
        return reviews.encode(self.response)


class ObjectReview(NamedTuple):
    """One review: the path it came by, the request, and the object it is about."""

    path: str
    request: AdmissionRequest
    object: dict[str, Json]


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a review, before its mode is applied."""

    outcome: Became
    denials: tuple[Denial, ...] = ()
    invalid: bool = False  # whether the API server would have refused it as well
    warnings: tuple[Warned, ...] = ()
    operations: tuple[dict[str, Json], ...] = ()
    # Operations that are applied in mode warn as well.
    restoring: tuple[dict[str, Json], ...] = ()
    decisions: tuple[Decision, ...] = ()
    templates: tuple[str, ...] = ()
    given: tuple[PodClaim, ...] = ()
    problems: tuple[Warned, ...] = ()
    preference: Preference | None = None
    by_plugin: PluginRequest | None = None
    unchanged: PluginRequest | None = None


NOTHING = Ruling(outcome=UNTOUCHED)


def mutate(body: bytes, state: State, *, impatient: Impatient = None, longest: int = UNBOUNDED) -> Outcome:
    """Answer a mutating review; `impatient` says when it can wait no longer, `longest` how long in one piece."""
    return _review("mutate", body, state, impatient, longest)


def validate(body: bytes, state: State, *, impatient: Impatient = None, longest: int = UNBOUNDED) -> Outcome:
    """Answer a validating review; `impatient` says when it can wait no longer, `longest` how long in one piece."""
    return _review("validate", body, state, impatient, longest)


def _review(path: str, body: bytes, state: State, impatient: Impatient, longest: int) -> Outcome:
    obj: dict[str, Json] | None = None
    if path == "validate" or state.configuration.reads_all:
        request = reviews.decode(body)
    else:
        request, obj = reviews.decode_pod(body)
    namespace = request.namespace
    if not concerns_us(path, request):
        question = ObjectReview(path, request, {})
        ruling = Ruling(outcome=OUT_OF_SCOPE)
        return answer(question, ruling, Mode.OFF)
    try:
        if obj is None:
            obj = reviews.read(request.object)
    except WireError as error:
        # Not a JSON object: no API server asks about such.
        question = ObjectReview(path, request, {})
        message = f"this {_kind(question)} cannot be read: {error}"
        response = reviews.deny(request.uid, reviews.DenialStatus(code=400, reason="BadRequest", message=message))
        ruling = Ruling(outcome="unreadable", problems=(message,))
        return Outcome(response=response, record=_record(question, ruling, ruling.outcome, Mode.OFF))
    question = ObjectReview(path, request, obj)
    metadata = obj.get("metadata")
    owner = workload(namespace, metadata if isinstance(metadata, dict) else {})
    mode = mode_of(state, owner)
    if mode is Mode.OFF:
        ruling = Ruling(outcome=OFF)
        return answer(question, ruling, mode)
    preview = mode is not Mode.ENFORCE
    budget = Budget(STEPS, impatient, longest=longest)
    try:
        ruling = decide(question, state, budget, preview=preview)
        if not ruling.denials:
            budget.confirm()
    except OutOfBudget:
        ruling = give_up(question, state)
    if preview and ruling.outcome not in _SILENT and (reasons := doubts(state, namespace)):
        text = f"drawbridge translates and refuses nothing in namespace {namespace}: {' and '.join(reasons)}, so its rules are unknown"
        ruling = replace(ruling, warnings=(*ruling.warnings, text), problems=(*ruling.problems, text))
    return answer(question, ruling, mode, is_late=budget.is_late, controller=owner.kind)


def concerns_us(path: str, request: AdmissionRequest) -> bool:
    """Say whether the webhook decides about the object of a review."""
    if request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
        return False
    return path != "mutate" or (request.resource.group, request.resource.resource) == ("", "pods")


# What it comes to


def decide(question: ObjectReview, state: State, budget: Budget, *, preview: bool = False) -> Ruling:
    """Decide a review, as if everything that follows were done. `preview` also judges the claims that a pod would ask for."""
    request = question.request
    if question.path == "validate":
        try:
            found = inspect(request, question.object, state, budget)
        except WireError as error:
            # The API server could read it, so it is allowed.
            text = f"drawbridge cannot read this {_kind(question)}, so it is not checked: {error}"
            return Ruling(outcome="unreadable", warnings=(text,), problems=(text,))
        denials, warnings = found.denials, found.warnings
        if denials:
            return Ruling(outcome=REFUSED, denials=denials, warnings=warnings, problems=denials)
        return Ruling(outcome="warned", warnings=warnings, problems=warnings) if warnings else NOTHING
    if request.operation == "UPDATE":
        # A pod stays as it was translated once.
        try:
            old = reviews.read(request.old_object)
        except WireError:
            return NOTHING  # API servers always send the old object with an update
        again = replay(question.object, old, state, namespace=request.namespace)
        if not again.changed:
            return NOTHING
        return Ruling(outcome="replayed", operations=again.operations, restoring=again.operations)
    ruling = _create(question, state, budget, preview=preview)
    if ruling.denials:
        return ruling
    if state.fleet.handed_out_anywhere:
        by_plugin = plugin_request(question.object, state, ruling.decisions)
        unchanged = plugin_request(question.object, state) if ruling.given else None
        ruling = replace(ruling, by_plugin=by_plugin, unchanged=unchanged)
    replaced_keys = {(one.container, one.key) for one in ruling.decisions if one.action in REPLACED}
    scheduler_claims = extended_given(question.object, state, ruling.operations, replaced_keys)
    if not scheduler_claims:
        return ruling
    ruling = replace(ruling, given=(*ruling.given, *scheduler_claims))
    decisions, warnings = add_stranded(ruling.decisions, scheduler_claims, state)
    if not warnings:
        return ruling
    outcome = "left" if ruling.outcome == UNTOUCHED else ruling.outcome
    all_warnings = (*ruling.warnings, *warnings)
    return replace(ruling, outcome=outcome, decisions=decisions, warnings=all_warnings)


def _create(question: ObjectReview, state: State, budget: Budget, *, preview: bool) -> Ruling:
    namespace = question.request.namespace
    again = partial(translate, question.object, state, namespace=namespace, seal=True, budget=budget)
    done = again()
    if done.cpus:
        done = leave_unserved_cpus(question.object, "", done, state, budget, again=again, namespace=namespace)
    refusals = done.refusals
    if refusals:
        ruling = _ruling(REFUSED, done, denials=refusals, problems=refusals)
        invalid = INVALID.issuperset([one.code for one in refusals])
        return replace(ruling, invalid=invalid)
    if state.confirmed:
        conflicts = template_lifecycle.name_conflicts(done.templates, namespace, state)
        if conflicts:
            denials = tuple([Denial(Code.TAKEN, text) for text in conflicts])
            return _ruling(REFUSED, done, denials=denials, problems=denials)
    if not done.changed:
        if done.decisions:
            return _ruling("left", done)
        return _ruling("cleaned" if done.cleaning else UNTOUCHED, done)
    # Whether a device plugin hands a name out on a node, or would on one that an autoscaler can make.
    handed_out: list[Container[str]] = [state.fleet.handed_out_anywhere]
    if state.prospects is not None:
        handed_out += [node.status.allocatable for node in state.prospects.nodes.values()]
    by_plugin = any(one.key in names for names in handed_out if names for one in done.decisions)
    if not (by_plugin or preview):
        return _ruling("translated", done)
    owner = workload(namespace, inside(question.object, "metadata"))
    preference = prefer_nodes(question.object, done, owner, state) if by_plugin else None
    if not preview:
        ruling = _ruling("translated", done)
        return ruling if preference is None else replace(ruling, preference=preference)
    choice = choose_nodes(preference, done.given, namespace, state, budget)
    if choice is not None and not choice.moved:
        decisions = leave_all(done.decisions, choice.why)
        operations = done.cleaning
        return Ruling(outcome="left", operations=operations, restoring=operations, decisions=decisions)
    # No validating review follows for a pod that stays unchanged, so its claims are judged here.
    claim_warnings = preview_warnings(done, state, budget, question.object, controller=owner.kind)
    warnings = (*claim_warnings, *done.warnings)
    return _ruling("translated", done, warnings=warnings, problems=claim_warnings)


def _ruling(outcome: Became, done: Translation, **more: tuple[Warned, ...]) -> Ruling:
    ruling = Ruling(
        outcome=outcome,
        warnings=done.warnings,
        operations=done.operations,
        restoring=done.cleaning,
        decisions=done.decisions,
        templates=tuple(done.templates),
        given=done.given,
    )
    return replace(ruling, **more) if more else ruling


def give_up(question: ObjectReview, state: State) -> Ruling:
    """Allow an object that took too long, in the same words whichever limit ended it, without annotations in the name of drawbridge that it did not write."""
    effect = "left this pod as it is" if question.path == "mutate" else f"did not check this {_kind(question)}"
    text = f"drawbridge {effect}: {TOO_LATE}"
    request = question.request
    cleaning: tuple[dict[str, Json], ...] = ()
    if question.path == "mutate" and request.operation == "CREATE":
        cleaning = clean(question.object, state, namespace=request.namespace)
    return Ruling(
        outcome=UNDECIDED,
        warnings=(text,),
        operations=cleaning,
        restoring=cleaning,
        problems=(text,),
    )


# What is said and done about it


def answer(
    question: ObjectReview, ruling: Ruling, mode: Mode, *, is_late: bool = False, controller: str = ""
) -> Outcome:
    """Answer a review in a mode.

    | decided | enforce | warn | observe | off |
    |---|---|---|---|---|
    | translated | done | told | recorded | not decided |
    | refused | refused | told | recorded | not decided |
    | replayed, cleaned | done | done | recorded | not decided |
    | left, warned, undecided | told | told | recorded | not decided |
    """
    request = question.request
    done = False
    warnings: tuple[Warned, ...] = ()
    operations: tuple[dict[str, Json], ...] = ()
    if mode is Mode.ENFORCE:
        done = True
        warnings = ruling.warnings
        operations = ruling.operations
    elif mode is Mode.WARN:
        done = bool(ruling.operations) and ruling.restoring == ruling.operations
        warnings = ruling.warnings
        operations = ruling.restoring
        if ruling.denials:
            opening = _would_refuse(_kind(question), mode)
            warnings = (*(one.prefixed(opening) for one in ruling.denials), *warnings)
        elif ruling.templates:
            would = f"drawbridge would make this pod request its devices through ResourceClaims ({mode})"
            warnings = (would, *warnings)
    outcome: str = ruling.outcome
    if not done:
        outcome = _WOULD.get(outcome, outcome)
    audit: dict[str, str] = {}
    if ruling.outcome not in _SILENT:
        audit = {"outcome": outcome, "mode": str(mode)}
    record = _record(question, ruling, outcome, mode)
    # The claims that the pod will have.
    given: tuple[PodClaim, ...] = ()
    by_plugin = unchanged = None
    created = question.path == "mutate" and request.operation == "CREATE"
    pod = question.object
    spec = pod.get("spec")
    if created and not ruling.denials and ruling.outcome not in _UNSEEN:
        by_plugin, unchanged = ruling.by_plugin, ruling.unchanged
        if mode is Mode.ENFORCE and ruling.given:
            bare = isinstance(spec, dict) and not spec.get("resourceClaims")
            given = ruling.given if bare else all_claims(pod, ruling.given)
        elif not is_passed_by(pod):
            given = (*own_claims(pod, ruling.given), *[one for one in ruling.given if one.by_name])
    if mode is Mode.ENFORCE and ruling.denials:
        texts = [str(one) for one in ruling.denials]
        texts += [WAY_OUT] if _kind(question) == "Pod" else []
        status = reviews.DenialStatus(message="; ".join(texts))
        if ruling.invalid:  # as the API server would have refused it
            status = replace(status, code=422, reason="Invalid")
        response = reviews.deny(request.uid, status, warnings=warnings, audit=audit)
    else:
        response = reviews.allow(request.uid, operations=operations, warnings=warnings, audit=audit)
    scheduler = spec.get("schedulerName") if given and isinstance(spec, dict) else None
    for operation in operations:
        if operation["path"] == "/spec/schedulerName":
            scheduler = operation["value"]
    return Outcome(
        response=response,
        record=record,
        warnings=warnings,
        given=given,
        namespace=request.namespace,
        scheduler=str(scheduler or DEFAULT_SCHEDULER),
        by_plugin=by_plugin,
        unchanged=unchanged,
        restoring=ruling.restoring if given else (),
        place=place_in(pod) if given and isinstance(spec, dict) and not PLACING.isdisjoint(spec) else NOWHERE,
        preference=ruling.preference if given else None,
        is_late=is_late,
        controller=controller,
    )


# Whether it can be served


def judge_claims(outcome: Outcome, state: State, *, impatient: Impatient = None, longest: int = UNBOUNDED) -> Outcome:
    """Refuse a pod whose claims can never be served, and say why one has to wait.

    A pod whose claims cannot be judged in time is translated all the same.
    """
    if not outcome.given and outcome.by_plugin is None:
        return outcome
    budget = Budget(STEPS, impatient, longest=longest)
    try:
        judged = _judge_claims(outcome, state, budget)
        if judged.record.outcome != REFUSED:
            budget.confirm()
    except OutOfBudget:
        text = f"drawbridge did not check this Pod: {TOO_LATE}"
        judged = _add_warnings(outcome, UNDECIDED, (text,), (text,))
    return replace(judged, is_late=True) if budget.is_late else judged


def _judge_claims(outcome: Outcome, state: State, budget: Budget) -> Outcome:
    choice = None
    if outcome.preference is not None:
        choice = choose_nodes(outcome.preference, outcome.given, outcome.namespace, state, budget)
    if choice is not None and not choice.moved:
        plugin_found = judge_unchanged(
            outcome.unchanged, outcome.given, outcome.namespace, state, budget, controller=outcome.controller
        )
        if plugin_found.denials and outcome.record.mode == Mode.ENFORCE:
            return _refuse(outcome.record, plugin_found)
        return _leave(outcome, choice.why, choice=choice, warnings=plugin_found.warnings)
    found = judge_requests(
        outcome.given,
        outcome.namespace,
        state,
        budget,
        outcome.scheduler,
        by_plugin=outcome.by_plugin,
        place=outcome.place,
        controller=outcome.controller,
    )
    record = outcome.record
    if choice is not None:
        record = replace(record, decisions=add_choice(record.decisions, choice))
        warnings = outcome.warnings if choice.preferred else (choice.why, *outcome.warnings)
        audit = {"outcome": record.outcome, "mode": record.mode, "side": choice.why}
        response = reviews.warn(outcome.response, warnings, audit)
        outcome = replace(outcome, response=response, record=record, warnings=warnings)
    if found.denials and record.mode == Mode.ENFORCE:
        plugin_reason, found = find_plugin_fallback(found, record.decisions, outcome.unchanged, state, budget)
        if plugin_reason:
            return _leave(outcome, found.denials[0].prefixed(f"{plugin_reason}, and no claim could replace it: "))
        if found.denials:
            return _refuse(record, found)
    elif found.denials:
        found = deny_or_warn(found, state)
    outcome_name = record.outcome
    if found.denials:
        outcome_name = _WOULD[REFUSED]
    elif found.warnings and outcome_name == UNTOUCHED:
        outcome_name = "warned"
    would = [one.prefixed(_would_refuse("Pod", record.mode)) for one in found.denials]
    problems = (*found.denials, *found.warnings)
    return _add_warnings(outcome, outcome_name, (*would, *found.warnings), problems)


def _refuse(record: Record, found: Found) -> Outcome:
    """Turn a pod back that no node could ever serve."""
    named = [replace(one, object=record.object) for one in found.decisions]
    refused = replace(
        record, outcome=REFUSED, decisions=(*record.decisions, *named), problems=tuple(map(str, found.denials))
    )
    status = reviews.DenialStatus(message="; ".join((*map(str, found.denials), WAY_OUT)))
    audit = {"outcome": REFUSED, "mode": record.mode}
    return Outcome(response=reviews.deny(record.uid, status, warnings=found.warnings, audit=audit), record=refused)


def _add_warnings(
    outcome: Outcome, outcome_name: str, warnings: tuple[Warned, ...], problems: tuple[Warned, ...]
) -> Outcome:
    """Add warnings to an answer, in modes that warn, and problems to its record."""
    if not problems:
        return outcome
    record = outcome.record
    shown = outcome.warnings if record.mode == Mode.OBSERVE else (*warnings, *outcome.warnings)
    new_record = replace(record, outcome=outcome_name, problems=(*record.problems, *map(str, problems)))
    response = reviews.warn(outcome.response, shown, {"outcome": outcome_name, "mode": record.mode})
    return Outcome(response=response, record=new_record, namespace=outcome.namespace, controller=outcome.controller)


def _would_refuse(kind: str, mode: str) -> str:
    return f"drawbridge would refuse this {kind} ({mode}): "


def _leave(
    outcome: Outcome, why: Warned, *, choice: Choice | None = None, warnings: tuple[Warned, ...] = ()
) -> Outcome:
    """Leave a pod unchanged after all: a device plugin still serves it, or a node of a mixed fleet does without a claim."""
    before = outcome.record
    reason = str(why)
    opening = "left as it is: "
    audit = {"outcome": "left", "mode": before.mode}
    if choice is not None:
        audit["side"] = reason
    if choice is None or not choice.preferred:
        warnings = (why.prefixed(opening) if isinstance(why, Denial) else opening + why, *warnings)
    decisions = leave_all(before.decisions, reason)
    record = replace(before, outcome="left", decisions=decisions, templates=(), problems=tuple(map(str, warnings)))
    response = reviews.allow(before.uid, operations=outcome.restoring, warnings=warnings, audit=audit)
    return Outcome(response=response, record=record)


def _record(question: ObjectReview, ruling: Ruling, outcome: str, mode: Mode) -> Record:
    request = question.request
    metadata = question.object.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = request.name or metadata.get("name") or f"{metadata.get('generateName', '')}*"
    where = f"{request.namespace}/" if request.namespace else ""
    return Record(
        path=question.path,
        uid=request.uid,
        outcome=outcome,
        mode=str(mode),
        operation=request.operation,
        object=f"{request.kind.kind}/{where}{name}",
        user=request.user_info.username,
        dry_run=bool(request.dry_run),
        decisions=ruling.decisions,
        templates=ruling.templates,
        problems=tuple([str(one) for one in ruling.problems]) if ruling.problems else (),
    )


def _kind(question: ObjectReview) -> str:
    return question.request.kind.kind or "object"
