"""The whole mutating and validating path: a review's bytes and a state in, an answer's bytes and a record out. No I/O.

    decode ▶ is it ours, is it on? ▶ translate | replay ▶ mode ▶ answer
    decode ▶ is it ours, is it on? ▶ check              ▶ mode ▶ answer

The mode is applied last and in one place each, so that observe and warn decide exactly what enforce would. What can't be read
as the object it claims to be is refused in words; what is not ours is allowed without a look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.wire import Json, Wire, WireError
from webhook.admission import admission_review as reviews
from webhook.admission.validate import foresee, inspect
from webhook.state import Mode, mode_of, workload
from webhook.translate import Decision, Translation, mapping, replay, translate

if TYPE_CHECKING:
    from collections.abc import Callable

    from webhook.admission.admission_review import Request
    from webhook.state import State

REFUSED = "refused"  # the outcome of a request that is turned back


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
        return bool(self.decisions or self.problems) or self.outcome not in ("untouched", "out of scope")


class Outcome(Wire, frozen=True, kw_only=True):
    """An answer and its record."""

    body: bytes
    record: Record


def mutate(body: bytes, state: State) -> Outcome:
    """Answer a mutating review."""
    return _Path("mutate", body, state).mutate()


def validate(body: bytes, state: State, *, impatient: Callable[[], bool] | None = None) -> Outcome:
    """Answer a validating review; `impatient` says when it can wait no longer for a search."""
    return _Path("validate", body, state).validate(impatient)


class _Path:
    """One review on its way."""

    def __init__(self, name: str, body: bytes, state: State) -> None:
        self.name = name
        self.state = state
        self.request: Request = reviews.decode(body)
        self.mode = Mode.OFF
        self.object: dict[str, Json] = {}

    def mutate(self) -> Outcome:
        request = self.request
        if (request.resource.group, request.resource.resource, request.sub_resource) != ("", "pods", ""):
            return self.untouched("out of scope")
        try:
            self.object = reviews.read(request.object)
            if request.operation == "UPDATE":
                return self.replay()
            return self.create() if request.operation == "CREATE" else self.untouched("out of scope")
        except WireError as error:
            return self.unreadable(error)

    def replay(self) -> Outcome:
        # Whatever the mode is now: what was translated once must stay as it was translated.
        again = replay(self.object, reviews.read(self.request.old_object))
        if not again.changed:
            return self.untouched()
        return self.outcome(reviews.allow(self.request.uid, operations=again.operations), "replayed")

    def create(self) -> Outcome:
        self.mode = self.find_mode()
        if self.mode is Mode.OFF:
            return self.untouched("off")
        done = translate(self.object, self.state, namespace=self.request.namespace, seal=True)
        if done.refusals:
            return self.refuse(done)
        if not done.changed:
            return self.leave(done)
        if self.mode is Mode.ENFORCE:
            body = reviews.allow(
                self.request.uid, operations=done.operations, warnings=done.warnings, audit=self.audit("translated")
            )
            return self.outcome(body, "translated", done)
        # Nobody will ask to validate the claims of a pod that stays as it is, so what they would meet is said here.
        ahead = foresee(done.templates, self.state)
        told = f"drawbridge would make this pod ask for its devices by ResourceClaim ({self.mode})"
        return self.allow_with((told, *ahead, *done.warnings), "would translate", done, ahead)

    def refuse(self, done: Translation) -> Outcome:
        message = "; ".join(done.refusals)
        if self.mode is Mode.ENFORCE:
            body = reviews.deny(
                self.request.uid,
                reviews.Status(message=message),
                warnings=done.warnings,
                audit=self.audit(REFUSED),
            )
            return self.outcome(body, REFUSED, done, done.refusals)
        return self.allow_with(
            (*(f"drawbridge would refuse this pod ({self.mode}): {text}" for text in done.refusals), *done.warnings),
            "would refuse",
            done,
            done.refusals,
        )

    def leave(self, done: Translation) -> Outcome:
        if not done.decisions and not done.warnings:
            return self.untouched()
        return self.allow_with(done.warnings, "left", done)

    def validate(self, impatient: Callable[[], bool] | None) -> Outcome:
        request = self.request
        if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
            return self.untouched("out of scope")
        try:
            self.object = reviews.read(request.object)
        except WireError as error:
            return self.unreadable(error)
        self.mode = self.find_mode()
        if self.mode is Mode.OFF:
            return self.untouched("off")
        try:
            found = inspect(request, self.object, self.state, impatient)
        except WireError as error:
            # The API server has read it, so the lack is ours, and no reason to turn anybody back.
            text = f"drawbridge cannot read this {request.kind.kind or 'object'}, and does not judge it: {error}"
            return self.allow_with((text,), "unreadable", problems=(text,))
        if found.denials and self.mode is Mode.ENFORCE:
            body = reviews.deny(
                request.uid,
                reviews.Status(message="; ".join(found.denials)),
                warnings=found.warnings,
                audit=self.audit(REFUSED),
            )
            return self.outcome(body, REFUSED, problems=found.denials)
        told = (*(f"drawbridge would refuse this ({self.mode}): {text}" for text in found.denials), *found.warnings)
        if not told:
            return self.untouched()
        return self.allow_with(told, "would refuse" if found.denials else "warned", problems=told)

    def find_mode(self) -> Mode:
        namespace = self.request.namespace
        labels = self.state.namespaces.get(namespace, {})
        return mode_of(self.state.configuration, labels, workload(namespace, mapping(self.object.get("metadata"))))

    def untouched(self, outcome: str = "untouched") -> Outcome:
        return self.outcome(reviews.allow(self.request.uid), outcome)

    def unreadable(self, error: WireError) -> Outcome:
        """No JSON object at all: nothing that an API server would ask about."""
        message = f"this is no {self.request.kind.kind or 'object'} that can be read: {error}"
        status = reviews.Status(code=400, reason="BadRequest", message=message)
        return self.outcome(reviews.deny(self.request.uid, status), "unreadable", problems=(message,))

    def allow_with(
        self, warnings: tuple[str, ...], outcome: str, done: Translation | None = None, problems: tuple[str, ...] = ()
    ) -> Outcome:
        told = warnings if self.mode.tells else ()
        body = reviews.allow(self.request.uid, warnings=told, audit=self.audit(outcome))
        return self.outcome(body, outcome, done, problems)

    def audit(self, outcome: str) -> dict[str, str]:
        """What the API server's audit log keeps beside the request."""
        return {"outcome": outcome, "mode": str(self.mode)}

    def outcome(
        self, body: bytes, outcome: str, done: Translation | None = None, problems: tuple[str, ...] = ()
    ) -> Outcome:
        request = self.request
        record = Record(
            path=self.name,
            uid=request.uid,
            outcome=outcome,
            mode=str(self.mode),
            operation=request.operation,
            object=self.named(),
            user=request.user_info.username,
            dry_run=bool(request.dry_run),
            decisions=done.decisions if done else (),
            templates=tuple(done.templates) if done else (),
            problems=problems,
        )
        return Outcome(body=body, record=record)

    def named(self) -> str:
        metadata = mapping(self.object.get("metadata"))
        name = self.request.name or metadata.get("name") or f"{metadata.get('generateName', '')}*"
        where = f"{self.request.namespace}/" if self.request.namespace else ""
        return f"{self.request.kind.kind}/{where}{name}"
