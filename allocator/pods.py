"""The order of pending pods, their claims, and those filters of kube-scheduler that do not concern devices.

The filters cover unschedulable nodes, taints, nodeSelector, required node affinity, and the free part of `status.allocatable`.
Inter-pod affinity, topology spread, volumes and ports are left out on purpose.
"""

from __future__ import annotations

import re
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from dra.errors import NodeSelectorError
from dra.objects import (
    Node,
    NodeSelector,
    ObjectMeta,
    ResourceClaim,
    Taint,
    Toleration,
    claim_name,
    is_extended,
    matches,
    requests_of,
    served_resources,
)
from dra.reason import Actor, Reason
from dra.texts import list_first
from dra.validation import shape
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from dra.objects import Container, NodeSpec, Pod, PodResourceClaim, ResourceClaimTemplate
    from dra.stock import Stock

    Barriers = Callable[[Node, Mapping[str, int]], Iterator["Barrier"]]

Amounts = dict[str, int]  # resource → nano-units

_CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_OPTIONAL = ("pods", "ephemeral-storage")  # resources that a node need not report
HAMI_GPU = "nvidia.com/gpu"  # HAMi's plugin announces several units of each GPU
_NAMED = 3  # DeviceClasses that a text names
_HEALTH = re.compile(
    r"^node\.(kubernetes|cloudprovider)|health|maint|drain|repair|broken|fail|(?<!de)fault|remediat|xid|\becc",
    re.IGNORECASE,
)
_OTHER_LABELS = "node(s) didn't match Pod's node affinity/selector"


class BarrierKind(StrEnum):
    """What keeps a pod off a node."""

    NODE_NAME = "node name"
    CORDON = "cordon"
    TAINT = "node taint"
    LABELS = "node selector"
    AMOUNT = "amount"


class Barrier(NamedTuple):
    """Why a pod cannot run on a node, in kube-scheduler's words, and a detail.

    `subject` is the key of the taint or the label, or the resource of which the node has too little.
    """

    kind: BarrierKind
    words: str
    detail: str = ""
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.words}: {self.detail}" if self.detail else self.words


def pending(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods that wait for a node, in scheduling order: by priority, age and name.

    Pods that no API server has stored are the youngest.
    """
    waiting = [pod for pod in pods if waits(pod)]
    return sorted(
        waiting, key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "~", pod.metadata.key)
    )


def waits(pod: Pod) -> bool:
    """Whether a pod is pending, unbound and without scheduling gates."""
    if pod.spec.node_name or pod.spec.scheduling_gates:
        return False
    return pod.status.phase in ("", "Pending") and not pod.metadata.deletion_timestamp


def claims_by_entry(
    pod: Pod, claims: Mapping[str, ResourceClaim]
) -> Iterator[tuple[PodResourceClaim, ResourceClaim | None]]:
    """Yield the entries of a pod that need a claim, each with its claim, or None if that does not exist. The keys are namespace/name."""
    namespace = pod.metadata.namespace or "default"
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        if name is not None:  # else the pod's status says that the entry needs no claim
            yield entry, claims.get(f"{namespace}/{name}")


class FutureClaims(msgspec.Struct, frozen=True):
    """The claims that a pod has or will have, without repetition, and the missing objects."""

    claims: tuple[ResourceClaim, ...]
    missing: tuple[Reason, ...]


def future_claims(
    pod: Pod, templates: Mapping[str, ResourceClaimTemplate], claims: Mapping[str, ResourceClaim]
) -> FutureClaims:
    """Return the claims of a pod. A claim that does not exist is made from its template. The keys of both mappings are namespace/name."""
    claims_by_name: dict[str, ResourceClaim] = {}
    missing: list[Reason] = []
    namespace = pod.metadata.namespace or "default"
    for entry, claim in claims_by_entry(pod, claims):
        template_name = entry.resource_claim_template_name
        template = templates.get(f"{namespace}/{template_name}")
        if claim is not None:
            claims_by_name[claim.metadata.name] = claim
        elif template_name and template is not None:
            name = f"{pod.metadata.name or pod.metadata.generate_name}-{entry.name}"
            meta = ObjectMeta(name=name, namespace=namespace, uid=f"future-{name}")
            claims_by_name[name] = ResourceClaim(metadata=meta, spec=template.spec.spec)
        elif template_name:
            missing.append(lacks("ResourceClaimTemplate", template_name))
        else:
            missing.append(lacks("ResourceClaim", claim_name(pod, entry) or f"of entry {entry.name}"))
    return FutureClaims(tuple(claims_by_name.values()), tuple(missing))


def lacks(kind: str, name: str) -> Reason:
    """Return the reason that a claim or a template does not exist, which a pod names."""
    remedies = ("create it, or delete the pod and correct the name",)
    return Reason(text=f"{kind} {name} does not exist", actor=Actor.USER, code="O115", never=True, remedies=remedies)


def missing_classes(claim: ResourceClaim, stock: Stock) -> Iterator[Reason]:
    """Yield the DeviceClasses that a claim without devices requests, and that do not exist."""
    if claim.status.allocation is None:
        bodies = [body for request in claim.spec.devices.requests for body in request.alternatives.values()]
        for name in dict.fromkeys(body.device_class_name for body in bodies):
            if name not in stock.classes:
                yield lacks_class(f"claim {claim.metadata.name}", name, stock)


def lacks_class(requester: str, name: str, stock: Stock) -> Reason:
    """Return the reason that a DeviceClass does not exist."""
    existing = list_first(sorted(stock.classes), _NAMED) or "none"
    similar = shape.nearest_kind(name, stock.classes)
    return Reason(
        text=f"{requester}: DeviceClass {name} does not exist; existing classes: {existing}",
        actor=Actor.USER,
        code="O107",
        causes=(f"DeviceClass/{name}",),
        remedies=(f"use DeviceClass {similar}",)
        if similar
        else (f"install the driver's chart, which brings {name}", "correct the name of the class"),
    )


def claim_obstacle(claims: Iterable[ResourceClaim], node: Node) -> str:
    """Return a reason, in kube-scheduler's form, if an allocated claim keeps its pod off a node; else ""."""
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is None or allocation.node_selector is None:
            continue
        try:
            if not matches(allocation.node_selector, node):
                return f"node(s) didn't match claim {claim.metadata.key}, which is allocated on another node"
        except NodeSelectorError as error:
            return f"node(s) didn't match claim {claim.metadata.key}: {error}"
    return ""


def barriers(pod: Pod, ignored: Collection[str] = ()) -> Barriers:
    """Return a function that lists why the pod cannot run on a node.

    The function's arguments are a node and the sum of its pods' requests. `ignored` are resources that claims provide.
    """
    required_node = pod.spec.node_name
    amounts = [(name, amount) for name, amount in requests(pod).items() if amount and name not in ignored]
    amounts.sort(
        key=lambda entry: (entry[0] == "pods", entry[0])
    )  # kube-scheduler sorts the sentences; "Too many pods" is last
    gpus = 0 if HAMI_GPU in ignored else _largest_request(pod, HAMI_GPU)
    affinity = pod.spec.affinity
    required = affinity.value() if affinity is not None else None
    for step in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"):
        required = required.get(step) if isinstance(required, dict) else None
    selector: NodeSelector | None = None
    unreadable = ""
    if required is not None:
        try:
            selector = convert(required, NodeSelector)
        except WireError as error:
            unreadable = str(error)

    def reasons_on(node: Node, used: Mapping[str, int]) -> Iterator[Barrier]:
        if required_node and required_node != node.metadata.name:
            yield Barrier(BarrierKind.NODE_NAME, "node(s) didn't match the requested node name", required_node)
        is_tainted = node.spec.taints or node.spec.unschedulable
        for taint in untolerated(pod.spec.tolerations, node.spec) if is_tainted else ():
            if taint is _CORDON:
                yield Barrier(BarrierKind.CORDON, "node(s) were unschedulable")
                continue
            text = f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
            yield Barrier(BarrierKind.TAINT, "node(s) had untolerated taint(s)", text, taint.key)
        labels = node.metadata.labels
        for key, value in pod.spec.node_selector.items():
            if labels.get(key) != value:
                yield Barrier(BarrierKind.LABELS, _OTHER_LABELS, f"{key}={value}", key)
        try:
            if unreadable:
                yield Barrier(BarrierKind.LABELS, _OTHER_LABELS, unreadable)
            elif selector is not None and not matches(selector, node):
                yield Barrier(BarrierKind.LABELS, _OTHER_LABELS)
        except NodeSelectorError as error:
            yield Barrier(BarrierKind.LABELS, _OTHER_LABELS, str(error))
        allocatable = node.status.allocatable
        for name, amount in amounts:
            available = allocatable[name].nano if name in allocatable else None
            # A missing amount counts as 0. The exceptions are optional resources, and, if the node reports no allocatable amounts at all,
            # resources that are not extended: their amount is unknown, so the pod passes.
            if available is None and (name in _OPTIONAL or not (allocatable or is_extended(name))):
                continue
            left = (available or 0) - used.get(name, 0)
            if amount > left:
                words = "Too many pods" if name == "pods" else f"Insufficient {name}"
                yield Barrier(BarrierKind.AMOUNT, words, subject=name)
        if gpus and 0 < (count := hami_gpus(node)) < gpus:
            detail = f"HAMi gives a container different GPUs, and the node has {count}"
            yield Barrier(BarrierKind.AMOUNT, f"Insufficient {HAMI_GPU}", detail, HAMI_GPU)

    return reasons_on


def reports_health(taint: str) -> bool:
    """Whether a taint with this key reports that a node or a device does not work, or that somebody works on it."""
    return bool(_HEALTH.search(taint))


def hami_gpus(node: Node) -> int:
    """Return the number of GPUs that HAMi's device plugin has registered on a node; 0 if it runs on another node or none."""
    registered = node.metadata.annotations.get("hami.io/node-nvidia-register", "")
    if not registered.startswith("["):
        return registered.count(":")  # each GPU of an older version ends with a colon
    try:
        return len(msgspec.json.decode(registered, type=list[msgspec.Raw]))
    except msgspec.DecodeError:
        return 0


def _largest_request(pod: Pod, name: str) -> int:
    """Return the most units of a resource that one container requests."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return max(
        (requests_of(container)[name].whole() or 0 for container in containers if name in requests_of(container)),
        default=0,
    )


def barriers_by_name(pod: Pod, resources: Collection[str]) -> Barriers:
    """Return the `barriers` of a pod that requests extended resources.

    A node's device plugin serves the resources that it offers; claims provide the others.
    """
    barriers_by_ignored: dict[frozenset[str], Barriers] = {}

    def reasons_on(node: Node, used: Mapping[str, int]) -> Iterator[Barrier]:
        ignored = frozenset([name for name in resources if not plugin_offers(node, name)])
        if ignored not in barriers_by_ignored:
            barriers_by_ignored[ignored] = barriers(pod, ignored)
        return barriers_by_ignored[ignored](node, used)

    return reasons_on


def requests(pod: Pod) -> Amounts:
    """Return a pod's effective requests: those of its containers and sidecars together, or of an init container that requests more."""
    total: Amounts = {"pods": 10**9}
    init_requests: Amounts = {}
    for container in pod.spec.init_containers:
        if container.restart_policy == "Always":
            _add(total, container)
            continue
        for name, amount in requests_of(container).items():
            init_requests[name] = max(init_requests.get(name, 0), total.get(name, 0) + amount.nano)
    for container in pod.spec.containers:
        _add(total, container)
    # Keep the order of the requests, because reasons list resources in this order.
    return {name: max(total.get(name, 0), init_requests.get(name, 0)) for name in total | init_requests}


def requested_devices(pod: Pod) -> Amounts:
    """Return a pod's requests for devices by resource name. They include Koordinator's names in `kubernetes.io/`.

    Those are not extended resources.
    """
    return {name: amount for name, amount in requests(pod).items() if amount and "/" in name}


def requests_by_name(pod: Pod, serving: Mapping[str, str]) -> Amounts:
    """Return a pod's requests for extended resources that DeviceClasses serve."""
    amounts = requests(pod)
    return {name: amounts[name] for name in served_resources(pod, serving)}


def plugin_offers(node: Node, name: str) -> bool:
    """Whether a device plugin offers a resource on a node.

    If so, kube-scheduler allocates no DRA device for this resource there, even if all of the plugin's devices are in use.
    """
    amount = node.status.allocatable.get(name)
    return amount is not None and bool(amount.nano)


def plugin_may_serve(by_name: Mapping[str, int], node: Node, used: Mapping[str, int] = MappingProxyType({})) -> bool:
    """Whether a node's device plugins have enough of the requested resources that they offer. At least one plugin must offer one."""
    offered = [name for name in by_name if plugin_offers(node, name)]
    allocatable = node.status.allocatable
    return bool(offered) and all(allocatable[name].nano - used.get(name, 0) >= by_name[name] for name in offered)


def plugin_could_serve(by_name: Mapping[str, int], node: Node) -> bool:
    """Whether `plugin_may_serve` will be true of a node once all its devices are healthy and free."""
    offered = [name for name in by_name if plugin_offers(node, name)]
    return bool(offered) and all(most_of(node, name) >= by_name[name] for name in offered)


def most_of(node: Node, name: str) -> int:
    """Return the amount of a resource that a node's device plugin has when all devices are healthy; 0 if the plugin may be starting."""
    if not plugin_offers(node, name):
        return 0
    healthy_amount = node.status.allocatable[name]
    return max(healthy_amount, node.status.capacity.get(name, healthy_amount)).nano


def reaches(pod: Pod, *, respect_taints: bool = True) -> Callable[[Node], bool]:
    """Return a function that returns whether a pod may run on an empty node. With `respect_taints=False` the function ignores taints."""
    if not respect_taints:
        pod = replace(pod, spec=replace(pod.spec, tolerations=(Toleration(operator="Exists"),)))
    reasons_on = barriers(pod, requests(pod))
    return lambda node: next(reasons_on(node, {}), None) is None


def _add(total: Amounts, container: Container) -> None:
    for name, amount in requests_of(container).items():
        total[name] = total.get(name, 0) + amount.nano


def untolerated(tolerations: Iterable[Toleration], spec: NodeSpec) -> list[Taint]:
    """Return the taints that keep a pod off a node. The taint of a cordoned node comes first."""
    taints = [taint for taint in spec.taints if taint.effect in ("NoSchedule", "NoExecute")]
    if spec.unschedulable:
        taints = [_CORDON, *(taint for taint in taints if taint.key != _CORDON.key)]
    return [taint for taint in taints if not any(_tolerates(toleration, taint) for toleration in tolerations)]


def _tolerates(by: Toleration, taint: Taint) -> bool:
    return (
        (not by.effect or by.effect == taint.effect)
        and (not by.key or by.key == taint.key)
        and (by.operator == "Exists" or (by.operator in ("", "Equal") and by.value == taint.value))
    )


def plus(used: Mapping[str, int], pod: Pod, times: int = 1) -> Amounts:
    """Return the amounts in use with those that a pod requests; with `times=-1`, without them."""
    return {**used, **{name: used.get(name, 0) + times * amount for name, amount in requests(pod).items()}}


def total(pods: Iterable[Pod]) -> dict[str, Amounts]:
    """Return the requests of bound, unfinished pods, summed by node."""
    used: dict[str, Amounts] = {}
    for pod in pods:
        node = pod.spec.node_name
        if not node or pod.has_ended:
            continue
        used[node] = plus(used.get(node, {}), pod)
    return used
