"""`drawbridge resize`: changes the amounts of a workload, and simulates where its new pods would run and what quotas allow.

Allocations, and the specs of claims and templates, are immutable (k8s.io/kubernetes/pkg/apis/resource/validation), so another amount needs
new pods.
"""

from __future__ import annotations

from copy import deepcopy
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator.preemption import without_pods
from allocator.simulation import PodOutcome
from analysis.arrivals import arrivals
from analysis.errors import Broken
from analysis.explain import as_written, find_workload
from analysis.loading import identity_of, inside, items
from analysis.naming import find
from analysis.outlook import arriving, beside, place
from analysis.quota_use import Foretold, foretell_in
from analysis.requesting import bodies_in
from cluster import manifests
from dra.objects import Pod, ResourceClaim, ResourceClaimTemplate, defaults
from dra.raw import containers_of
from dra.wire import WireError, convert
from webhook.claims import template
from webhook.translate import pods_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from analysis.loading import Object, Reading


POD = ("pod", "pods", "po")


class ResizedObject(msgspec.Struct, frozen=True):
    """One object before and after the change; a new object has no `before`."""

    after: dict[str, Any]
    before: dict[str, Any] | None = None

    def diff(self) -> Iterator[str]:
        """Write a unified diff."""
        identity = identity_of(self.after)
        name = f"{identity.kind}/{identity.namespace}/{identity.name}"
        before, after = (manifests.dump([obj]).splitlines() if obj else [] for obj in (self.before, self.after))
        yield from unified_diff(before, after, name if before else "/dev/null", name, lineterm="")


class Resized(msgspec.Struct, frozen=True):
    """The result of a resize; `surge` is the outcome of one new pod while the old pods still hold their devices."""

    changes: tuple[ResizedObject, ...]
    pods: tuple[PodOutcome, ...]
    surge: PodOutcome | None
    quotas: tuple[Foretold, ...]

    @property
    def fits(self) -> bool:
        """Whether every new pod is placed and no quota refuses one."""
        return all(pod.node is not None for pod in self.pods) and not any(quota.crossed for quota in self.quotas)


class ResizeTarget(NamedTuple):
    """The workload or pod to resize, and its pods."""

    object: Object
    pods: Sequence[Pod]


def find_target(kind_name: str, name: str, namespace: str, reading: Reading) -> ResizeTarget:
    """Find a workload, or a pod that no workload created. Raises MissingObject and Broken."""
    if kind_name in POD:
        key = find("pod", name, namespace, reading.pods)
        subject, obj, pods = f"Pod {key}", reading.raw.get(key), [reading.pods[key]]
        if obj and (owners := reading.owners(obj)):
            kind, _, owner = owners[-1].partition(" ")
            raise Broken(f"{subject} is created by {owners[-1]}", f"resize {kind.lower()}/{owner}")
    else:
        identity, obj, pods = find_workload(kind_name, name, namespace, reading)
        subject = f"{identity.kind} {identity.namespace}/{identity.name}"
    if obj is None:
        raise Broken(f"{subject} is not in the input", "add the manifest of the workload with -f")
    return ResizeTarget(obj, pods)


def resize(obj: Object, amounts: Mapping[str, str], leaving: Sequence[Pod], reading: Reading) -> Resized:
    """Simulate a workload with other `amounts`, given by the name of a resource or capacity. `leaving` has its old pods. Raises Broken."""
    changes = tuple(_edited(obj, amounts, reading))
    after = [change.after for change in changes]
    keys = {pod.metadata.key for pod in leaving}
    stock = without_pods(reading.stock, leaving)
    removed_claims: list[ResourceClaim] = []
    for claim in stock.claims.values():
        namespace = claim.metadata.namespace or "default"
        owners = {
            f"{namespace}/{owner_reference.name}"
            for owner_reference in claim.metadata.owner_references
            if owner_reference.kind == "Pod"
        }
        if owners & keys:
            removed_claims.append(claim)
    stock = stock.with_all((), removed=removed_claims)
    staying = {key: pod for key, pod in reading.pods.items() if key not in keys}
    state = reading.state
    arrived = arrivals(after, state)
    changed_templates = [obj for obj in after if obj.get("kind") == "ResourceClaimTemplate"]
    try:
        new_templates = [defaults.template(convert(obj, ResourceClaimTemplate)) for obj in changed_templates]
    except WireError as error:
        raise Broken(str(error), "name a workload that the API server accepts") from None
    templates = reading.templates | {made_template.metadata.key: made_template for made_template in new_templates}
    reading = reading.with_types({ResourceClaimTemplate: templates})
    without_old_pods = reading.with_types({Pod: staying, ResourceClaim: dict(stock.claims)})
    pods = list(arrived.pods.values())
    for pod in pods:
        if node := pod.spec.node_name:
            raise Broken(f"Pod {pod.metadata.key} names its node {node}, so no scheduler places it", "remove nodeName")

    others = arriving(without_old_pods, state)
    ahead = [pod for key, pod in others.pods.items() if key not in arrived.pods]
    arrived = arrived._replace(templates=[*others.templates, *arrived.templates])
    surge = None
    if leaving and pods and obj.get("kind") == "Deployment":  # other controllers delete a pod before they replace it
        metadata = replace(pods[0].metadata, name=f"{pods[0].metadata.name}-new")
        one_more = arrived._replace(pods={metadata.key: replace(pods[0], metadata=metadata)})
        [surge] = place(beside(reading, one_more), state, {}, ahead=ahead).pods
    simulated = place(beside(without_old_pods, arrived), state, arrived.refused, ahead=ahead).pods
    return Resized(changes, simulated, surge, tuple(foretell_in(without_old_pods, after, {}, state)))


def _edited(obj: Object, amounts: Mapping[str, str], reading: Reading) -> Iterator[ResizedObject]:
    """Write the amounts into the object, or into renamed copies of the claim templates that it names, because templates are immutable."""
    identity = identity_of(obj)
    after = _as_applied(obj)
    before = deepcopy(after)
    names_written: set[str] = set()
    requested_names: set[str] = set()
    raw = {
        identity_of(obj).name: obj
        for obj in reading.of_kinds("ResourceClaimTemplate")
        if identity_of(obj).namespace == identity.namespace
    }
    renamed_templates: dict[str, ResizedObject] = {}
    for pod in pods_in(after):
        annotations = inside(pod, "metadata", "annotations")
        amount_keys = [name for name in annotations if reading.configuration.is_amount(name)]
        names_written |= _write(annotations, amount_keys, amounts, requested_names)
        spec = inside(pod, "spec")
        for container in containers_of(spec):
            for part in ("limits", "requests"):
                requested = inside(container, "resources", part)
                devices = [name for name in requested if "/" in name]
                names_written |= _write(requested, devices, amounts, requested_names)
        for entry in items(spec, "resourceClaims"):
            name = entry.get("resourceClaimTemplateName")
            if name not in raw:
                continue
            old = _as_applied(raw[name])
            new = deepcopy(old)
            written: set[str] = set()
            for body in bodies_in(inside(new, "spec", "spec")):
                requested = inside(body, "capacity", "requests")
                written |= _write(requested, requested, amounts, requested_names)
            if written:
                names_written |= written
                entry["resourceClaimTemplateName"] = new["metadata"]["name"] = template.name_of(new["spec"])
                renamed_templates[name] = ResizedObject(new)
    if missing := sorted(amounts.keys() - names_written):
        remedy = (
            f"the workload requests {', '.join(sorted(requested_names))}"
            if requested_names
            else "name the workload that requests devices"
        )
        raise Broken(f"{identity.kind} {identity.namespace}/{identity.name} does not request {missing[0]}", remedy)
    yield from renamed_templates.values()
    yield ResizedObject(after, before)


def _write(requested: Object, keys: Iterable[str], amounts: Mapping[str, str], requested_names: set[str]) -> set[str]:
    """Write the amounts of these keys, add the keys to `requested_names`, and return those that were written."""
    present = set(keys)
    requested_names |= present
    matching = present & amounts.keys()
    for key in matching:
        text = amounts[key]
        requested[key] = int(text) if isinstance(requested[key], int) and text.isdecimal() else text
    return matching


def _as_applied(obj: Object) -> Object:
    """Return the object without the fields that the API server and controllers write."""
    written = as_written(obj) if obj.get("kind") == "Pod" else obj
    applied = {name: value for name, value in deepcopy(written).items() if name != "status"}
    metadata = inside(applied, "metadata")
    for name in ("uid", "resourceVersion", "generation", "creationTimestamp"):
        metadata.pop(name, None)
    if applied.get("kind") == "Pod" and inside(obj, "status").get("phase"):
        inside(applied, "spec").pop(
            "nodeName", None
        )  # a scheduler wrote nodeName; in a pod without a phase, the author wrote it
    return applied
