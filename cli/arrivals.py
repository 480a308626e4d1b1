"""The pods that manifests would bring into a cluster: as the gate would let them in, and as many as their workloads make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dra.objects import template_site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cluster.manifests import Document
    from webhook.state import State

    _Object = dict[str, Any]

# Pods of one workload: who asks for more of them wants to know something else.
MOST = 1_000


class Arrivals(NamedTuple):
    """The pods and the templates they name, beside pods that the gate turns back, with the reason."""

    pods: list[_Object]
    templates: list[_Object]
    refused: dict[str, str]


def arrivals(documents: Sequence[Document], state: State) -> Arrivals:
    """Let every pod and workload through the gate. What has a node already is there as it is."""
    from cluster.patch import apply_json_patch
    from webhook.admission import decide_object
    from webhook.claims import template
    from webhook.translate import namespace_of

    found = Arrivals([], [], {})
    made: set[tuple[str, str]] = set()
    for document in documents:
        obj = document.object
        if template_site(obj) is None or _is_there_already(obj):
            continue
        done = decide_object(obj, state)
        pods = list(_pods(apply_json_patch(obj, done.operations)))
        if _is_running(obj):
            found.pods.append(obj)
            continue
        if done.refusals:
            reason = "; ".join(done.refusals)
            found.refused.update({_key(pod): f"refused at the gate: {reason}" for pod in pods})
            continue
        found.pods.extend(pods)
        namespace = namespace_of(obj)
        for name, spec in done.templates.items():
            if (namespace, name) not in made:
                made.add((namespace, name))
                found.templates.append(template.object_of(name, spec, namespace))
    return found


def _is_there_already(obj: _Object) -> bool:
    """Whether its pods are among the objects by themselves: a workload that was read from a cluster."""
    metadata = obj.get("metadata")
    return obj.get("kind") != "Pod" and isinstance(metadata, dict) and bool(metadata.get("uid"))


def _is_running(obj: _Object) -> bool:
    spec = obj.get("spec")
    return obj.get("kind") == "Pod" and isinstance(spec, dict) and bool(spec.get("nodeName"))


def _pods(obj: _Object) -> Iterator[_Object]:
    """Make the pods of a workload, named by their number; a pod is its own."""
    from webhook.translate import at, mapping, name_of, namespace_of

    site = template_site(obj)
    if site is None or obj.get("kind") == "PodTemplate":
        return
    if not site.path:
        yield obj
        return
    template = mapping(at(obj, site.path))
    labelled = mapping(template.get("metadata"))
    parent = mapping(at(obj, site.path.rpartition("/")[0]))
    count = parent.get(site.size, 1)
    name = name_of(obj).rpartition("/")[2]
    spec = template.get("spec")
    for number in range(_bounded(count)):
        metadata = {**labelled, "name": f"{name}-{number}", "namespace": namespace_of(obj)}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _bounded(count: object) -> int:
    return min(count, MOST) if isinstance(count, int) else 1


def _key(pod: _Object) -> str:
    from webhook.translate import mapping, namespace_of

    return f"{namespace_of(pod)}/{mapping(pod.get('metadata')).get('name', '')}"
