"""What a pod or claim that is being created would add to which lines, beside what claims hold and what waits. Pure.

Also which lines of core's ResourceQuotas count the same devices in other words, for an object that is refused here and would be there:

    <class>.deviceclass.resource.k8s.io/devices      devices of the class, by claims
    requests.<extended resource>                     the name that the class serves, and the one that every class has
    count/resourceclaims.resource.k8s.io             claims, whatever they ask for

A quota with scopes is about pods, or volume claims: core's evaluator of ResourceClaims matches no scope
(k8s.io/kubernetes/pkg/quota/v1/evaluator/core/resource_claims.go), so none of its lines counts what claims ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from allocator.pods import plugin_may_serve, reaches, requests_by_name
from dra.objects import DeviceQuota, Pod, ResourceClaimSpec, extended_claim
from dra.policy import quota_lines
from dra.stock import ALL_CLASSES, Amounts, total

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cluster.objects import ResourceQuota
    from dra.objects import DeviceClass
    from dra.policy import QuotaLine
    from dra.stock import Stock

Demand = Callable[[ResourceClaimSpec], Amounts]  # the most that a claim may come to hold
FindSpec = Callable[[str, str], ResourceClaimSpec | None]  # the spec of a template, by namespace and name
MOST = 5  # lines in one sentence


class FutureClaim(msgspec.Struct, frozen=True):
    """A claim that will be made: of a template that is stored under a name, or else, if it is known already, of this spec."""

    template: str = ""
    spec: ResourceClaimSpec | None = None


EXTENDED = "<extended-resources>"  # stands for the entry of the claim that the scheduler makes; no entry is called so


def extended_wants(pod: Pod, stock: Stock) -> dict[str, FutureClaim]:
    """Say which claim the scheduler will make of what a pod asks for by name; none where a device plugin has it, or may serve it where the pod may go."""
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
    """A pod or a claim that is being created, and the claims that would be made for it; a claim has itself under no entry."""

    uid: str
    namespace: str
    name: str = ""
    priority_class: str = ""
    claims: dict[str, FutureClaim] = {}  # by the pod's entry; a claim that a pod names and that exists counts by itself
    dry_run: bool = False
    pod: Pod | None = None  # if it is one: what it asks for by name is not in its claims yet


class QuotaQuestion(NamedTuple):
    """What is known of the objects that exist: what they hold of what a quota is about, and what waits."""

    quotas: Iterable[DeviceQuota]
    held: Callable[[DeviceQuota], Amounts]
    waiting: Callable[[DeviceQuota], Amounts]
    demand: Demand
    find_spec: FindSpec

    def asked_by(self, new: NewObject) -> Amounts:
        """Say how much an object may come to hold at most."""
        specs = [self.find_spec(new.namespace, one.template) or one.spec for one in new.claims.values()]
        return total(self.demand(spec) for spec in specs if spec is not None)

    def lines_for(self, new: NewObject, asked: Amounts) -> tuple[QuotaLine, ...]:
        """Say what an object that asks for so much would add to which lines."""
        return quota_lines(self.quotas, (new.namespace, new.priority_class), asked, self.held, self.waiting)


def core_lines(
    quotas: Iterable[ResourceQuota], namespace: str, asked: Amounts, classes: Mapping[str, DeviceClass]
) -> str:
    """Say which lines of a namespace's ResourceQuotas count what is asked for as well; "" if none does."""
    keys = {"count/resourceclaims.resource.k8s.io"}
    for name in {class_name for class_name, _ in asked if class_name != ALL_CLASSES}:
        keys.add(f"{name}.deviceclass.resource.k8s.io/devices")
        keys.add(f"requests.deviceclass.resource.kubernetes.io/{name}")
        found = classes.get(name)
        if found is not None and found.spec.extended_resource_name:
            keys.add(f"requests.{found.spec.extended_resource_name}")
    said: list[str] = []
    for quota in sorted(quotas, key=lambda one: one.metadata.name):
        spec = quota.spec
        if quota.metadata.namespace != namespace or spec.scopes or spec.scope_selector:
            continue
        for key, hard in spec.hard.items():
            if key in keys:
                used = quota.status.used.get(key, "?")  # core has not counted yet
                said.append(f"{quota.metadata.name}: {key} {used} of {hard} used")
    if not said:
        return ""
    more = " and more" if len(said) > MOST else ""
    return f"core's ResourceQuota counts besides: {', '.join(said[:MOST])}{more}"
