"""The pods that manifests would bring into a cluster: as the webhook would let them in, and as many as their workloads make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.manifests import Document
    from webhook.state import State

    _Object = dict[str, Any]

# The most pods of one workload that are made.
MOST = 1_000
_LARGEST = 2**31 - 1  # number of replicas that the API has
# Fields that say how often there is what stands beside them: of Deployments and most others, of Jobs, of a worker group of Ray.
_TIMES = ("replicas", "parallelism", "numOfHosts")


class Arrivals(NamedTuple):
    """The pods and the templates they name, beside pods that the webhook turns back, with the reason."""

    pods: list[_Object]
    templates: list[_Object]
    refused: dict[str, str]


class Making(NamedTuple):
    """One of the pod templates of an object: the pods that the object's controller makes of it."""

    name: str  # of its pods, before their number
    pod: _Object
    replicas: int
    path: str = ""  # of the template in the object


def arrivals(documents: Sequence[Document], state: State) -> Arrivals:
    """Let every pod and the pods of every workload through the webhook. What has a node already is there as it is."""
    from cli.devices import GeneratedNames
    from cluster.patch import apply_json_patch
    from webhook.admission import decide_object, given_by_runtime
    from webhook.claims import template
    from webhook.translate import mapping, namespace_of

    found = Arrivals([], [], {})
    generated = GeneratedNames()
    made: set[tuple[str, str]] = set()
    for document in documents:
        obj = document.object
        metadata, spec = mapping(obj.get("metadata")), mapping(obj.get("spec"))
        if obj.get("kind") != "Pod" and metadata.get("uid"):
            continue  # a workload that was read from a cluster: its pods are among the objects
        if obj.get("kind") == "Pod" and spec.get("nodeName"):
            found.pods.append(generated.name(obj))
            continue
        namespace = namespace_of(obj)
        for one in makings(obj):
            done = decide_object(one.pod, state)
            given, _ = given_by_runtime(one.pod, state)
            decided = apply_json_patch(one.pod, (*given, *done.operations))
            pods = [generated.name(decided)]
            if one.name:  # a template's: each has the metadata of the one that was decided on, and its number
                pods = [
                    decided | {"metadata": decided["metadata"] | {"name": f"{one.name}-{number}"}}
                    for number in range(min(one.replicas, MOST))
                ]
            if done.refusals:
                reason = "; ".join(map(str, done.refusals))
                for pod in pods:
                    key = f"{namespace_of(pod)}/{mapping(pod.get('metadata')).get('name', '')}"
                    found.refused[key] = f"refused by the webhook: {reason}"
                continue
            found.pods.extend(pods)
            for name, spec in done.templates.items():
                if (namespace, name) not in made:
                    made.add((namespace, name))
                    found.templates.append(template.object_of(name, spec, namespace))
    return found


def brings_pods(obj: _Object) -> bool:
    """Whether pods come of an object, and it is known how many."""
    return bool(_templates(obj))


def makings(obj: _Object) -> Iterator[Making]:
    """The pods that come of an object, one for each of its templates, as their controller would make them; a pod is its own."""
    from webhook.translate import at, controller_kind, kind_of, mapping, marks_of, name_of, namespace_of, scheduler_of

    found = _templates(obj)
    controller = controller_kind(str(obj.get("kind")))
    version = "apps/v1" if controller == "ReplicaSet" else str(obj.get("apiVersion"))
    scheduler, kind = scheduler_of(obj), kind_of(obj)
    for number, path in enumerate(found):
        if not path:
            yield Making("", obj, 1)
            continue
        owner = name_of(obj).rpartition("/")[2]
        name = f"{owner}-{number}" if len(found) > 1 else owner
        template = mapping(at(obj, path))
        metadata = {
            **mapping(template.get("metadata")),
            "name": f"{name}-0",
            "namespace": namespace_of(obj),
            # How pods name their controller, which may stand between them and the object.
            "ownerReferences": [
                {"apiVersion": version, "kind": controller, "name": owner, "uid": f"of-{owner}", "controller": True}
            ],
        }
        if marks := marks_of(obj):
            metadata["labels"] = {**mapping(metadata.get("labels")), **dict.fromkeys(marks, owner)}
        if kind and kind.group:
            metadata["annotations"] = {**mapping(metadata.get("annotations")), kind.group: owner}
        spec = mapping(template.get("spec"))
        if scheduler:
            spec = {"schedulerName": scheduler} | spec
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        # Each object around the template says how often there is what it holds.
        count = 1
        around = path
        while around:
            around = around.rpartition("/")[0]
            beside = mapping(at(obj, around))
            for times in _TIMES:
                count *= _number(beside.get(times, 1))
            if "workerTemplate" in beside and path.endswith("/workerTemplate"):
                has_leader = "leaderTemplate" in beside  # which is one of the group of that size
                count *= _number(beside.get("size", 1)) - has_leader
        yield Making(name, pod, min(count, _LARGEST), path)


def _templates(obj: _Object) -> list[str]:
    """Point to the templates of which a controller makes pods; a PodTemplate waits for others to name it."""
    from webhook.translate import paths

    return [] if obj.get("kind") == "PodTemplate" else paths(obj)


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        return 1
    return max(0, value)
