"""The decisions of kube-controller-manager's resourceclaim controller (pkg/controller/resourceclaim), as values.

It creates claims from templates, adds bound pods to their claims' reservedFor, removes deleted and finished pods, deallocates claims without
pods, and deletes the claims of finished pods. It never chooses devices. `cluster.controllers.claim_controller` executes the decisions on the
embedded store; a real cluster has its own controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from cluster.patch import Apply, Merge, Operations
from dra.objects import POD_CLAIM_NAME, claim_name, is_reserved_for, owning_pods

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cluster.resources import Key, Raw
    from dra.objects import Pod, ResourceClaim, ResourceClaimConsumerReference

FINALIZER = "resource.kubernetes.io/delete-protection"
MANAGER = "ResourceClaimController"
# Leaves room for a hyphen and five random characters in 63.
_LONGEST_BASE = 57


class Create(msgspec.Struct, frozen=True):
    """Create a claim from a template for an entry of a pod's resourceClaims."""

    entry: str
    template: str


class RecordNames(msgspec.Struct, frozen=True):
    """Write the names of a pod's generated claims into its status."""

    pod: str
    patch: Apply


class Write(msgspec.Struct, frozen=True):
    """Patch a claim or its status. If it `frees` the devices, the finalizer is removed next."""

    claim: str
    patch: Merge | Operations
    subresource: str = ""
    frees: bool = False


class Delete(msgspec.Struct, frozen=True):
    """Delete a claim that no pod will use any longer."""

    claim: str
    uid: str


Action = Create | RecordNames | Write | Delete


def generated_for(claim: ResourceClaim, pod: Pod, entry: str) -> bool:
    """Report whether a claim was created for this entry of this pod."""
    is_owned = any(owner.uid == pod.metadata.uid for owner in owning_pods(claim))
    return is_owned and claim.metadata.annotations.get(POD_CLAIM_NAME) == entry


def actions_for_pod(pod: Pod, claims: Collection[ResourceClaim]) -> list[Action]:
    """Return the actions for a pod, given the claims of its namespace."""
    if pod.is_done or pod.metadata.deletion_timestamp:
        return []
    claims_by_name = {claim.metadata.name: claim for claim in claims}
    creates: list[Action] = []
    names_by_entry: dict[str, str | None] = {}
    for entry in pod.spec.resource_claims:
        if not entry.resource_claim_template_name:
            continue
        # The name of the entry's claim from the pod's status, or else from the claim that the pod owns. "" means that no claim exists, None
        # that the entry needs no claim.
        name = claim_name(pod, entry)
        if name is not None and name not in claims_by_name:
            name = next((claim.metadata.name for claim in claims if generated_for(claim, pod, entry.name)), "")
        if name == "":
            creates.append(Create(entry.name, entry.resource_claim_template_name))
        else:
            names_by_entry[entry.name] = name
    if creates:
        return creates
    recorded_names = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    if names_by_entry and names_by_entry != recorded_names:
        return [RecordNames(pod.metadata.name, _statuses(pod, names_by_entry))]
    # Reserve allocated claims for a bound pod, whichever scheduler bound it.
    actions: list[Action] = []
    for entry in pod.spec.resource_claims if pod.spec.node_name else ():
        name = entry.resource_claim_name or names_by_entry.get(entry.name)
        claim = claims_by_name.get(name) if name else None
        if claim is None or claim.status.allocation is None:
            continue
        if not is_reserved_for(claim, pod.metadata.uid):
            entries: list[Raw] = [_plain(consumer) for consumer in claim.status.reserved_for]
            entries.append({"resource": "pods", "name": pod.metadata.name, "uid": pod.metadata.uid})
            actions.append(_write_status(claim, {"reservedFor": entries}))
    return actions


def _statuses(pod: Pod, names: dict[str, str | None]) -> Apply:
    entries = [{"name": entry} | ({"resourceClaimName": name} if name else {}) for entry, name in names.items()]
    metadata = {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"resourceClaimStatuses": entries}}
    return Apply(body, MANAGER)


def _write_status(claim: ResourceClaim, status: Raw) -> Write:
    change = Merge({"metadata": _preconditions(claim), "status": status})
    return Write(claim.metadata.name, change, "status")


def actions_for_claim(claim: ResourceClaim, pod_of: Callable[[str], Pod | None]) -> list[Action]:
    """Return the next actions for a claim, given the pods of its namespace by name."""
    meta = claim.metadata
    reserved = claim.status.reserved_for
    allocated = claim.status.allocation is not None
    valid: list[ResourceClaimConsumerReference] = []
    for consumer in reserved:
        pod = pod_of(consumer.name) if consumer.is_pod else None
        if not consumer.is_pod or (pod is not None and pod.metadata.uid == consumer.uid and not pod.is_done):
            valid.append(consumer)  # consumers other than pods are kept
    has_finalizer = FINALIZER in meta.finalizers
    was_used = bool(reserved) or bool(meta.deletion_timestamp)
    is_freed = has_finalizer and not valid and was_used
    if len(valid) < len(reserved) or (is_freed and allocated):
        status: Raw = {"reservedFor": [_plain(consumer) for consumer in valid] or None}
        if is_freed:
            # The devices' statuses are removed with the allocation.
            status["allocation"] = None
            status["devices"] = None
        return [replace(_write_status(claim, status), frees=is_freed)]
    if reserved:
        return []
    if is_freed:
        return [unprotect(claim)]
    if not meta.deletion_timestamp and _owner_done(claim, pod_of):
        return [Delete(meta.name, meta.uid)]
    return []


def unprotect(claim: ResourceClaim) -> Write:
    """Remove the finalizer from a claim without devices.

    Call this only after a deallocation or for a deleted claim: an allocator adds the finalizer first, and the devices afterwards.
    """
    finalizers = [finalizer for finalizer in claim.metadata.finalizers if finalizer != FINALIZER]
    metadata: Raw = {**_preconditions(claim), "finalizers": finalizers or None}
    return Write(claim.metadata.name, Merge({"metadata": metadata}))


def _owner_done(claim: ResourceClaim, pod_of: Callable[[str], Pod | None]) -> bool:
    """Report whether the pod that a claim was created for has finished. A deleted pod's claims are garbage-collected."""
    owners = [(owner.uid, pod_of(owner.name)) for owner in owning_pods(claim)]
    return any(pod is not None and pod.metadata.uid == uid and pod.is_done for uid, pod in owners)


def _preconditions(claim: ResourceClaim) -> Raw:
    """Return metadata with which a patch fails if the claim has changed."""
    return {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resource_version}


def _plain(consumer: ResourceClaimConsumerReference) -> Raw:
    group = {"apiGroup": consumer.api_group} if consumer.api_group else {}
    return group | {"resource": consumer.resource, "name": consumer.name, "uid": consumer.uid}


def claim_from(template: Raw, pod: Pod, entry: str) -> Raw:
    """Return the claim for an entry of a pod. The template is plain JSON, so that no field of its spec is lost."""
    template_spec: Raw = template.get("spec") or {}
    claim_metadata: Raw = template_spec.get("metadata") or {}
    owner: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod.metadata.name,
        "uid": pod.metadata.uid,
        "controller": True,
    }
    metadata = {
        "generateName": generate_name(pod.metadata.name, entry),
        "namespace": pod.metadata.namespace,
        "annotations": {**(claim_metadata.get("annotations") or {}), POD_CLAIM_NAME: entry},
        "ownerReferences": [owner],
    }
    if claim_metadata.get("labels"):
        metadata["labels"] = claim_metadata["labels"]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": template_spec.get("spec") or {},
    }


def generate_name(pod: str, entry: str) -> str:
    """Return `<pod>-<entry>-`. If that is too long, both names are shortened in proportion."""
    base = f"{pod}-{entry}"
    if len(base) > _LONGEST_BASE:
        base = f"{pod[: len(pod) * _LONGEST_BASE // len(base)]}-{entry[: len(entry) * _LONGEST_BASE // len(base)]}"
    return f"{base}-"


def templates_of(pod: Pod) -> set[Key]:
    """Return the keys of the templates that a pod names."""
    named = (entry.resource_claim_template_name for entry in pod.spec.resource_claims)
    return {(pod.metadata.namespace, name) for name in named if name}
