"""One pod's way through a playground, told as a `Fate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cli.playground.story import End, Fate, asked, given, wanted
from webhook import names
from webhook.translate import at, controller_kind, mapping, paths

if TYPE_CHECKING:
    from cli.playground.playground import Playground
    from dra.objects import Pod


def pod_of(obj: dict[str, Any]) -> dict[str, Any] | None:
    """The object itself if it is a pod, the pod that its controller would make if it is a workload, else None."""
    path = next(iter(paths(obj)), None)
    if path is None:
        return None
    if not path:
        return named(obj)
    template, owner = at(obj, path), mapping(obj.get("metadata"))
    reference = {"kind": controller_kind(str(obj.get("kind"))), "name": owner.get("name"), "controller": True}
    metadata = {**mapping(template.get("metadata")), "name": f"{owner.get('name')}-0", "ownerReferences": [reference]}
    if "namespace" in owner:
        metadata["namespace"] = owner["namespace"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def named(pod: dict[str, Any]) -> dict[str, Any]:
    """Give a pod that only has a generateName a name, as the API server would after us."""
    metadata = mapping(pod.get("metadata"))
    if metadata.get("name") or not metadata.get("generateName"):
        return pod
    return pod | {"metadata": metadata | {"name": f"{metadata['generateName']}0"}}


async def end_of(here: Playground, pod: dict[str, Any], seconds: float, *, shows: str = "") -> Fate:
    """Push a pod and wait until it has a node, or a reason for having none."""
    answer = await here.push(pod)
    meta = mapping(pod.get("metadata"))
    if answer.stored is None:
        return Fate(
            name=str(meta.get("name", "?")),
            shows=shows,
            end=End.REFUSED,
            asked=asked(pod),
            because=tuple(answer.refusal.split("; ")),
            told=answer.warnings,
        )
    stored = answer.stored["metadata"]
    late = not await here.settled([(stored["namespace"], stored["name"])], seconds)
    fate = await seen(here, await here.pod(stored["namespace"], stored["name"]))
    because = (*fate.because, f"nothing more was decided within {seconds:g} s") if late else fate.because
    return msgspec.structs.replace(fate, shows=shows, asked=asked(pod), told=answer.warnings, because=because)


async def seen(here: Playground, pod: Pod) -> Fate:
    """Tell what is to be seen of a pod that was stored."""
    claims = await here.claims(pod)
    waits = "" if pod.spec.node_name else next((c.message for c in pod.status.conditions if c.message), "")
    fate = Fate(
        name=pod.metadata.name,
        end=End.PLACED if pod.spec.node_name else End.WAITS,
        became=tuple(wanted(claim) for claim in claims),
        runs=tuple(
            f"{pod.spec.node_name}: {given(claim.status.allocation.devices.results)}"
            for claim in claims
            if claim.status.allocation and pod.spec.node_name
        ),
        because=tuple(waits.split("; ")) if waits else (),
    )
    if names.ORIGINAL in pod.metadata.annotations or pod.spec.resource_claims:
        return fate
    return msgspec.structs.replace(fate, end=End.UNTOUCHED, became=("left as it is",), because=())
