"""Decodes and encodes AdmissionReview v1. It decides nothing.

A body that is not a valid review raises `ReviewError` with the HTTP status of the answer. The object in a review stays raw JSON, because a pod
is never serialised again (docs/architecture.md, "Patches, not objects"). The types mirror k8s.io/api/admission/v1. The checks mirror
apiserver/pkg/admission/plugin/webhook/request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypedDict, cast

import msgspec
from msgspec import UNSET

from dra import wire
from dra.finding import Finding
from dra.wire import Json, Wire
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.refusals import Warned

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

# If all warnings together exceed 4096 characters, an API server cuts each warning to 256 (apiserver/pkg/endpoints/filters/warning.go).
# `shorten` prevents that: it shortens each long warning at the end of a word.
MAX_WARNING = 250
_MORE = "…".encode()
MAX_WARNINGS = 5

_NULL = msgspec.Raw(b"null")


class ReviewError(ValueError):
    """The body is not an AdmissionReview that can be answered. `status` is the HTTP status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class GroupVersionKind(Wire, frozen=True, kw_only=True):
    group: str = ""
    version: str = ""
    kind: str = ""


class GroupVersionResource(Wire, frozen=True, kw_only=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class UserInfo(Wire, frozen=True, kw_only=True):
    username: str = ""


class AdmissionRequest(Wire, frozen=True, kw_only=True):
    """The request of a review. Objects stay raw until they are needed."""

    uid: str = ""
    kind: GroupVersionKind = GroupVersionKind()
    resource: GroupVersionResource = GroupVersionResource()
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str = ""
    dry_run: bool | None = None
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL


class Review(Wire, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    request: AdmissionRequest | None = None


class DenialStatus(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """The part of metav1.Status that a refused user reads."""

    code: int = 403
    reason: str = "Forbidden"
    message: str = ""


class Response(Wire, frozen=True, kw_only=True, omit_defaults=True):
    uid: str
    allowed: bool
    patch_type: str | None = None
    patch: bytes | None = None  # base64 in JSON, as Go encodes bytes
    status: DenialStatus | None = None
    warnings: tuple[str, ...] = ()
    audit_annotations: dict[str, str] = {}


class _AnsweredReview(Wire, frozen=True, kw_only=True, omit_defaults=False):
    response: Response
    api_version: str = API_VERSION
    kind: str = KIND


_Opaque: TypeAlias = msgspec.Raw | msgspec.UnsetType


class _Parts(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Fields of an object that are decoded. All others are skipped."""


class _VariableParts(_Parts):
    name: str | msgspec.UnsetType = UNSET
    value: str | msgspec.UnsetType = UNSET
    value_from: _Opaque = UNSET


class _VolumeParts(_Parts):
    host_path: _Opaque = UNSET


class ResourceParts(_Parts):
    limits: dict[str, msgspec.Raw] | msgspec.UnsetType = UNSET
    requests: dict[str, msgspec.Raw] | msgspec.UnsetType = UNSET
    claims: _Opaque = UNSET


class _ContainerParts(_Parts):
    env: list[_VariableParts] | msgspec.UnsetType = UNSET
    name: _Opaque = UNSET
    resources: ResourceParts | msgspec.UnsetType = UNSET
    restart_policy: _Opaque = UNSET
    security_context: _Opaque = UNSET


class _SpecParts(_Parts):
    affinity: _Opaque = UNSET
    containers: list[_ContainerParts] | msgspec.UnsetType = UNSET
    host_network: _Opaque = UNSET
    init_containers: list[_ContainerParts] | msgspec.UnsetType = UNSET
    node_name: _Opaque = UNSET
    node_selector: _Opaque = UNSET
    os: _Opaque = UNSET
    priority_class_name: _Opaque = UNSET
    resource_claims: _Opaque = UNSET
    resources: _Opaque = UNSET
    scheduler_name: _Opaque = UNSET
    service_account_name: _Opaque = UNSET
    tolerations: _Opaque = UNSET
    volumes: list[_VolumeParts] | msgspec.UnsetType = UNSET


class _MetadataParts(TypedDict, total=False):
    annotations: dict[str, str]
    generateName: str
    labels: dict[str, str]
    name: str
    ownerReferences: Json


class PodParts(_Parts):
    """The fields of a pod that are decoded; mounts, probes, ports and most of the volumes are skipped. Values of the spec stay raw."""

    metadata: _MetadataParts | msgspec.UnsetType = UNSET
    spec: _SpecParts | msgspec.UnsetType = UNSET


class _PodAdmissionRequest(AdmissionRequest, frozen=True, kw_only=True):
    object: PodParts  # type: ignore[assignment]


class _PodReview(Review, frozen=True, kw_only=True):
    request: _PodAdmissionRequest | None = None


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


class _PodHead(Wire, frozen=True, kw_only=True):
    """The fields that prove whether drawbridge wrote the annotations. All others are skipped, so a pod of 7 MiB takes milliseconds, not seconds."""

    metadata: _HeadMetadata | None = None
    spec: _HeadSpec | None = None


class _HeadAdmissionRequest(AdmissionRequest, frozen=True, kw_only=True):
    object: _PodHead | None = None  # type: ignore[assignment]


class _HeadReview(Review, frozen=True, kw_only=True):
    request: _HeadAdmissionRequest | None = None


_pod_review = msgspec.json.Decoder(_PodReview)
_head_review = msgspec.json.Decoder(_HeadReview)
_review = msgspec.json.Decoder(Review)
_encoder = msgspec.json.Encoder()


def decode(body: bytes) -> AdmissionRequest:
    """Return the request of an AdmissionReview. Raises ReviewError if the body is not a valid review."""
    try:
        review = _review.decode(body)
    except msgspec.ValidationError as error:
        raise ReviewError(400, f"this is not an {KIND}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReviewError(400, f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise ReviewError(400, "the body is nested deeper than any Kubernetes object") from error
    return _request(review)


def decode_pod(body: bytes) -> tuple[AdmissionRequest, PodParts | None]:
    """Decode a review, and those fields of its pod that decisions read. The pod is None if a field has an unexpected type."""
    try:
        review = _pod_review.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return decode(body), None
    request = _request(review)
    return request, cast("PodParts", request.object)


def decode_head(body: bytes) -> tuple[AdmissionRequest, Json]:
    """Decode a review, and the fields of `_PodHead`. The pod is {} if a field has an unexpected type."""
    try:
        review = _head_review.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return decode(body), {}  # not a pod that an API server would store
    request = _request(review)
    return request, wire.builtins(request.object)


def _request(review: Review) -> AdmissionRequest:
    if review.kind != KIND or not review.api_version.startswith("admission.k8s.io/"):
        raise ReviewError(400, f"expected {API_VERSION} {KIND}, got {review.api_version or '?'} {review.kind or '?'}")
    if review.api_version != API_VERSION:
        raise ReviewError(
            400,
            f"{review.api_version} is not supported: set admissionReviewVersions: [v1] in the webhook configuration",
        )
    if review.request is None or not review.request.uid:
        raise ReviewError(400, f"the {KIND} has no request.uid, so it cannot be answered")
    return review.request


def whole(parts: PodParts) -> dict[str, Json]:
    """Decode the parts of a pod as plain JSON; raise WireError if they are malformed."""
    return read(_encoder.encode(parts))


def read(raw: msgspec.Raw | bytes) -> dict[str, Json]:
    """Decode the object of a review as plain JSON; raise WireError if it is not a JSON object."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise wire.WireError(f"not readable: {error}", "/request/object") from error
    if not isinstance(value, dict):
        raise wire.WireError(f"expected an object, got {type(value).__name__}", "/request/object")
    return value


def allow(
    uid: str, *, operations: Sequence[Json] = (), warnings: Sequence[Warned] = (), audit: dict[str, str] | None = None
) -> Response:
    return Response(
        uid=uid,
        allowed=True,
        patch_type="JSONPatch" if operations else None,
        patch=_encoder.encode(operations) if operations else None,
        warnings=shorten(warnings) if warnings else (),
        audit_annotations=audit or {},
    )


def deny(
    uid: str, status: DenialStatus, *, warnings: Sequence[Warned] = (), audit: dict[str, str] | None = None
) -> Response:
    return Response(uid=uid, allowed=False, status=status, warnings=shorten(warnings), audit_annotations=audit or {})


def encode(response: Response) -> bytes:
    return _encoder.encode(_AnsweredReview(response=response))


def shorten(warnings: Sequence[Warned]) -> tuple[str, ...]:
    """Return at most MAX_WARNINGS distinct short warnings. If some are left out, the last one says how many."""
    if not warnings:
        return ()
    distinct = list(dict.fromkeys(_one_line(text) for text in warnings))
    if len(distinct) <= MAX_WARNINGS:
        return tuple(distinct)
    shown = distinct[: MAX_WARNINGS - 1]
    more = len(distinct) - len(shown)
    return (*shown, f"drawbridge: {more} more warnings; `drawbridge translate -f` prints all of them")


def _one_line(warning: Warned) -> str:
    # A Warning is an HTTP header: control characters would make the API server drop it.
    printable = "".join(c if c.isprintable() else " " for c in str(warning))
    line = " ".join(printable.split())
    encoded = line.encode()
    if len(encoded) <= MAX_WARNING:
        return line
    # Keep the code of the finding, so that the author can look up what is cut.
    code = f" [{warning.code}]" if isinstance(warning, Finding) else ""
    max_bytes = MAX_WARNING - len(_MORE) - len(code)
    shortened = encoded[:max_bytes].decode(errors="ignore")
    words = shortened.rsplit(" ", 1)[0]
    return f"{words}…{code}"
