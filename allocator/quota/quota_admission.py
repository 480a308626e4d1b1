"""What a new pod or claim would add to the limits of DeviceQuotas, on top of held and pending usage.

`core_lines` adds the limits of ResourceQuotas that count the same devices, so that a refusal names every limit at once. ResourceQuotas with
scopes are left out: the evaluator of ResourceClaims in Kubernetes matches no scope
(k8s.io/kubernetes/pkg/quota/v1/evaluator/core/resource_claims.go), so such a quota counts no claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from allocator.pods import plugin_may_serve, reaches, requests_by_name
from dra.objects import (
    EXTENDED_CLAIM,
    POD_CLAIM_NAME,
    DeviceQuota,
    Pod,
    ResourceClaim,
    ResourceClaimSpec,
    extended_claim,
    owning_pods,
)
from dra.policy import COUNT_KEY, quota_keys, quota_lines
from dra.stock import ALL_CLASSES, Amounts, total

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.objects import ResourceQuota
    from dra.objects import DeviceClass
    from dra.policy import QuotaLine
    from dra.stock import Stock

Demand = Callable[[ResourceClaimSpec], Amounts]  # the most that a claim may get
FindSpec = Callable[[str, str], ResourceClaimSpec | None]  # the spec of a template, by namespace and name
MAX_LISTED = 5  # lines in one sentence


class FutureClaim(msgspec.Struct, frozen=True):
    """A claim that will be created from the stored template of this name or, if there is no such template, with `spec`."""

    template: str = ""
    spec: ResourceClaimSpec | None = None


# The entry for the claim that kube-scheduler creates. No entry of a pod can have this name.
EXTENDED = "<extended-resources>"


class PodEntry(NamedTuple):
    """The uid of a pod, an entry of its `resourceClaims` for which Kubernetes creates a claim, and the name of the pod."""

    uid: str
    entry: str
    pod: str

    @property
    def key(self) -> tuple[str, str]:
        return self.uid, self.entry


def entry_of(claim: ResourceClaim) -> PodEntry | None:
    """Return the pod's entry for which a claim was created; None if the claim was created by hand."""
    meta = claim.metadata
    entry = EXTENDED if meta.annotations.get(EXTENDED_CLAIM) == "true" else meta.annotations.get(POD_CLAIM_NAME)
    owners = owning_pods(claim)
    return PodEntry(owners[0].uid, entry, owners[0].name) if owners and entry else None


def future_extended_claims(pod: Pod, stock: Stock) -> dict[str, FutureClaim]:
    """Return the claim that kube-scheduler will create for a pod's extended resources; none if a device plugin may serve the pod."""
    if pod.spec.node_name and pod.status.extended_resource_claim_status is None:
        return {}
    serving = stock.serving()
    new_claim = extended_claim(pod, serving)
    if new_claim is None:
        return {}
    requested, may_run = requests_by_name(pod, serving), reaches(pod, respect_taints=False)
    if any(plugin_may_serve(requested, node) and may_run(node) for node in stock.nodes.values()):
        return {}
    return {EXTENDED: FutureClaim(spec=new_claim.claim.spec)}


class NewObject(msgspec.Struct, frozen=True):
    """A pod that is being created and the claims that will be created for it, or a claim that is being created.

    If the object is a claim, `claims` has it under the key "".
    """

    uid: str
    namespace: str
    name: str = ""
    priority_class: str = ""
    claims: dict[str, FutureClaim] = {}  # by the pod's entry, without existing claims that a pod names
    dry_run: bool = False
    pod: Pod | None = None  # the pod, if it requests extended resources; the claim for these is not in `claims` yet
    # Set for a claim that Kubernetes creates for a pod. Its review does not count claims that are still to be created for pods.
    entry: PodEntry | None = None


class QuotaQuestion(NamedTuple):
    """The quotas that apply, and functions that return held and pending usage."""

    quotas: Iterable[DeviceQuota]
    used_by_claims: Callable[[DeviceQuota], Amounts]
    waiting: Callable[[DeviceQuota], Amounts]
    demand: Demand
    find_spec: FindSpec

    def requested_by(self, new: NewObject) -> Amounts:
        """Return the largest amounts that the claims of an object may get."""
        specs = [self.find_spec(new.namespace, claim.template) or claim.spec for claim in new.claims.values()]
        return total(self.demand(spec) for spec in specs if spec is not None)

    def lines_for(self, new: NewObject, requested: Amounts) -> tuple[QuotaLine, ...]:
        """Return what an object with these requested amounts would add to each limit."""
        return quota_lines(
            self.quotas, (new.namespace, new.priority_class), requested, self.used_by_claims, self.waiting
        )


def core_lines(
    quotas: Iterable[ResourceQuota], namespace: str, requested: Amounts, classes: Mapping[str, DeviceClass]
) -> str:
    """Return text about the namespace's ResourceQuotas that count the same devices; "" if there is none."""
    keys = {COUNT_KEY}
    for name in {class_name for class_name, _ in requested if class_name != ALL_CLASSES}:
        device_class = classes.get(name)
        keys |= quota_keys(name, device_class.spec.extended_resource_name if device_class is not None else None)
    texts: list[str] = []
    for quota in sorted(quotas, key=lambda quota: quota.metadata.name):
        spec = quota.spec
        if quota.metadata.namespace != namespace or spec.scopes or spec.scope_selector:
            continue
        for key, hard in spec.hard.items():
            if key in keys:
                used = quota.status.used.get(key, "?")  # "?" until the quota controller has counted
                texts.append(f"{quota.metadata.name}: {key} {used} of {hard} used")
    if not texts:
        return ""
    ellipsis = " and more" if len(texts) > MAX_LISTED else ""
    return f"ResourceQuotas count the same devices: {', '.join(texts[:MAX_LISTED])}{ellipsis}"
