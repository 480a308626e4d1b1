"""The answer to a review that could not be decided in time: yes, unchanged, with a warning. Pure.

Nobody is turned back because we were slow. A pod that stays as it was meets the device plugin it was written for, or waits;
a claim that was not judged is judged by the scheduler.
"""

from __future__ import annotations

from webhook.admission import admission_review as reviews
from webhook.admission.decide import Outcome, Record

UNDECIDED = "undecided"


def undecided(path: str, body: bytes, why: str) -> Outcome:
    """Answer a review without having looked at its object; raise ReviewError if it is not a review."""
    request = reviews.decode(body)
    where = f"{request.namespace}/" if request.namespace else ""
    said = "left this pod as it is" if path == "mutate" else f"did not judge this {request.kind.kind or 'object'}"
    warning = f"drawbridge {said}: {why}"
    record = Record(
        path=path,
        uid=request.uid,
        outcome=UNDECIDED,
        operation=request.operation,
        object=f"{request.kind.kind}/{where}{request.name}",
        user=request.user_info.username,
        dry_run=bool(request.dry_run),
        problems=(why,),
    )
    return Outcome(body=reviews.allow(request.uid, warnings=(warning,), audit={"outcome": UNDECIDED}), record=record)
