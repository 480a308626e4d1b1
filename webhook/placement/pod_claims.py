"""Lists the claims of a pod: its own, those of its translation, and the one that its scheduler creates for extended resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator import pods
from dra import server, wire
from dra.objects import (
    ExtendedClaim,
    ObjectMeta,
    Pod,
    ResourceClaim,
    ResourceClaimSpec,
    claim_spec,
    extended_claim,
    requests_of,
)
from dra.policy import tolerate_fence
from dra.raw import inside, items
from dra.wire import WireError
from webhook import names
from webhook.claims import template_lifecycle
from webhook.translate import PodClaim, apply_own, find_names, is_skipped

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from dra.wire import Json
    from webhook.state import State
    from webhook.translate import Operation

EXTENDED = "extended-resources"
DEFAULT_SCHEDULER = "default-scheduler"
_SCHEDULER = "/spec/schedulerName"


def own_claims(pod: dict[str, Json], added: Iterable[PodClaim]) -> tuple[PodClaim, ...]:
    """Return the claims in a pod's spec; `added` are the claims that drawbridge adds, some of which may be in the spec already."""
    added_by_name = {claim.name: claim for claim in added}
    claims: list[PodClaim] = []
    for entry in items(inside(pod, "spec"), "resourceClaims"):
        name = str(entry.get("name", ""))
        template_name = str(entry.get("resourceClaimTemplateName") or "")
        claim_name = str(entry.get("resourceClaimName") or "")
        claims.append(added_by_name.get(name) or PodClaim(name, template=template_name, claim=claim_name))
    return tuple(claims)


def all_claims(pod: dict[str, Json], added: Iterable[PodClaim]) -> tuple[PodClaim, ...]:
    """Return the claims in a pod's spec, then the claims that its translation adds (`added`)."""
    added = tuple(added)
    if not inside(pod, "spec").get("resourceClaims"):
        return added
    claims = own_claims(pod, added)
    names_in_spec = {claim.name for claim in claims}
    return (*claims, *[claim for claim in added if claim.name not in names_in_spec])


def extended_claims(
    pod: dict[str, Json],
    state: State,
    operations: Iterable[Operation] = (),
    replaced: Container[tuple[str, str]] = (),
) -> tuple[PodClaim, ...]:
    """Return the claim that the scheduler will create for the extended resources that DeviceClasses serve; () if it will create none.

    `operations` are the webhook's changes to the pod; `replaced` are the containers and keys that they remove. The claim is judged like a claim
    in the pod's spec. On a node whose device plugin offers the resource, the scheduler creates no claim, so there is no warning if such a node
    can serve all extended resources.
    """
    class_names = state.fleet.extended
    requested = find_names(pod, class_names, replaced) if class_names else set()
    if not requested or state.stock is None or not state.features.enabled(server.EXTENDED) or is_skipped(pod):
        return ()
    changes = tuple(
        [
            operation
            for operation in operations
            if "/resources" in str(operation["path"]) or operation["path"] == _SCHEDULER
        ]
    )
    try:
        typed = wire.convert(apply_own(pod, changes) if changes else pod, Pod)
    except WireError:
        return ()
    name = typed.spec.scheduler_name or DEFAULT_SCHEDULER
    scheduler = state.configuration.schedulers.get(name)
    if typed.spec.node_name or scheduler is None or not scheduler.like_cluster:
        return ()
    classes = {key: kind for key in requested if (kind := class_names[key]) in state.stock.classes}
    extended = extended_claim(typed, classes)
    if extended is None:
        return ()
    bridge = state.configuration.file.bridge
    spec = (
        tolerate_fence(extended.claim).spec
        if bridge is not None and name == bridge.scheduler_name
        else extended.claim.spec
    )
    by_name = pods.requests_by_name(typed, classes)
    requesting = [
        (container.name, key)
        for container in typed.spec.all_containers
        for key in by_name
        if requests_of(container).get(key)
    ]
    return (
        PodClaim(
            EXTENDED,
            {"spec": wire.builtins(spec)},
            users=tuple(dict.fromkeys([container for container, _ in requesting])),
            amounts={key: str(amount // 10**9) for key, amount in by_name.items()},
            extended_resources=by_name,
            requesters=_requesters(extended),
            requested_names=tuple(requesting),
            scheduler=name,
            pod=typed,
        ),
    )


def _requesters(extended: ExtendedClaim) -> dict[str, str]:
    """Map each request of a claim for extended resources to the first container that needs it."""
    counts = {
        request.name: request.exactly.count
        for request in extended.claim.spec.devices.requests
        if request.exactly is not None
    }
    requesters: dict[str, str] = {}
    for mapped in extended.mappings:
        requester = f"container {mapped.container_name} ({mapped.resource_name}: {counts[mapped.request_name]})"
        requesters.setdefault(mapped.request_name, requester)
    return requesters


def find_claim(pod_claim: PodClaim, namespace: str, state: State) -> ResourceClaim | str | None:
    """Return the claim to judge, or a warning that the claim or its template is missing. None if it is allocated, or if nothing was read yet."""
    # A claim from a template gets no namespace, so that equal pods of all namespaces share one cached judgement.
    if pod_claim.spec is not None:
        return ResourceClaim(
            metadata=ObjectMeta(name=pod_claim.name), spec=template_lifecycle.read_claim_spec(pod_claim.spec)
        )
    spec = state.templates.get((namespace, pod_claim.template))
    if spec is not None:
        return make_claim(spec, "", pod_claim.name)
    if state.stock is None:
        return None
    existing = state.stock.claims.get(f"{namespace}/{pod_claim.claim}")
    if existing is not None:
        return existing if existing.status.allocation is None else None
    kind = "ResourceClaimTemplate" if pod_claim.template else "ResourceClaim"
    problem = "does not exist yet: the pod waits until it does"
    if template_lifecycle.is_our_name(pod_claim.template):
        problem = f"{template_lifecycle.COPY}: use its original manifest, or replace the claims with the requests in {names.ORIGINAL}"
    if kind in state.incomplete:
        problem = "could not be read, and was not checked"
    return f"{kind} {pod_claim.template or pod_claim.claim} {problem}"


def make_claim(spec: ResourceClaimSpec, namespace: str, name: str) -> ResourceClaim:
    return ResourceClaim(metadata=ObjectMeta(namespace=namespace, name=name), spec=claim_spec(spec))
