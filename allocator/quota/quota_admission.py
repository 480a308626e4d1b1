"""What a new pod or claim would add to the lines of DeviceQuotas, on top of held and pending usage. Pure functions.

`core_lines` adds the limits of core ResourceQuotas that count the same devices, so that a refusal names every limit at once.
A ResourceQuota with scopes is left out: core's evaluator of ResourceClaims matches no scope
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
    """A claim that will be created: from a stored template, by name, or else with this spec if it is known already."""

    template: str = ""
    spec: ResourceClaimSpec | None = None


# The entry of the claim that kube-scheduler creates; not a valid name of a real entry.
EXTENDED = "<extended-resources>"


class PodEntry(NamedTuple):
    """A pod and its entry for which Kubernetes creates a claim; `pod` is the pod's name."""

    uid: str
    entry: str
    pod: str

    @property
    def key(self) -> tuple[str, str]:
        """The pod's uid and its entry."""
        return self.uid, self.entry


def entry_of(claim: ResourceClaim) -> PodEntry | None:
    """Return the pod's entry that a claim is created for; None if a person creates it."""
    meta = claim.metadata
    entry = EXTENDED if meta.annotations.get(EXTENDED_CLAIM) == "true" else meta.annotations.get(POD_CLAIM_NAME)
    owners = owning_pods(claim)
    return PodEntry(owners[0].uid, entry, owners[0].name) if owners and entry else None


def future_extended_claims(pod: Pod, stock: Stock) -> dict[str, FutureClaim]:
    """Return the claim that kube-scheduler will create for a pod's extended resources; none if a device plugin may serve the pod."""
    if pod.spec.node_name and pod.status.extended_resource_claim_status is None:
        return {}
    serving = stock.serving()
    made = extended_claim(pod, serving)
    if made is None:
        return {}
    by_name, may_go = requests_by_name(pod, serving), reaches(pod, tainted=False)
    if any(plugin_may_serve(by_name, node) and may_go(node) for node in stock.nodes.values()):
        return {}
    return {EXTENDED: FutureClaim(spec=made.claim.spec)}


class NewObject(msgspec.Struct, frozen=True):
    """A pod or claim that is being created, and the claims that would be created for it; a claim contains itself under entry ""."""

    uid: str
    namespace: str
    name: str = ""
    priority_class: str = ""
    claims: dict[str, FutureClaim] = {}  # by the pod's entry, without existing claims that a pod names
    dry_run: bool = False
    pod: Pod | None = None  # the pod, if it requests extended resources, which are not in `claims` yet
    # Set for a claim that Kubernetes creates for a pod: claims still to be created for pods do not count against this claim.
    entry: PodEntry | None = None


class QuotaQuestion(NamedTuple):
    """The quotas that apply, and functions that return held and pending usage."""

    quotas: Iterable[DeviceQuota]
    used_by_claims: Callable[[DeviceQuota], Amounts]
    waiting: Callable[[DeviceQuota], Amounts]
    demand: Demand
    find_spec: FindSpec

    def asked_by(self, new: NewObject) -> Amounts:
        """Return the most that an object may get."""
        specs = [self.find_spec(new.namespace, claim.template) or claim.spec for claim in new.claims.values()]
        return total(self.demand(spec) for spec in specs if spec is not None)

    def lines_for(self, new: NewObject, requested: Amounts) -> tuple[QuotaLine, ...]:
        """Return what an object that requests this much would add to each limit."""
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
                used = quota.status.used.get(key, "?")  # core has not counted yet
                texts.append(f"{quota.metadata.name}: {key} {used} of {hard} used")
    if not texts:
        return ""
    more = " and more" if len(texts) > MAX_LISTED else ""
    return f"ResourceQuota also counts: {', '.join(texts[:MAX_LISTED])}{more}"
