"""One pod's way through a playground, told as a `Fate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from cli.fates import End, Fate, asked, given, wanted

if TYPE_CHECKING:
    from cli.playground import Playground
    from dra.pod import Pod

SHOWS = "demo/shows"
ORIGINAL = "drawbridge.dev/original"


async def end_of(here: Playground, pod: dict[str, Any], seconds: float) -> Fate:
    """Push a pod and wait until it has a node, or a reason for having none."""
    answer = await here.push(pod)
    meta = pod.get("metadata") or {}
    if answer.stored is None:
        return Fate(
            name=str(meta.get("name", "?")),
            shows=str((meta.get("annotations") or {}).get(SHOWS, "")),
            end=End.REFUSED,
            asked=asked(pod),
            because=tuple(answer.refusal.split("; ")),
            told=answer.warnings,
        )
    stored = answer.stored["metadata"]
    await here.settled([(stored["namespace"], stored["name"])], seconds)
    fate = await seen(here, await here.pod(stored["namespace"], stored["name"]))
    return msgspec.structs.replace(fate, asked=asked(pod), told=answer.warnings)


async def seen(here: Playground, pod: Pod) -> Fate:
    """Tell what is to be seen of a pod that was stored."""
    claims = await here.claims(pod)
    waits = "" if pod.spec.node_name else next((c.message for c in pod.status.conditions if c.message), "")
    fate = Fate(
        name=pod.metadata.name,
        shows=pod.metadata.annotations.get(SHOWS, ""),
        end=End.PLACED if pod.spec.node_name else End.WAITS,
        became=tuple(wanted(claim) for claim in claims),
        runs=tuple(
            f"{pod.spec.node_name}: {given(claim.status.allocation.devices.results)}"
            for claim in claims
            if claim.status.allocation and pod.spec.node_name
        ),
        because=tuple(waits.split("; ")) if waits else (),
    )
    if ORIGINAL in pod.metadata.annotations or claims:
        return fate
    return msgspec.structs.replace(fate, end=End.UNTOUCHED, became=("left as it is",), because=())
