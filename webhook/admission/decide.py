"""The whole mutating and validating path: a review's bytes and a state in, an answer's bytes and a record out. No I/O.

    decode ▶ is it ours, is it on? ▶ decide: what it comes to ▶ answer: what is said and done about it in this mode
                                                              ▶ weigh: can the claims that a pod is given be served?

`decide` knows no modes, so that observe and warn decide exactly what enforce would; `answer` knows nothing else. What can't be read
as the object it claims to be is refused in words; what is not ours is allowed without a look; what could not be decided
within the review's budget is allowed as it is, with a warning.

A pod's claims are weighed here, those that it came with and those that it was given, and the API server is spared a second
call (`webhook.admission.registration`). That is a step of its own, because who holds which device changes with every pod, and
what a pod is translated to does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dra.budget import UNBOUNDED, Budget
from dra.errors import OutOfBudget
from dra.wire import Json, Wire, WireError
from webhook.admission import admission_review as reviews
from webhook.admission.validate import (
    DEFAULT_SCHEDULER,
    Found,
    all_claims,
    brought,
    choose_side,
    find_legacy,
    foresee,
    inspect,
    leave_all,
    prefer_side,
    serve,
    tell_side,
)
from webhook.claims import upkeep
from webhook.refusals import INVALID, WAY_OUT, Code, sentence
from webhook.sides import Preference
from webhook.state import Mode, doubts, mode_of, workload
from webhook.translate import Decision, Given, Translation, clean, is_passed_by, replay, translate

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.admission.admission_review import Request
    from webhook.sides import Choice
    from webhook.state import State

    # Asked now and then whether somebody still waits for the answer.
    Impatient = Callable[[], bool] | None

REFUSED = "refused"  # the outcome of a request that is turned back
UNDECIDED = "undecided"  # ... of one that took too long
# About a second of work. The rim has a clock, and loses patience long before.
STEPS = 1_000_000

UNTOUCHED, OUT_OF_SCOPE, OFF = "untouched", "out of scope", "off"
_SILENT = frozenset((UNTOUCHED, OUT_OF_SCOPE, OFF))
_UNSEEN = frozenset((OUT_OF_SCOPE, OFF))
# What an outcome is called where it is only told.
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
        """Whether a line in the log says anything: most pods that reach us need nothing."""
        return bool(self.decisions or self.problems) or self.outcome not in (UNTOUCHED, OUT_OF_SCOPE)


class Outcome(Wire, frozen=True, kw_only=True):
    """An answer and its record."""

    body: bytes
    record: Record
    # All claims that the pod will have, and where it stands; and what is changed even if it is not given any.
    given: tuple[Given, ...] = ()
    namespace: str = ""
    scheduler: str = ""
    restoring: tuple[dict[str, Json], ...] = ()
    # On which side of a mixed fleet it would rather be served; None if it has no choice.
    preference: Preference | None = None
    # Why it is served on the side on which it is.
    side: str = ""


class Question(NamedTuple):
    """One review: the path it came by, the request, and the object it is about."""

    path: str
    request: Request
    object: dict[str, Json]


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What a review comes to, whatever is then made of it."""

    outcome: str
    denials: tuple[str, ...] = ()
    invalid: bool = False  # whether the API server would have refused it as well
    warnings: tuple[str, ...] = ()
    operations: tuple[dict[str, Json], ...] = ()
    # What is done where the rest is only told: it takes nothing from anybody.
    restoring: tuple[dict[str, Json], ...] = ()
    decisions: tuple[Decision, ...] = ()
    templates: tuple[str, ...] = ()
    given: tuple[Given, ...] = ()
    problems: tuple[str, ...] = ()
    preference: Preference | None = None


NOTHING = Ruling(outcome=UNTOUCHED)


def mutate(body: bytes, state: State, *, impatient: Impatient = None, longest: int = UNBOUNDED) -> Outcome:
    """Answer a mutating review; `impatient` says when it can wait no longer, `longest` how long in one piece."""
    return _review("mutate", body, state, impatient, longest)


def validate(body: bytes, state: State, *, impatient: Impatient = None, longest: int = UNBOUNDED) -> Outcome:
    """Answer a validating review; `impatient` says when it can wait no longer, `longest` how long in one piece."""
    return _review("validate", body, state, impatient, longest)


def _review(path: str, body: bytes, state: State, impatient: Impatient, longest: int) -> Outcome:
    request = reviews.decode(body)
    namespace = request.namespace
    if not concerns_us(path, request):
        question = Question(path, request, {})
        ruling = Ruling(outcome=OUT_OF_SCOPE)
        return answer(question, ruling, Mode.OFF)
    try:
        obj = reviews.read(request.object)
    except WireError as error:
        question = Question(path, request, {})
        return _unreadable(question, error)
    question = Question(path, request, obj)
    metadata = obj.get("metadata")
    who = workload(namespace, metadata if isinstance(metadata, dict) else {})
    mode = mode_of(state, who)
    if mode is Mode.OFF:
        ruling = Ruling(outcome=OFF)
        return answer(question, ruling, mode)
    foretell = mode is not Mode.ENFORCE
    budget = Budget(STEPS, impatient, longest=longest)
    try:
        ruling = decide(question, state, budget, foretell=foretell)
    except OutOfBudget as error:
        ruling = give_up(question, state, f"it could not be decided in time ({error})")
    if foretell and (reasons := doubts(state, namespace)):
        ruling = _doubt(ruling, namespace, reasons)
    return answer(question, ruling, mode)


def concerns_us(path: str, request: Request) -> bool:
    """Say whether a review is about something that we decide on."""
    if request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
        return False
    return path != "mutate" or (request.resource.group, request.resource.resource) == ("", "pods")


# What it comes to


def decide(question: Question, state: State, budget: Budget, *, foretell: bool = False) -> Ruling:
    """Decide a review, as if everything that follows were done. `foretell` also judges the claims that a pod would ask for."""
    if question.path == "validate":
        return _judge(question, state, budget)
    if question.request.operation == "UPDATE":
        return _replay(question, state)
    return _create(question, state, budget, foretell=foretell)


def _replay(question: Question, state: State) -> Ruling:
    """What was translated once must stay as it was translated."""
    try:
        old = reviews.read(question.request.old_object)
    except WireError:
        return NOTHING  # no API server sends an update without what was there
    again = replay(question.object, old, state, namespace=question.request.namespace)
    if not again.changed:
        return NOTHING
    return Ruling(outcome="replayed", operations=again.operations, restoring=again.operations)


def _create(question: Question, state: State, budget: Budget, *, foretell: bool) -> Ruling:
    namespace = question.request.namespace
    done = translate(question.object, state, namespace=namespace, seal=True, budget=budget)
    refusals = done.refusals
    if refusals:
        ruling = _ruling(REFUSED, done, denials=refusals, problems=refusals)
        codes = [decision.code for decision in done.decisions if decision.code]
        invalid = INVALID.issuperset(codes)
        return msgspec.structs.replace(ruling, invalid=invalid)
    if state.confirmed:
        taken = upkeep.name_conflicts(done.templates, namespace, state)
        if taken:
            denials = tuple([sentence(Code.TAKEN, text) for text in taken])
            return _ruling(REFUSED, done, denials=denials, problems=denials)
    if not done.changed:
        outcome = UNTOUCHED
        if done.decisions:
            outcome = "left"
        elif done.cleaning:
            outcome = "cleaned"
        return _ruling(outcome, done)
    preference = _prefer(question, done, state) if state.configuration.file.mixed else None
    if not foretell:
        ruling = _ruling("translated", done)
        return ruling if preference is None else msgspec.structs.replace(ruling, preference=preference)
    choice = choose_side(preference, done.given, namespace, state, budget)
    if choice is not None and not choice.moved:
        decisions = leave_all(done.decisions, choice.why)
        operations = done.cleaning
        return Ruling(outcome="left", operations=operations, restoring=operations, decisions=decisions)
    # Nobody will ask to validate the claims of a pod that stays as it is, so what they would meet is said here.
    ahead = foresee(done, state, budget)
    warnings = (*ahead, *done.warnings)
    return _ruling("translated", done, warnings=warnings, problems=ahead)


def _prefer(question: Question, done: Translation, state: State) -> Preference | None:
    metadata = question.object.get("metadata")
    who = workload(question.request.namespace, metadata if isinstance(metadata, dict) else {})
    return prefer_side(question.object, done, who, state)


def _ruling(outcome: str, done: Translation, **more: tuple[str, ...]) -> Ruling:
    ruling = Ruling(
        outcome=outcome,
        warnings=done.warnings,
        operations=done.operations,
        restoring=done.cleaning,
        decisions=done.decisions,
        templates=tuple(done.templates),
        given=done.given,
    )
    return msgspec.structs.replace(ruling, **more) if more else ruling


def _judge(question: Question, state: State, budget: Budget) -> Ruling:
    try:
        found = inspect(question.request, question.object, state, budget)
    except WireError as error:
        # The API server has read it, so the lack is ours, and no reason to turn anybody back.
        text = f"drawbridge cannot read this {_kind(question)}, and does not judge it: {error}"
        return Ruling(outcome="unreadable", warnings=(text,), problems=(text,))
    denials, warnings = found.denials, found.warnings
    if denials:
        return Ruling(outcome=REFUSED, denials=denials, warnings=warnings, problems=denials)
    if warnings:
        return Ruling(outcome="warned", warnings=warnings, problems=warnings)
    return NOTHING


def give_up(question: Question, state: State, why: str) -> Ruling:
    """Let what took too long pass: nobody is turned back because we were slow, nor keeps annotations in our name for it."""
    said = "left this pod as it is" if question.path == "mutate" else f"did not judge this {_kind(question)}"
    text = f"drawbridge {said}: {why}"
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


def _doubt(ruling: Ruling, namespace: str, reasons: tuple[str, ...]) -> Ruling:
    """Say why nothing is done in a namespace; where there is nothing to do, nobody has to know."""
    if ruling.outcome in _SILENT:
        return ruling
    why = " and ".join(reasons)
    text = f"drawbridge translates and refuses nothing in namespace {namespace}: {why}, so what may be done there is not known"
    return msgspec.structs.replace(ruling, warnings=(*ruling.warnings, text), problems=(*ruling.problems, text))


# What is said and done about it


def answer(question: Question, ruling: Ruling, mode: Mode) -> Outcome:
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
    warnings: tuple[str, ...] = ()
    operations: tuple[dict[str, Json], ...] = ()
    if mode is Mode.ENFORCE:
        done = True
        warnings = ruling.warnings
        operations = ruling.operations
    elif mode is Mode.WARN:
        done = bool(ruling.operations) and ruling.restoring == ruling.operations
        warnings = _foretell(question, ruling, mode)
        operations = ruling.restoring
    outcome = ruling.outcome
    if not done:
        outcome = _WOULD.get(outcome, outcome)
    audit: dict[str, str] = {}
    if ruling.outcome not in _SILENT:
        audit = {"outcome": outcome, "mode": str(mode)}
    record = _record(question, ruling, outcome, mode)
    given = () if ruling.denials else _claims(question, ruling, mode)
    if mode is Mode.ENFORCE and ruling.denials:
        status = _status(question, ruling)
        body = reviews.deny(request.uid, status, warnings=warnings, audit=audit)
    else:
        body = reviews.allow(request.uid, operations=operations, warnings=warnings, audit=audit)
    restoring = ruling.restoring if given else ()
    spec = question.object.get("spec") if given else None
    scheduler = spec.get("schedulerName") if isinstance(spec, dict) else None
    for operation in operations:
        if operation["path"] == "/spec/schedulerName":
            scheduler = operation["value"]
    return Outcome(
        body=body,
        record=record,
        given=given,
        namespace=request.namespace,
        scheduler=str(scheduler or DEFAULT_SCHEDULER),
        restoring=restoring,
        preference=ruling.preference if given else None,
    )


def _claims(question: Question, ruling: Ruling, mode: Mode) -> tuple[Given, ...]:
    """Name the claims that a pod will have when it was answered."""
    created = question.path == "mutate" and question.request.operation == "CREATE"
    if not created or ruling.outcome in _UNSEEN:
        return ()
    pod, given = question.object, ruling.given
    if mode is Mode.ENFORCE and given:
        spec = pod.get("spec")
        bare = isinstance(spec, dict) and not spec.get("resourceClaims")
        return given if bare else all_claims(pod, given)
    if is_passed_by(pod):
        return ()
    return brought(pod, given)


# Whether it can be served


def weigh(outcome: Outcome, state: State, *, impatient: Impatient = None, longest: int = UNBOUNDED) -> Outcome:
    """Judge the claims of a pod: turn it back where they can never be served, and say what it waits for.

    What cannot be decided in time is the verdict alone: the pod is translated all the same.
    """
    if not outcome.given:
        return outcome
    budget = Budget(STEPS, impatient, longest=longest)
    try:
        choice = None
        if outcome.preference is not None:
            choice = choose_side(outcome.preference, outcome.given, outcome.namespace, state, budget)
        if choice is not None and not choice.moved:
            return _leave(outcome, choice.why, choice=choice)
        found = serve(outcome.given, outcome.namespace, state, budget, outcome.scheduler)
    except OutOfBudget as error:
        text = f"drawbridge did not judge this Pod: it could not be decided in time ({error})"
        return _told(outcome, UNDECIDED, (text,), (text,))
    if choice is not None:
        outcome = _beside(outcome, choice)
    record = outcome.record
    if found.denials and record.mode == Mode.ENFORCE:
        still = find_legacy(record.decisions, state)
        if still:
            return _leave(outcome, f"{still}, and no claim would do: {found.denials[0]}")
        return _turned_back(outcome, found)
    became = record.outcome
    if found.denials:
        became = _WOULD[REFUSED]
    elif found.warnings and became == UNTOUCHED:
        became = "warned"
    would = [_would_refuse("Pod", record.mode) + text for text in found.denials]
    problems = (*found.denials, *found.warnings)
    return _told(outcome, became, (*would, *found.warnings), problems)


def _told(outcome: Outcome, became: str, warnings: tuple[str, ...], problems: tuple[str, ...]) -> Outcome:
    """Say more in an answer, where its mode says anything."""
    if not problems:
        return outcome
    record = outcome.record
    mode = record.mode
    audit = {"outcome": became, "mode": mode}
    if outcome.side:
        audit["side"] = outcome.side
    all_problems = (*record.problems, *problems)
    told = msgspec.structs.replace(
        record,
        outcome=became,
        problems=all_problems,
    )
    if mode == Mode.OBSERVE:
        warnings = ()
    body = reviews.warn(outcome.body, warnings, audit)
    return Outcome(body=body, record=told)


def _turned_back(outcome: Outcome, found: Found) -> Outcome:
    record = outcome.record
    decisions = list(record.decisions)
    for one in found.decisions:
        named = msgspec.structs.replace(one, object=record.object)
        decisions.append(named)
    told = msgspec.structs.replace(
        record,
        outcome=REFUSED,
        decisions=tuple(decisions),
        problems=found.denials,
    )
    sentences = (*found.denials, WAY_OUT)
    status = reviews.Status(message="; ".join(sentences))
    audit = {"outcome": REFUSED, "mode": record.mode}
    body = reviews.deny(
        record.uid,
        status,
        warnings=found.warnings,
        audit=audit,
    )
    return Outcome(body=body, record=told)


def _would_refuse(kind: str, mode: str) -> str:
    return f"drawbridge would refuse this {kind} ({mode}): "


def _beside(outcome: Outcome, choice: Choice) -> Outcome:
    """Say with a pod that is translated why it is served on nodes that have moved."""
    record = outcome.record
    record = msgspec.structs.replace(record, decisions=tell_side(record.decisions, choice))
    audit = {"outcome": record.outcome, "mode": record.mode, "side": choice.why}
    warnings = () if choice.preferred else (choice.why,)
    body = reviews.warn(outcome.body, warnings, audit)
    return msgspec.structs.replace(outcome, body=body, record=record, side=choice.why)


def _leave(outcome: Outcome, reason: str, *, choice: Choice | None = None) -> Outcome:
    """Leave a pod as it was written, after all: what serves it there was not asked by us, or is its side of a mixed fleet."""
    before = outcome.record
    warnings: tuple[str, ...] = (f"left as it is: {reason}",)
    audit = {"outcome": "left", "mode": before.mode}
    if choice is not None:
        audit["side"] = reason
        warnings = () if choice.preferred else warnings
    decisions = leave_all(before.decisions, reason)
    record = msgspec.structs.replace(
        before,
        outcome="left",
        decisions=decisions,
        templates=(),
        problems=warnings,
    )
    body = reviews.allow(
        before.uid,
        operations=outcome.restoring,
        warnings=warnings,
        audit=audit,
    )
    return Outcome(body=body, record=record)


def _foretell(question: Question, ruling: Ruling, mode: Mode) -> tuple[str, ...]:
    """What the user reads where nothing is done."""
    if ruling.denials:
        opening = _would_refuse(_kind(question), mode)
        return (*(opening + text for text in ruling.denials), *ruling.warnings)
    if ruling.templates:
        would = f"drawbridge would make this pod ask for its devices by ResourceClaim ({mode})"
        return (would, *ruling.warnings)
    return ruling.warnings


def _status(question: Question, ruling: Ruling) -> reviews.Status:
    """The words of a refusal, and the code that whoever else would have refused it uses."""
    texts = [*ruling.denials, WAY_OUT] if _kind(question) == "Pod" else ruling.denials
    message = "; ".join(texts)
    if ruling.invalid:
        return reviews.Status(code=422, reason="Invalid", message=message)
    return reviews.Status(message=message)


def _unreadable(question: Question, error: WireError) -> Outcome:
    """No JSON object at all: nothing that an API server would ask about."""
    kind = _kind(question)
    message = f"this {kind} cannot be read: {error}"
    status = reviews.Status(code=400, reason="BadRequest", message=message)
    body = reviews.deny(question.request.uid, status)
    outcome = "unreadable"
    ruling = Ruling(outcome=outcome, problems=(message,))
    record = _record(question, ruling, outcome, Mode.OFF)
    return Outcome(body=body, record=record)


def _record(question: Question, ruling: Ruling, outcome: str, mode: Mode) -> Record:
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
        problems=ruling.problems,
    )


def _kind(question: Question) -> str:
    return question.request.kind.kind or "object"
