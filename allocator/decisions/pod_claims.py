"""The claims of a pod as they are now, or what has to exist before they can be decided on.

Mirrors PreEnqueue and PreFilter of the in-tree plugin (pkg/scheduler/framework/plugins/dynamicresources): every claim exists,
is not being deleted, belongs to the pod if a template made it, and names classes that exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.objects import IMPLICIT, ResourceClaim, claim_name, is_reserved_for, requests_of

if TYPE_CHECKING:
    from dra.objects import DeviceSubRequest, ExactDeviceRequest, Pod, PodResourceClaim
    from dra.stock import Stock

MOST_CONSUMERS = 256  # the API server takes no more in reservedFor
GROUP = "PodGroup"


class PodClaims(msgspec.Struct, frozen=True):
    """The claims of a pod, in its order. `waits_for` says what is missing; "" if nothing is."""

    claims: tuple[ResourceClaim, ...] = ()
    extended: tuple[str, ...] = ()  # resource names that a DeviceClass serves, and that no claim of the pod stands for
    waits_for: str = ""

    @property
    def open(self) -> tuple[ResourceClaim, ...]:
        """The claims that nothing is allocated to yet."""
        return tuple(claim for claim in self.claims if claim.status.allocation is None)

    @property
    def want_devices(self) -> bool:
        """Whether there is anything to decide."""
        return bool(self.claims or self.extended or self.waits_for)


def find_claims(pod: Pod, stock: Stock) -> PodClaims:
    """Look up the claims of a pod."""
    asked = {
        name
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        for name, amount in requests_of(container).items()
        if amount.nano
    }
    # With DynamicResources off, no scheduler gives a device for such a name.
    extended = {name for name in asked if name.startswith(IMPLICIT)}
    if asked:
        extended |= asked & {class_.spec.extended_resource_name for class_ in stock.classes.values()}
    claims: dict[str, ResourceClaim] = {}
    waits_for = ""
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is None:
            continue  # the controller says that none is needed
        claim = stock.claims.get(f"{pod.metadata.namespace or 'default'}/{name}")
        waits_for = _missing(pod, entry, claim, stock)
        if waits_for or claim is None:
            break
        claims[name] = claim
    return PodClaims(tuple(claims.values()), tuple(sorted(extended)), waits_for)


def _missing(pod: Pod, entry: PodResourceClaim, claim: ResourceClaim | None, stock: Stock) -> str:
    """Say what has to happen to a claim before it can be decided on; "" if nothing has to."""
    if claim is None:
        return f"waiting for claim {entry.name} to be made"
    name = claim.metadata.name
    if claim.metadata.deletion_timestamp:
        return f"waiting for claim {name}, which is being deleted"
    uid = pod.metadata.uid
    owners = claim.metadata.owner_references
    if entry.resource_claim_template_name and not any(owner.uid == uid and owner.controller for owner in owners):
        groups = [owner.name for owner in owners if owner.kind == GROUP]
        if not groups:
            return f"claim {name} was not made for this pod"
        return (
            f"claim {name} was made for {GROUP} {groups[0]}, and what a group makes of a template is not served here: "
            "make the claim and name it in the group, or leave these pods to the default scheduler"
        )
    if is_reserved_for(claim, uid):
        return ""
    if len(claim.status.reserved_for) >= MOST_CONSUMERS:
        return f"claim {name} is used by {MOST_CONSUMERS} pods, and no more can share it"
    if claim.status.allocation is None:
        for request in claim.spec.devices.requests:
            bodies: list[ExactDeviceRequest | DeviceSubRequest] = [*request.first_available]
            if request.exactly is not None:
                bodies.append(request.exactly)
            for body in bodies:
                if body.device_class_name not in stock.classes:
                    return f"waiting for DeviceClass {body.device_class_name}, which claim {name} names"
    return ""
