"""The answer to a review that could not be decided in time: yes, unchanged, with a warning. Pure.

Nobody is turned back because we were slow. A pod that stays as it was meets the device plugin it was written for, or waits;
a claim that was not judged is judged by the scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dra.wire import WireError
from webhook import names
from webhook.admission import admission_review as reviews
from webhook.admission.decide import OFF, OUT_OF_SCOPE, Outcome, Question, Ruling, answer, concerns_us, give_up
from webhook.state import Mode, mode_of, workload
from webhook.translate import mapping

if TYPE_CHECKING:
    from dra.wire import Json
    from webhook.admission.admission_review import Request
    from webhook.state import State

_OURS = f"{names.DOMAIN}/".encode()


def answer_late(path: str, body: bytes, why: str, state: State) -> Outcome:
    """Answer a review that took too long; raise ReviewError if it is not a review.

    The object is read only where it may carry annotations that pass for ours, to take them off: a pod that is made slow to
    decide must not keep them. Where it is not read, a canary cannot tell whose pod it is, which makes no difference here.
    """
    request = reviews.decode(body)
    if not concerns_us(path, request):
        question = Question(path, request, {})
        ruling = Ruling(outcome=OUT_OF_SCOPE)
        return answer(question, ruling, Mode.OFF)
    read = _read(request) if _OURS in body else {}
    question = Question(path, request, read)
    metadata = mapping(read.get("metadata"))
    who = workload(request.namespace, metadata)
    mode = mode_of(state, who)
    if mode is Mode.OFF:
        return answer(question, Ruling(outcome=OFF), mode)
    ruling = give_up(question, state, why)
    return answer(question, ruling, mode)


def _read(request: Request) -> dict[str, Json]:
    try:
        return reviews.read(request.object)
    except WireError:
        return {}
