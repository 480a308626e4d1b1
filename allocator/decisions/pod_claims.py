"""The claims of a pod, or a message about an object that is still missing.

Mirrors PreEnqueue and PreFilter of the in-tree plugin (pkg/scheduler/framework/plugins/dynamicresources): every claim exists, is not
being deleted, belongs to the pod if it was created from a template, and names classes that exist.

A pod that requests an extended resource of a DeviceClass (KEP-5004) gets one more claim, which the pod's scheduler creates. On a node
whose device plugin offers the resource, the plugin serves the pod, which then needs no such claim.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.pods import (
    claim_obstacle,
    claims_by_entry,
    lacks_class,
    missing_classes,
    plugin_may_serve,
    plugin_offers,
    reaches,
    requests,
)
from dra import server
from dra.objects import (
    IMPLICIT,
    ExtendedClaim,
    ResourceClaim,
    asks_by_name,
    extended_claim,
    is_extended,
    is_reserved_for,
    mapped_resources,
    requests_of,
    served_resources,
)
from dra.reason import Actor, Reason

if TYPE_CHECKING:
    from dra.objects import Node, Pod
    from dra.stock import Stock

MAX_CONSUMERS = 256  # the API server accepts no more entries in reservedFor
GROUP = "PodGroup"


class PodClaims(msgspec.Struct, frozen=True):
    """The claims of a pod, in the order of its spec. `waits_for` is the reason why the pod cannot use one yet."""

    claims: tuple[ResourceClaim, ...] = ()
    # The pod's extended resources that the last of `claims` requests.
    by_claim: tuple[str, ...] = ()
    # Extended resources that a DeviceClass serves and that the existing claim does not request: the class appeared after the claim.
    uncovered: tuple[str, ...] = ()
    uncreated: ExtendedClaim | None = None  # the claim for these resources if it does not exist yet
    waits_for: Reason | None = None

    @property
    def open(self) -> tuple[ResourceClaim, ...]:
        """The unallocated claims."""
        return tuple(claim for claim in self.claims if claim.status.allocation is None)

    @property
    def want_devices(self) -> bool:
        """Whether the pod requests devices at all."""
        return bool(self.claims) or self.waits_for is not None

    def without_uncreated(self) -> PodClaims:
        """Return the claims without the claim that does not exist yet. A node whose device plugins offer the resources needs none."""
        return self if self.uncreated is None else PodClaims(self.claims[:-1], waits_for=self.waits_for)


def find_claims(pod: Pod, stock: Stock) -> PodClaims:
    claims: dict[str, ResourceClaim] = {}
    for entry, claim in claims_by_entry(pod, stock.claims):
        if claim is None:
            waits_for = Reason(text=f"waiting for claim {entry.name} to be created", actor=Actor.CLAIMS)
            return PodClaims(tuple(claims.values()), waits_for=waits_for)
        if unusable := _why_unusable(pod, claim, stock, from_template=bool(entry.resource_claim_template_name)):
            return PodClaims(tuple(claims.values()), waits_for=unusable)
        claims[claim.metadata.name] = claim
    existing = tuple(claims.values())
    return _add_extended(pod, existing, stock) if asks_by_name(pod) else PodClaims(existing)


def claims_on(pod: Pod, node: str, stock: Stock) -> PodClaims | str:
    """Return the claims that a pod needs on one node, or a message why the pod cannot use the node, whatever devices are free there."""
    pod_claims = find_claims(pod, stock)
    if pod_claims.waits_for is not None:
        return str(pod_claims.waits_for)
    node_object = stock.nodes.get(node)
    if node_object is None:
        return f"node {node} does not exist"
    if pod_claims.uncreated is not None and all(plugin_offers(node_object, name) for name in pod_claims.by_claim):
        pod_claims = pod_claims.without_uncreated()
    return node_obstacle(pod_claims, node_object) or pod_claims


def _add_extended(pod: Pod, claims: tuple[ResourceClaim, ...], stock: Stock) -> PodClaims:
    """Add the claim for the pod's extended resources to the pod's other claims."""
    serving = stock.serving()
    names = tuple(served_resources(pod, serving))
    amounts = [amount for container in pod.spec.all_containers for amount in requests_of(container).items()]
    unserved = sorted({name for name, amount in amounts if amount.nano} - serving.keys())
    for name in unserved:
        class_name = name.removeprefix(IMPLICIT)
        if name.startswith(IMPLICIT) and class_name not in stock.classes and stock.reading.enabled(server.EXTENDED):
            return PodClaims(claims, waits_for=lacks_class(f"pod {pod.metadata.name}", class_name, stock))
    status_entry = pod.status.extended_resource_claim_status
    if status_entry is not None:
        claim = stock.claims.get(f"{pod.metadata.namespace or 'default'}/{status_entry.resource_claim_name}")
        if claim is not None:
            unusable = _why_unusable(pod, claim, stock, from_template=True)
            covered = mapped_resources(pod)
            return PodClaims(
                claims if unusable else (*claims, claim),
                by_claim=tuple(sorted(covered)),
                uncovered=tuple(name for name in names if name not in covered),
                waits_for=unusable,
            )
    new_claim = extended_claim(pod, serving)
    if new_claim is None:
        return PodClaims(claims)
    for name in filter(is_extended, unserved):
        # A claim is immutable, so it is created once the pod's resources are all served.
        if not any(plugin_offers(node, name) for node in stock.nodes.values()):
            text = f"no DeviceClass serves {name}, and no node has a device plugin for it"
            return PodClaims(claims, waits_for=Reason(text=text, actor=Actor.USER, causes=(name,)))
    # A name derived from the pod replaces the generated name.
    digest = sha256(pod.metadata.uid.encode()).hexdigest()[:10]
    name = f"{pod.metadata.name[:200].rstrip('-.')}-extended-resources-{digest}"
    metadata = replace(new_claim.claim.metadata, name=name, generate_name="")
    claim = replace(new_claim.claim, metadata=metadata)
    return PodClaims((*claims, claim), by_claim=names, uncreated=new_claim._replace(claim=claim))


def plugin_nodes(pod: Pod, pod_claims: PodClaims, stock: Stock) -> tuple[str, ...]:
    """Return the nodes that the pod may run on and whose device plugins offer its extended resources, even if these are in use."""
    if pod_claims.uncreated is None:
        return ()
    amounts = requests(pod)
    requested_amounts = {name: amounts[name] for name in pod_claims.by_claim}
    may_run = reaches(pod)
    nodes: list[str] = []
    for name, node in stock.nodes.items():
        if (
            all(plugin_offers(node, name) for name in requested_amounts)
            and plugin_may_serve(requested_amounts, node)
            and may_run(node)
        ):
            nodes.append(name)
    return tuple(nodes)


def node_obstacle(pod_claims: PodClaims, node: Node) -> str:
    """Return a reason why a pod cannot use a node, whatever devices are free there; "" if it can. The reason begins with "node(s)"."""
    for name in pod_claims.by_claim:
        if plugin_offers(node, name):
            why = (
                "but the pod already has a claim for it"
                if pod_claims.uncreated is None
                else "so no device is allocated for it"
            )
            return f"node(s) had a device plugin for {name}, {why}"
    for name in pod_claims.uncovered:
        if not plugin_offers(node, name):
            return f"node(s) had no device plugin for {name}, which the pod's claim does not request: recreate the pod"
    return claim_obstacle(pod_claims.claims, node)


def _why_unusable(pod: Pod, claim: ResourceClaim, stock: Stock, *, from_template: bool) -> Reason | None:
    """Return why the pod cannot use a claim, or cannot use it yet; None if it can."""
    name, uid, owners = claim.metadata.name, pod.metadata.uid, claim.metadata.owner_references
    causes = (f"ResourceClaim/{claim.metadata.key}",)
    if claim.metadata.deletion_timestamp:
        text = f"claim {name} is being deleted, and no pod gets it"
        return Reason(text=text, actor=Actor.CLAIMS, causes=causes)
    if from_template and not any(owner.uid == uid and owner.controller for owner in owners):
        groups = [owner.name for owner in owners if owner.kind == GROUP]
        if not groups:
            return Reason(text=f"claim {name} was not created for this pod", actor=Actor.USER, causes=causes)
        text = f"claim {name} was created from a template of {GROUP} {groups[0]}, which is not supported"
        remedies = ("create the claim yourself, and name it in the group",)
        return Reason(text=text, actor=Actor.USER, causes=causes, remedies=remedies)
    if is_reserved_for(claim, uid):
        return None
    if len(claim.status.reserved_for) >= MAX_CONSUMERS:
        text = f"claim {name} is used by {MAX_CONSUMERS} pods, and no more can share it"
        return Reason(text=text, actor=Actor.USER, causes=causes)
    return next(missing_classes(claim, stock), None)
