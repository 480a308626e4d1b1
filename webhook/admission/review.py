"""Decides a review: from its bytes and a state to the answer and a record for the log. No I/O.

    decide_review: decode ▶ in scope? ▶ mode off? ▶ _decide, as if the mode were enforce ▶ _answer, in the mode

`_decide` calls `decide_pod` for a new pod, `_replay` for its update, and `_validate` for a validating review.

A review whose object is not a JSON object is refused. An object with an unreadable field is allowed, with a warning. So is the object of a
review that exceeds its budget. Objects that the webhook does not decide about are allowed. The mutating review judges all claims of a pod, so
the API server needs no validating review of the pod, unless another webhook changes it afterwards (`webhook.registration`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from dra import cel, step_limits, validation
from dra.budget import UNBOUNDED, Budget
from dra.errors import OutOfBudget, SelectorError
from dra.finding import Finding, stated
from dra.objects import Pod
from dra.pointer import escape
from dra.raw import inside, items, mapping
from dra.wire import Json, Wire, WireError, convert
from webhook import names
from webhook.admission import admission_review as reviews
from webhook.admission.decide import TOO_LATE, ReviewedPod, add_problems, decide_pod, give_up, hold_back
from webhook.admission.decide_object import decide_object
from webhook.claims import template
from webhook.names import BYPASS_HINT
from webhook.placement import (
    DEFAULT_SCHEDULER,
    Requested,
    constraints_in,
    deny_or_warn,
    inspect_claim,
    judge_requests,
    own_claims,
    text_of,
)
from webhook.refusals import Code, Warned
from webhook.state import Mode, mode_of, why_rules_unknown, workload
from webhook.translate import (
    NOTHING,
    Decision,
    PodVerdict,
    claims_added_earlier,
    is_skipped,
    paths,
    replay,
    verified_record,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from webhook.admission.admission_review import AdmissionRequest, PodParts
    from webhook.admission.replicas import Replicas
    from webhook.state import PodOwner, State
    from webhook.translate import PodClaim

    # Returns whether the time for the decision is over.
    IsOutOfTime = Callable[[], bool] | None

# The outcome of a review: the label `outcome` of the metric `drawbridge_reviews_total`.
ReviewOutcome: TypeAlias = Literal[
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
REFUSED: Final = "refused"
UNDECIDED: Final = "undecided"  # the review exceeded its budget
UNTOUCHED: Final = "untouched"
OUT_OF_SCOPE: Final = "out of scope"
OFF: Final = "off"
_SILENT = frozenset((UNTOUCHED, OUT_OF_SCOPE, OFF))
# What is recorded instead of these outcomes if the mode holds them back.
_HELD_BACK = {
    REFUSED: "would refuse",
    "cleaned": "would clean",
    "translated": "would translate",
    "replayed": "would replay",
}
# Steps charged for checking an object by the rules of `drawbridge check`, beside those for its expressions.
OBJECT_CHECK_STEPS = 10_000
_OURS = f"{names.DOMAIN}/".encode()
# Controllers for whose pods the template controller creates templates before the first pod.
_WATCHED_CONTROLLERS = ("ReplicaSet", "StatefulSet", "DaemonSet", "Job")


class Record(Wire, frozen=True, kw_only=True, omit_defaults=True):
    """A review in the log and in the metrics."""

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
    def is_logged_at_info(self) -> bool:
        """Whether the review gets a log line at level info. Most pods request no devices and get none."""
        return bool(self.decisions or self.problems) or self.outcome not in (UNTOUCHED, OUT_OF_SCOPE)


class ReviewAnswer(Wire, frozen=True, kw_only=True):
    """The answer to a review and its record; the other fields control when the service sends the answer."""

    response: reviews.Response
    record: Record
    # By namespace and name, the templates that the translated pod of a workload names. The answer waits a moment until they exist.
    awaited_templates: tuple[tuple[str, str], ...] = ()
    # Whether the time ended before the decision was complete: another attempt may find more.
    is_late: bool = False

    @property
    def body(self) -> bytes:
        return reviews.encode(self.response)


class ObjectReview(NamedTuple):
    """A review: its HTTP path, its request, and the decoded object of the request."""

    path: str
    request: AdmissionRequest
    object: dict[str, Json]
    name: str  # the object's kind, namespace and name, for the record
    # The decoded parts of a pod, from which its spec may still be decoded; `object` then has the metadata only.
    parts: PodParts | None = None

    @classmethod
    def from_request(
        cls, path: str, request: AdmissionRequest, obj: dict[str, Json], parts: PodParts | None = None
    ) -> ObjectReview:
        """Return the review, with the name of its object."""
        metadata = mapping(obj.get("metadata"))
        name = request.name or metadata.get("name") or f"{metadata.get('generateName', '')}*"
        where = f"{request.namespace}/" if request.namespace else ""
        return cls(path, request, obj, f"{request.kind.kind}/{where}{name}", parts)

    @property
    def kind(self) -> str:
        return self.request.kind.kind or "object"


def decide_review(
    path: str,
    body: bytes,
    state: State,
    *,
    replicas: Replicas | None = None,
    is_out_of_time: IsOutOfTime = None,
    max_call_steps: int = UNBOUNDED,
) -> ReviewAnswer:
    """Answer a review at the path "mutate" or "validate"; raise ReviewError if it is not a review.

    `replicas` remembers verdicts on pods for later reviews. `max_call_steps` limits the steps of one uninterruptible call.
    """
    parts: PodParts | None = None
    if path == "validate" or state.configuration.reads_all:
        request = reviews.decode(body)
    else:
        request, parts = reviews.decode_pod(body)
    obj: dict[str, Json] = {"metadata": parts.metadata} if parts and parts.metadata else {}
    if not _is_in_scope(path, request):
        return _answer(ObjectReview.from_request(path, request, obj), NOTHING, OUT_OF_SCOPE, Mode.OFF)
    if parts is None:
        try:
            obj = reviews.read(request.object)
        except WireError as error:
            return _answer_unreadable(ObjectReview.from_request(path, request, {}), error)
    review = ObjectReview.from_request(path, request, obj, parts)
    owner = workload(request.namespace, mapping(obj.get("metadata")))
    mode = mode_of(state, owner)
    if mode is Mode.OFF:
        return _answer(review, NOTHING, OFF, mode)
    budget = Budget(step_limits.REVIEW, is_out_of_time, max_call_steps=max_call_steps)
    try:
        verdict = _decide(review, owner, state, budget, replicas)
        outcome = _outcome_of(verdict, request.operation)
    except WireError as error:
        # The API server has decoded the object, so the object is valid, and is allowed.
        text = f"drawbridge cannot read this {review.kind}, so it is not checked: {error}"
        verdict, outcome = PodVerdict(problem_warnings=(text,)), "unreadable"
    except OutOfBudget:
        verdict, outcome = give_up(f"drawbridge did not check this {review.kind}: {TOO_LATE}"), UNDECIDED
    if mode is not Mode.ENFORCE and outcome not in _SILENT and (reasons := why_rules_unknown(state, request.namespace)):
        text = f"drawbridge translates and refuses nothing in namespace {request.namespace}: {' and '.join(reasons)}, so its rules are unknown"
        verdict = replace(verdict, problem_warnings=(*verdict.problem_warnings, text))
    is_late = verdict.is_late or budget.is_late
    return _answer(review, verdict, outcome, mode, is_late=is_late, controller=owner.kind)


def _is_in_scope(path: str, request: AdmissionRequest) -> bool:
    """Report whether the webhook decides about this operation and resource."""
    if request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
        return False
    return path != "mutate" or (request.resource.group, request.resource.resource) == ("", "pods")


def _answer_unreadable(review: ObjectReview, error: WireError) -> ReviewAnswer:
    """Refuse an object that is not a JSON object. API servers send no such review."""
    message = f"this {review.kind} cannot be read: {error}"
    status = reviews.DenialStatus(code=400, reason="BadRequest", message=message)
    return ReviewAnswer(
        response=reviews.deny(review.request.uid, status),
        record=_record(review, PodVerdict(problem_warnings=(message,)), "unreadable", Mode.OFF),
    )


def _decide(
    review: ObjectReview, owner: PodOwner, state: State, budget: Budget, replicas: Replicas | None
) -> PodVerdict:
    """Decide about the object, as if the mode were `enforce`."""
    request = review.request
    if review.path == "validate":
        verdict = _validate(review, state, budget)
        if not verdict.refusals:
            budget.confirm()
        return verdict
    if request.operation == "UPDATE":
        return _replay(review, state)
    candidate = ReviewedPod(review.object, request.namespace, owner, review.name)
    if review.parts is None:
        return decide_pod(candidate, state, budget)
    if replicas is None:
        return decide_pod(candidate._replace(pod=reviews.whole(review.parts)), state, budget)
    return replicas.decide(review.parts, candidate, state, budget)


def _outcome_of(verdict: PodVerdict, operation: str) -> ReviewOutcome:
    if verdict.refusals:
        return REFUSED
    if verdict.is_undecided:
        return UNDECIDED
    if verdict.changed:
        return "translated"
    if verdict.decisions:
        return "left"
    if verdict.operations:
        return "replayed" if operation == "UPDATE" else "cleaned"
    return "warned" if verdict.problem_warnings else UNTOUCHED


def _replay(review: ObjectReview, state: State) -> PodVerdict:
    """Remove the keys again that an update of a translated pod brings back."""
    try:
        old = reviews.read(review.request.old_object)
    except WireError:
        return NOTHING  # API servers always send the old object with an update
    obj = reviews.whole(review.parts) if review.parts else review.object
    return replay(obj, old, state, namespace=review.request.namespace)


# The answer


def _answer(
    review: ObjectReview,
    verdict: PodVerdict,
    outcome: ReviewOutcome,
    mode: Mode,
    *,
    is_late: bool = False,
    controller: str = "",
) -> ReviewAnswer:
    """Answer a review in a mode. The answer has the warnings in the modes `enforce` and `warn`; in `warn` it also says what `enforce` would do."""
    request = review.request
    applied = hold_back(verdict, mode)
    warnings: tuple[Warned, ...] = ()
    if mode is Mode.ENFORCE:
        warnings = verdict.warnings
    elif mode is Mode.WARN:
        held_back_warnings: list[Warned] = [
            refusal.prefixed(f"drawbridge would refuse this {review.kind} in mode enforce: ")
            for refusal in verdict.refusals
        ]
        if verdict.templates:
            held_back_warnings.append(
                "drawbridge would make this pod request its devices through ResourceClaims in mode enforce"
            )
        warnings = (*held_back_warnings, *verdict.warnings)
    is_held = (applied.operations, applied.refusals) != (verdict.operations, verdict.refusals)
    recorded_outcome = _HELD_BACK.get(outcome, outcome) if is_held else outcome
    audit: dict[str, str] = {}
    if outcome not in _SILENT:
        audit = {"outcome": recorded_outcome, "mode": str(mode)}
        if verdict.served_by:
            audit["served-by"] = verdict.served_by
    if applied.refusals:
        texts = [str(refusal) for refusal in applied.refusals]
        texts += [BYPASS_HINT] if review.kind == "Pod" else []
        status = reviews.DenialStatus(message="; ".join(texts))
        if verdict.is_invalid:  # the status that the API server's own validation returns
            status = replace(status, code=422, reason="Invalid")
        response = reviews.deny(request.uid, status, warnings=warnings, audit=audit)
    else:
        response = reviews.allow(request.uid, operations=applied.operations, warnings=warnings, audit=audit)
    awaited: tuple[tuple[str, str], ...] = ()
    if outcome == "translated" and controller in _WATCHED_CONTROLLERS and not request.dry_run:
        awaited = tuple([(request.namespace, template_name) for template_name in applied.templates])
    return ReviewAnswer(
        response=response,
        record=_record(review, verdict, recorded_outcome, mode),
        awaited_templates=awaited,
        is_late=is_late,
    )


def _record(review: ObjectReview, verdict: PodVerdict, outcome: str, mode: Mode) -> Record:
    request = review.request
    return Record(
        path=review.path,
        uid=request.uid,
        outcome=outcome,
        mode=str(mode),
        operation=request.operation,
        object=review.name,
        user=request.user_info.username,
        dry_run=bool(request.dry_run),
        decisions=verdict.decisions,
        templates=tuple(verdict.templates),
        problems=tuple([str(problem) for problem in verdict.problems]) if verdict.problems else (),
    )


# Validating reviews


def _validate(review: ObjectReview, state: State, budget: Budget) -> PodVerdict:
    """Decide a validating review by the kind of its object."""
    request, obj = review.request, review.object
    match request.resource.group, request.resource.resource:
        case "", "pods":
            return _recheck(convert(obj, Pod), obj, request.namespace, state, budget)
        case "resource.k8s.io", ("resourceclaims" | "resourceclaimtemplates"):
            return add_problems(NOTHING, inspect_claim(obj, request.namespace, state, budget), review.name)
        case (("apps" | "batch"), _):
            return _preview(obj, state, budget)
        case (("resource.k8s.io" | names.DOMAIN), _):
            return _check(obj, state, budget)
    return NOTHING


def _recheck(pod: Pod, obj: dict[str, Json], namespace: str, state: State, budget: Budget) -> PodVerdict:
    """Judge the claims of a pod again, after all other mutating webhooks."""
    if any(entry.name.startswith(names.PREFIX) for entry in pod.spec.resource_claims):
        # Another webhook may have restored the keys after claims had replaced them.
        operations = replay(obj, obj, state, namespace=namespace).operations
        restored = [operation["path"] for operation in operations if operation["op"] == "remove"]
        if restored:
            message = f"{', '.join(map(str, restored))}: another webhook restored keys that claims replace, so the pod would request its devices twice"
            return PodVerdict(refusals=(stated(Code.TWICE, message, "disable that webhook for this pod"),))
    annotation = pod.metadata.annotations.get(names.TEMPLATES)
    warnings: tuple[str, ...] = ()
    proven: dict[str, Json] = {}
    earlier_claims: tuple[PodClaim, ...] = ()
    if annotation and state.keys:
        bearer = template.identify(pod, namespace)
        try:
            proven = template.verify(annotation, bearer, *state.keys)
            earlier_claims = claims_added_earlier(obj, state, namespace=namespace)
        except template.TemplatesError as error:
            # Without a valid signature, the specs on the pod are ignored, and the stored templates are judged.
            warnings = (f"{error}: drop the {names.DOMAIN}/ annotations",)
    claims = [replace(claim, spec=proven.get(claim.template, claim.spec)) for claim in own_claims(obj, earlier_claims)]
    requested = Requested(
        claims,
        namespace,
        constraints_in(obj),
        scheduler=pod.spec.scheduler_name or DEFAULT_SCHEDULER,
        controller=workload(namespace, mapping(obj.get("metadata"))).kind,
    )
    problems = deny_or_warn(judge_requests(requested, state, budget), state)
    return add_problems(PodVerdict(problem_warnings=warnings), problems, f"Pod/{namespace}/{pod.metadata.name}")


def _preview(obj: dict[str, Json], state: State, budget: Budget) -> PodVerdict:
    """Warn the author of a workload if its pods will be refused or have to wait. A workload itself is never refused."""
    if not paths(obj):
        return NOTHING
    verdict = decide_object(obj, state, stored=True, budget=budget)
    refusals = [refusal.prefixed("its pods will be refused: ") for refusal in verdict.refusals]
    warnings = (*refusals, *verdict.warnings)
    return PodVerdict(problem_warnings=warnings, is_undecided=verdict.is_undecided, is_late=verdict.is_late)


def _check(obj: dict[str, Json], state: State, budget: Budget) -> PodVerdict:
    """Check a slice, a class, or an object of drawbridge's own kinds by the rules of `drawbridge check`.

    Slices and classes only get warnings: the API server refuses invalid ones itself. Invalid objects of drawbridge's own kinds are refused.
    """
    budget.charge_whole(OBJECT_CHECK_STEPS)
    server = state.features.likely
    for text in _expressions(
        mapping(obj.get("spec"))
    ):  # the rules compile them without a budget, or find them in the cache
        with suppress(SelectorError):
            cel.compile(text, cel.NEW, gates=server.gates, minor=server.minor, budget=budget)
    denials: list[Finding] = []
    warnings: list[Warned] = []
    is_own_kind = str(obj.get("apiVersion", "")).startswith(f"{names.DOMAIN}/")
    problems = validation.problems(obj, server.gates, server.minor)
    for finding in validation.findings(problems, str(obj.get("kind", ""))):
        text = text_of(finding)
        if is_own_kind and finding.refuses:
            denials.append(stated(Code.OBJECT, text))
        else:
            warnings.append(text)
    return PodVerdict(refusals=tuple(denials), problem_warnings=tuple(warnings))


def _expressions(spec: dict[str, Json]) -> Iterator[str]:
    """Yield the CEL expressions of a class or of an object of drawbridge's own kinds."""
    texts = [spec.get("selector"), spec.get("compatibleOnlyWith")]
    texts += [inside(selector, "cel").get("expression") for selector in items(spec, "selectors")]
    yield from (text for text in texts if isinstance(text, str))


# Without a decision in time


def answer_timeout(path: str, body: bytes, state: State) -> ReviewAnswer:
    """Allow the object of a review that took too long unchanged, with a warning; raise ReviewError if it is not a review.

    An unchanged pod gets its devices from the device plugin that it was written for, or waits. The scheduler judges a claim that was not judged
    here. The object is not decoded as a whole, because decoding cannot be interrupted. Only forged annotations with drawbridge's names are
    removed, so that nobody can keep them by making a pod slow to decide. The canary chooses by the pod's owner, which is not decoded, so it may
    choose otherwise than for a pod that is decided in time.
    """
    is_marked = path == "mutate" and _OURS in body
    request, head = reviews.decode_head(body) if is_marked else (reviews.decode(body), {})
    review = ObjectReview.from_request(path, request, {})
    if not _is_in_scope(path, request):
        return _answer(review, NOTHING, OUT_OF_SCOPE, Mode.OFF)
    mode = mode_of(state, workload(request.namespace, {}))
    if mode is Mode.OFF:
        return _answer(review, NOTHING, OFF, mode)
    effect = "left this pod as it is" if path == "mutate" else f"did not check this {review.kind}"
    forged = _forged(head, request.namespace, state) if request.operation == "CREATE" else ()
    cleaning = tuple([{"op": "remove", "path": f"/metadata/annotations/{escape(name)}"} for name in forged])
    return _answer(review, give_up(f"drawbridge {effect}: {TOO_LATE}", cleaning), UNDECIDED, mode)


def _forged(pod: Json, namespace: str, state: State) -> tuple[str, ...]:
    """List the annotations with drawbridge's names that drawbridge did not write."""
    annotations = inside(pod, "metadata", "annotations")
    if is_skipped(pod):
        return ()
    # `read_record` also requires that the pod has a claim of drawbridge. The claims are not decoded here.
    bearer = template.identify_raw(pod, namespace)
    is_genuine = bool(state.keys) and verified_record(annotations, bearer, state.keys) is not None
    return () if is_genuine else tuple(annotations)
