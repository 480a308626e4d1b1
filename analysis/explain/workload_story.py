"""Builds the story of a workload: its pods, grouped by status, and the story of one pod of each group.

Pods are found by their owner references, so workloads of unknown kinds are explained too. If a workload has no pods, the story is about the
first pod that its controller would create.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from analysis.arrivals import created_pods
from analysis.errors import MissingObject
from analysis.explain.claim_story import FALSE
from analysis.explain.pod_story import pod_story
from analysis.explain.stories import PodsAlike, WebhookStory, WorkloadStory
from analysis.explain.webhook_record import decide_now
from analysis.loading import ObjectIdentity, identity_of, owner_of, read_object
from analysis.naming import find
from analysis.refused_pods import find_refused_pods
from cluster.resources import JOBS, REPLICA_SETS, STATEFUL_SETS, WORKLOADS
from dra.objects import Pod
from dra.validation import shape
from dra.wire import WireError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.loading import Object, Reading
    from cluster.resources import Raw, Resource

_SHORT = {"deploy": "Deployment", "sts": "StatefulSet", "ds": "DaemonSet", "rs": "ReplicaSet", "cj": "CronJob"}
# All names of a built-in kind: kind, plural, and kubectl's short name.
KIND_OF = {word: resource.kind for resource in WORKLOADS for word in (resource.kind.lower(), resource.plural)} | _SHORT
# Kinds between a workload and its pods.
_BETWEEN = {"Deployment": (REPLICA_SETS,), "CronJob": (JOBS,)}


def kinds_of(name: str) -> list[Resource[Raw]]:
    """Return the kinds to read from a cluster for a workload: its own, if it is known, and those between it and its pods."""
    kind = KIND_OF.get(name)
    if kind is None:
        return [JOBS, STATEFUL_SETS, REPLICA_SETS]
    return [resource for resource in WORKLOADS if resource.kind == kind] + [*_BETWEEN.get(kind, ())]


class Workload(NamedTuple):
    """A workload, with the objects that could be read, and its pods."""

    identity: ObjectIdentity
    object: Object | None
    pods: list[Pod]


def find_workload(kind_name: str, name: str, namespace: str, reading: Reading) -> Workload:
    """Find a workload by its kind and name. Raise MissingObject."""
    objects = {identity_of(obj): obj for obj in reading.objects}
    # The owners of each pod, as far as they were read.
    chains: dict[str, set[ObjectIdentity]] = {}
    for key, pod in reading.pods.items():
        owner = pod.metadata.controller
        home = pod.metadata.namespace or "default"
        owner_identity = (
            ObjectIdentity(owner.api_version.rpartition("/")[0], owner.kind, home, owner.name) if owner else None
        )
        chains[key] = set(reading.owner_chain(owner_identity))
    everything = set(objects).union(*chains.values())
    lower_kind = KIND_OF.get(kind_name, kind_name).lower()
    of_kind = {f"{owner.namespace}/{owner.name}": owner for owner in everything if owner.kind.lower() == lower_kind}
    if not of_kind and kind_name not in KIND_OF:
        makers = {owner.kind.lower() for owner in everything if any(owner in chain for chain in chains.values())}
        similar = shape.nearest_name(kind_name, [*KIND_OF, *sorted(makers), "pod", "claim", "device"])
        remedy = (
            f"did you mean {similar}/{name}?"
            if similar
            else "name a pod, a claim, a device or a kind that creates pods"
        )
        raise MissingObject(f"there is no object of kind {kind_name!r}, and no pod with an owner of this kind", remedy)
    identity = of_kind[find(lower_kind, name, namespace, of_kind)]
    pods = [reading.pods[key] for key, chain in sorted(chains.items()) if identity in chain]
    return Workload(identity, objects.get(identity), pods)


def workload_story(kind_name: str, name: str, namespace: str, reading: Reading) -> WorkloadStory:
    """Return the story of a workload by its kind and name."""
    owner, obj, pods = find_workload(kind_name, name, namespace, reading)
    desired: int | None = None
    webhook = WebhookStory()
    unreadable: list[ObjectIdentity] = []  # pods that the object would create
    if obj is not None:
        templates = list(created_pods(obj))
        desired = sum(created.replicas for created in templates) if templates else None
        webhook = decide_now(obj, reading)
        if not pods:  # the story is about pods that are in no cluster yet
            future_pods: dict[str, Pod] = {}
            raw: list[Object] = []
            for created in templates:
                raw.append(created.pod)
                try:
                    read = read_object(created.pod)
                except WireError:
                    unreadable.append(identity_of(created.pod))
                    continue
                if isinstance(read, Pod):
                    future_pods[read.metadata.key] = read
            with_pods = reading.with_types({Pod: reading.pods | future_pods})
            reading = replace(with_pods, objects=(*reading.objects, *raw))
            pods = list(future_pods.values())
    groups: defaultdict[object, list[Pod]] = defaultdict(list)
    for pod in pods:
        conditions = tuple(
            condition.message or condition.reason for condition in pod.status.conditions if condition.status == FALSE
        )
        fate = pod.status.phase, bool(pod.spec.node_name), bool(pod.metadata.deletion_timestamp), conditions
        groups[fate if pod.metadata.uid else pod.metadata.name].append(pod)
    groups_of_pods = [
        PodsAlike(
            names=tuple(pod.metadata.name for pod in group),
            first=pod_story(group[0].metadata.key, reading),
        )
        for group in groups.values()
    ]
    for pod_id in unreadable:
        story = pod_story(f"{pod_id.namespace}/{pod_id.name}", reading)
        groups_of_pods.append(PodsAlike(names=(pod_id.name,), first=story))
    # Waiting pods come first, among these the ones with devices, then the largest group.
    groups_of_pods.sort(
        key=lambda group: (bool(group.first.node), not group.first.webhook.decisions, -len(group.names))
    )
    return WorkloadStory(
        kind=owner.kind,
        name=f"{owner.namespace}/{owner.name}",
        desired_pods=desired,
        running_pods=sum(pod.status.phase == "Running" for pod in pods),
        pods=tuple(groups_of_pods),
        webhook=webhook,
        conditions=tuple(_failures(owner, reading)),
    )


def _failures(workload: ObjectIdentity, reading: Reading) -> Iterator[str]:
    """Yield why the controllers of a workload create no pods: from their events and conditions, as `doctor` does."""
    findings = {finding.object: finding for finding in find_refused_pods(reading)}
    for obj in reading.objects:
        _, kind, namespace, name = identity = identity_of(obj)
        finding = findings.get(f"{kind}/{namespace}/{name}")
        if finding is not None and workload in (identity, owner_of(obj)):
            yield f"{finding.object} {finding.code}: {finding.message} ({finding.remedy})"
