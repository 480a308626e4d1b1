"""The answer to a review that could not be decided in time: yes, unchanged, with a warning. Pure.

Nobody is turned back because we were slow. A pod that stays as it was meets the device plugin it was written for, or waits;
a claim that was not judged is judged by the scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.wire import WireError
from webhook import names
from webhook.admission import admission_review as reviews
from webhook.admission.decide import UNDECIDED, Outcome, Record
from webhook.state import mode_of, workload
from webhook.translate import clean

if TYPE_CHECKING:
    from dra.wire import Json
    from webhook.admission.admission_review import Request
    from webhook.state import State

_OURS = f"{names.DOMAIN}/".encode()


def undecided(path: str, body: bytes, why: str, state: State | None = None) -> Outcome:
    """Answer a review without having looked at its object; raise ReviewError if it is not a review.

    Only annotations that pass for ours are looked for, and taken off: who makes a pod slow to decide must not keep them.
    """
    request = reviews.decode(body)
    cleaning = _cleaning(path, request, state) if state is not None and _OURS in body else ()
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
    answer = reviews.allow(request.uid, operations=cleaning, warnings=(warning,), audit={"outcome": UNDECIDED})
    return Outcome(body=answer, record=record)


def _cleaning(path: str, request: Request, state: State) -> tuple[dict[str, Json], ...]:
    if path != "mutate" or request.operation != "CREATE":
        return ()
    if request.resource.resource != "pods":
        return ()
    namespace = request.namespace
    try:
        pod = reviews.read(request.object)
    except WireError:
        return ()
    metadata = pod.get("metadata")
    who = workload(namespace, metadata if isinstance(metadata, dict) else {})
    mode = mode_of(state, who)
    if not mode.tells:
        return ()
    return clean(pod, state, namespace=namespace)
