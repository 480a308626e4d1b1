"""The progress of one pod in a playground, as a `PodProgress`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from analysis.arrivals import created_pods
from cli.story import End, PodProgress, describe_claim, describe_devices, describe_pod
from dra.raw import mapping
from webhook import names
from webhook.dialects import Outcome
from webhook.translate import outcome_of

if TYPE_CHECKING:
    from analysis.loading import GeneratedNames
    from cli.playground.playground import Playground
    from dra.objects import Pod


# The most pods of one template that are pushed.
MAX_REPLICAS = 8


class Replica(NamedTuple):
    """A pod, and a text with its place in the workload; "" if the workload has only one pod."""

    pod: dict[str, Any]
    part: str = ""


def pods_of(obj: dict[str, Any], generated: GeneratedNames | None = None) -> list[Replica]:
    """Return the object itself if it is a pod; for a workload, the first pods of each template that its controller would create."""
    replicas: list[Replica] = []
    templates = list(created_pods(obj, generated))
    for template in templates:
        # The path of a template, such as pytorchReplicaSpecs/Worker, distinguishes the templates of a workload.
        part = template.path.removesuffix("/template").removeprefix("/spec/") if len(templates) > 1 else ""
        for number in range(min(template.replicas, MAX_REPLICAS)):
            pod = template.pod
            if template.name:
                pod = pod | {"metadata": mapping(pod.get("metadata")) | {"name": f"{template.name}-{number}"}}
            replica = f"{number + 1} of {template.replicas}" if template.replicas > 1 else ""
            replicas.append(Replica(pod, ", ".join(filter(None, (part, replica)))))
    return replicas


async def end_of(playground: Playground, pod: dict[str, Any], seconds: float, *, shows: str = "") -> PodProgress:
    """Push a pod and wait until it has a node, or a reason for having none."""
    answer = await playground.push(pod)
    requested = describe_pod(pod)
    if answer.stored is None:
        meta = mapping(pod.get("metadata"))
        return PodProgress(
            name=str(meta.get("name") or f"{meta.get('generateName', '?')}*"),
            shows=shows,
            end=End.REFUSED,
            requested=requested,
            because=(answer.refusal,),
            warnings=answer.warnings,
        )
    stored = answer.stored["metadata"]
    namespace, name = stored["namespace"], stored["name"]
    settled = await playground.wait_for_pods([(namespace, name)], seconds)
    story = await story_of(playground, await playground.pod(namespace, name))
    reasons = story.because
    if not settled:
        reasons = (*reasons, f"nothing more was decided within {seconds:g} s")
    return replace(
        story,
        shows=shows,
        requested=requested,
        warnings=answer.warnings,
        because=reasons,
    )


async def story_of(playground: Playground, pod: Pod) -> PodProgress:
    """Return the progress of a stored pod: its claims, and its node or why it waits."""
    claims = await playground.claims(pod)
    waits = "" if pod.spec.node_name else next((c.message for c in pod.status.conditions if c.message), "")
    story = PodProgress(
        name=pod.metadata.name,
        end=End.PLACED if pod.spec.node_name else End.WAITS,
        claims=tuple(describe_claim(claim) for claim in claims),
        runs=tuple(
            f"{pod.spec.node_name}: {describe_devices(claim.status.allocation.devices.results)}"
            for claim in claims
            if claim.status.allocation and pod.spec.node_name
        ),
        because=(waits,) if waits else (),
    )
    if names.ORIGINAL in pod.metadata.annotations:
        return story
    decisions = await playground.decisions(pod)
    outcome = outcome_of(decisions)
    if outcome is None and pod.spec.resource_claims:
        return story
    if outcome is not Outcome.SERVED:
        return replace(story, end=End.LEFT, outcome=outcome.value if outcome else "", claims=(), because=())
    reasons = [f"{decision.key}: {decision.reason}" for decision in decisions if decision.outcome is Outcome.SERVED]
    by_plugin = (f"{pod.spec.node_name}: by its device plugin",) if pod.spec.node_name and not claims else ()
    because = (*story.because, *dict.fromkeys(reasons))
    return replace(story, outcome=outcome.value, runs=story.runs or by_plugin, because=because)
