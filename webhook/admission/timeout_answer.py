"""The answer to a review that could not be decided in time: yes, unchanged, with a warning. Pure.

A slow webhook refuses nothing. A pod that stays unchanged gets its devices from the device plugin it was written for, or waits;
the scheduler judges a claim that was not judged here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.pointer import escape
from dra.wire import Wire
from webhook import names
from webhook.admission import admission_review as reviews
from webhook.admission.decide import OFF, OUT_OF_SCOPE, ObjectReview, Outcome, Ruling, answer, concerns_us, give_up
from webhook.claims import template
from webhook.state import Mode, mode_of, workload
from webhook.translate import is_genuine

if TYPE_CHECKING:
    from webhook.admission.admission_review import AdmissionRequest
    from webhook.state import State

_OURS = f"{names.DOMAIN}/".encode()


class _HeadLabels(Wire, frozen=True, kw_only=True):
    skip: str | None = msgspec.field(default=None, name=names.SKIP_LABEL)


class _HeadAnnotations(Wire, frozen=True, kw_only=True):
    original: str | None = msgspec.field(default=None, name=names.ORIGINAL)
    decision: str | None = msgspec.field(default=None, name=names.DECISION)
    devices: str | None = msgspec.field(default=None, name=names.DEVICES)
    templates: str | None = msgspec.field(default=None, name=names.TEMPLATES)


class _HeadMetadata(Wire, frozen=True, kw_only=True):
    name: str | None = None
    generate_name: str | None = None
    labels: _HeadLabels | None = None
    annotations: _HeadAnnotations | None = None


class _HeadSpec(Wire, frozen=True, kw_only=True):
    service_account_name: str | None = None


class _Head(Wire, frozen=True, kw_only=True):
    """The fields that say whether annotations are ours: other values are skipped, which takes milliseconds for 7 MiB instead of seconds."""

    metadata: _HeadMetadata | None = None
    spec: _HeadSpec | None = None


_head = msgspec.json.Decoder(_Head)


def answer_timeout(path: str, body: bytes, state: State) -> Outcome:
    """Answer a review that took too long; raise ReviewError if it is not a review.

    The object is not read, since that could not be interrupted. Only forged annotations of drawbridge are looked for and removed: a
    pod that is made slow to decide must not keep them. The pod's controller is not known to a canary, which makes no difference here.
    """
    request = reviews.decode(body)
    question = ObjectReview(path, request, {})
    if not concerns_us(path, request):
        ruling = Ruling(outcome=OUT_OF_SCOPE)
        return answer(question, ruling, Mode.OFF)
    owner = workload(request.namespace, {})
    mode = mode_of(state, owner)
    if mode is Mode.OFF:
        return answer(question, Ruling(outcome=OFF), mode)
    ruling = give_up(question, state)
    if path == "mutate" and request.operation == "CREATE" and _OURS in body:
        cleaning = tuple(
            [{"op": "remove", "path": f"/metadata/annotations/{escape(name)}"} for name in _forged(request, state)]
        )
        ruling = replace(ruling, operations=cleaning, restoring=cleaning)
    return answer(question, ruling, mode)


def _forged(request: AdmissionRequest, state: State) -> tuple[str, ...]:
    """Name the annotations that pass for ours and are not."""
    try:
        head = _head.decode(request.object)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ()  # no API server stores it
    metadata = head.metadata or _HeadMetadata()
    if metadata.labels and metadata.labels.skip == "true":
        return ()
    written = metadata.annotations or _HeadAnnotations()
    found = {
        names.ORIGINAL: written.original,
        names.DECISION: written.decision,
        names.DEVICES: written.devices,
        names.TEMPLATES: written.templates,
    }
    annotations = {name: text for name, text in found.items() if text is not None}
    spec = head.spec or _HeadSpec()
    bearer = template.SealedPod(
        namespace=request.namespace,
        name=metadata.generate_name or metadata.name or "",
        account=spec.service_account_name or "",
        original=written.original or "",
    )
    return () if is_genuine(annotations, bearer, state.keys) else tuple(annotations)
