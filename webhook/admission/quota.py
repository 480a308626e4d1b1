"""Decodes and answers the reviews of `/quota`. The allocator's function `admit` counts the claims of the new object (`allocator.quota`).

A pod's claims will be created from templates. The specs of drawbridge's templates are in an annotation of the pod; a spec counts only if the
template's name is the spec's hash. The allocator looks up all other templates. A ResourceClaim counts by its own spec. Other objects are
allowed, because quotas do not count them.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from allocator.quota import FutureClaim, NewObject, entry_of
from dra.objects import Pod, ResourceClaim, ResourceClaimTemplateSpec, asks_by_name, claim_spec
from dra.wire import WireError, convert
from webhook import names
from webhook.admission import admission_review
from webhook.admission.admission_review import AdmissionRequest, DenialStatus
from webhook.claims import template

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra.objects import ResourceClaimSpec

    Admit = Callable[[NewObject], str]  # returns why the object exceeds a quota, "" if it exceeds none

REASON = "QuotaExceeded"


def review_quota(body: bytes, admit: Admit) -> bytes:
    """Return the answer to a review. Raises ReviewError if the body is not a review."""
    request = admission_review.decode(body)
    try:
        new = new_object_of(request)
    except WireError as error:
        warnings = [f"drawbridge counts this object for no quota: {error}"]
        return admission_review.encode(admission_review.allow(request.uid, warnings=warnings))
    why_not = admit(new) if new is not None and (new.claims or new.pod is not None) else ""
    answer = admission_review.allow(request.uid)
    if why_not:
        answer = admission_review.deny(request.uid, DenialStatus(code=403, reason=REASON, message=why_not))
    return admission_review.encode(answer)


def new_object_of(request: AdmissionRequest) -> NewObject | None:
    """Return the object that a review creates; None if quotas do not count it."""
    if request.operation != "CREATE" or request.sub_resource:
        return None
    match request.kind.group, request.kind.kind:
        case "", "Pod":
            pod = convert(admission_review.read(request.object), Pod)
            return NewObject(
                # An API server sets the uid before the review. Without one, the uid of the review identifies the object.
                pod.metadata.uid or request.uid,
                request.namespace,
                pod.metadata.name or pod.metadata.generate_name,
                pod.spec.priority_class_name,
                future_claims_of_pod(pod),
                dry_run=bool(request.dry_run),
                pod=pod if asks_by_name(pod) else None,
            )
        case "resource.k8s.io", "ResourceClaim":
            claim = convert(admission_review.read(request.object), ResourceClaim)
            return NewObject(
                claim.metadata.uid or request.uid,
                request.namespace,
                claim.metadata.name or claim.metadata.generate_name,
                claims={"": FutureClaim(spec=claim_spec(claim.spec))},
                dry_run=bool(request.dry_run),
                entry=entry_of(claim),
            )
    return None


def future_claims_of_pod(pod: Pod) -> dict[str, FutureClaim]:
    """Return the claims that Kubernetes will create from templates for a pod, by the name of the pod's entry."""
    templates = {
        entry.name: entry.resource_claim_template_name
        for entry in pod.spec.resource_claims
        if entry.resource_claim_template_name
    }
    if not templates:
        return {}
    # The specs in the pod's annotation. Its signature is not verified, but the name of each template must be the hash of its spec.
    annotated_specs: dict[str, ResourceClaimSpec] = {}
    for name, spec in template.read_unproven(pod.metadata.annotations.get(names.TEMPLATES, "")).items():
        with suppress(WireError):
            annotated_specs[name] = claim_spec(convert(spec, ResourceClaimTemplateSpec).spec)
    return {entry: FutureClaim(name, annotated_specs.get(name)) for entry, name in templates.items()}
