"""The pods that manifests would create: one per replica of each workload, as the webhook would admit them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from analysis.loading import GeneratedNames
from cluster.patch import apply_json_patch
from dra.objects import Pod, ResourceClaimTemplate, defaults
from dra.raw import mapping
from dra.reason import Reason
from dra.wire import WireError, convert
from webhook.admission import changes_by_runtime_class, decide_object
from webhook.claims import template
from webhook.translate import (
    controller_kind,
    kind_of,
    labels_of_pods,
    name_of,
    namespace_of,
    paths,
    resolve_pointer,
    scheduler_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.raw import Object
    from webhook.state import State


MAX_PODS = 1_000  # pods made for one workload
_LARGEST = 2**31 - 1  # replicas (int32 in the API)
# Fields that multiply the pod template beside them: `replicas` of most workloads, `parallelism` of Jobs, `numOfHosts` of Ray worker groups.
_MULTIPLIERS = ("replicas", "parallelism", "numOfHosts")


class Arrivals(NamedTuple):
    """Admitted pods by namespace/name, and the claim templates they name; `refused` has the reason for each pod the webhook refuses."""

    pods: dict[str, Pod]
    templates: list[ResourceClaimTemplate]
    refused: dict[str, Reason]  # by namespace/name


class CreatedPod(NamedTuple):
    """A pod that an object's controller would create from one of the object's templates, and the number of such pods."""

    name: str  # prefix of the pods' names
    pod: Object
    replicas: int
    path: str = ""  # of the template in the object


def arrivals(objects: Iterable[Object], state: State) -> Arrivals:
    """Run every new pod, and the pods of every workload, through the webhook.

    A pod that an API server has stored is kept unchanged, because no webhook sees it again. Of two pods with the same name, the later one
    counts.
    """
    arrived = Arrivals({}, [], {})
    generated = GeneratedNames()
    added_templates: set[tuple[str, str]] = set()

    def arrive(*pods: Object) -> None:
        for pod in pods:
            try:
                typed_pod = convert(pod, Pod)
            except WireError as error:
                arrived.refused[_key_of(pod)] = Reason(text=f"cannot be read: {error}", never=True)
            else:
                arrived.pods[typed_pod.metadata.key] = typed_pod

    for obj in objects:
        metadata = mapping(obj.get("metadata"))
        if obj.get("kind") != "Pod" and metadata.get("uid"):
            continue  # a workload read from a cluster: its pods are in the input, too
        if obj.get("kind") == "Pod" and (metadata.get("uid") or mapping(obj.get("status")).get("phase")):
            arrive(generated.name(obj))
            continue
        namespace = namespace_of(obj)
        for created_pod in created_pods(obj, generated):
            verdict = decide_object(created_pod.pod, state)
            operations, _ = changes_by_runtime_class(created_pod.pod, state)
            decided = apply_json_patch(created_pod.pod, (*operations, *verdict.operations))
            pods = [generated.name(decided)]
            if created_pod.name:  # all replicas of a template get the same decision, and names with a number
                pods = [
                    decided | {"metadata": decided["metadata"] | {"name": f"{created_pod.name}-{number}"}}
                    for number in range(min(created_pod.replicas, MAX_PODS))
                ]
            if verdict.refusals:
                first, *others = verdict.refusals
                text = "; ".join((f"refused: {first.message}", *map(str, others)))
                remedies = (first.remedy,) if first.remedy else ()
                reason = Reason(text=text, code=first.code, never=True, remedies=remedies)
                arrived.refused.update({_key_of(pod): reason for pod in pods})
                continue
            arrive(*pods)
            for name, template_spec in verdict.templates.items():
                if (namespace, name) not in added_templates:
                    added_templates.add((namespace, name))
                    stored = convert(template.object_of(name, template_spec, namespace), ResourceClaimTemplate)
                    arrived.templates.append(defaults.template(stored))
    return arrived


def _key_of(pod: Object) -> str:
    return f"{namespace_of(pod)}/{mapping(pod.get('metadata')).get('name', '')}"


def brings_pods(obj: Object) -> bool:
    """Return whether the object is a pod or a workload whose controller creates pods."""
    return bool(_templates(obj))


def created_pods(obj: Object, generated: GeneratedNames | None = None) -> Iterator[CreatedPod]:
    """List the pods that an object's controller would create, one per template; a pod yields itself.

    A workload with only a generateName gets a name, from which the names of its pods follow; `generated` keeps the names of several such
    objects apart.
    """
    pointers = _templates(obj)
    if any(pointers):
        obj = (generated or GeneratedNames()).name(obj)
    controller = controller_kind(str(obj.get("kind")))
    version = "apps/v1" if controller == "ReplicaSet" else str(obj.get("apiVersion"))
    scheduler, kind = scheduler_of(obj), kind_of(obj)
    for number, path in enumerate(pointers):
        if not path:
            yield CreatedPod("", obj, 1)
            continue
        owner = name_of(obj).rpartition("/")[2]
        name = f"{owner}-{number}" if len(pointers) > 1 else owner
        pod_template = mapping(resolve_pointer(obj, path))
        metadata = {
            **mapping(pod_template.get("metadata")),
            "name": f"{name}-0",
            "namespace": namespace_of(obj),
            # The direct controller of the pods, which may be an intermediate one (a ReplicaSet).
            "ownerReferences": [
                {"apiVersion": version, "kind": controller, "name": owner, "uid": f"of-{owner}", "controller": True}
            ],
        }
        if labels := labels_of_pods(obj):
            metadata["labels"] = {**mapping(metadata.get("labels")), **labels}
        if kind and kind.group:
            metadata["annotations"] = {**mapping(metadata.get("annotations")), kind.group: owner}
        spec = mapping(pod_template.get("spec"))
        if scheduler:
            spec = {"schedulerName": scheduler} | spec
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        # Every level of the object above the template may multiply the pods.
        count = 1
        enclosing = path
        while enclosing:
            enclosing = enclosing.rpartition("/")[0]
            parent = mapping(resolve_pointer(obj, enclosing))
            for field in _MULTIPLIERS:
                count *= _number(parent.get(field, 1))
            if "workerTemplate" in parent and path.endswith("/workerTemplate"):
                has_leader = "leaderTemplate" in parent  # `size` of a LeaderWorkerSet includes the leader
                count *= _number(parent.get("size", 1)) - has_leader
        yield CreatedPod(name, pod, min(count, _LARGEST), path)


def _templates(obj: Object) -> list[str]:
    """List the paths of pod templates that a controller creates pods from; no controller creates pods from a PodTemplate."""
    return [] if obj.get("kind") == "PodTemplate" else paths(obj)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return 1
    return max(0, value)
