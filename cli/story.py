"""Writes the progress of pods in lines for people.

The block of a pod has its requests, its claims, and its node or why it has none. All headings have the same width. Lines are coloured only
on a terminal.
"""

from __future__ import annotations

from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from analysis import report
from analysis.explain import describe_requests
from analysis.printable import printable
from cli.terminal import coloured, wrapped
from dra.raw import containers_of, mapping
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dra.objects import (
        DeviceRequestAllocationResult,
        ResourceClaim,
    )

_HEADING = 8  # columns of "because", "warnings"
_MIN_COLUMNS = 27  # columns of a text


class End(Enum):
    """The result for a pod, with its sign and its colour."""

    PLACED = (report.PLACED, "green")
    LEFT = (report.LEFT, "dim")
    WAITS = (report.WAITS, "yellow")
    REFUSED = (report.REFUSED, "red")


class PodProgress(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    end: End
    shows: str = ""  # the comment of an example, and the number of the replica
    requested: tuple[str, ...] = ()
    outcome: str = ""  # for a pod that the webhook did not change
    claims: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()  # the node, with its devices
    because: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def lines(stories: Sequence[PodProgress], *, width: int | None, colour: bool) -> Iterator[str]:
    """Return the blocks of all pods, line by line. Pods with the same refusal, such as the replicas of a workload, have one block."""
    longest = max((len(story.name) for story in stories), default=0)
    for _, group in groupby(stories, key=_refusal_or_name):
        story, *alike = group
        sign, code = story.end.value
        end = coloured(sign, code if colour else "")
        name = coloured(printable(story.name).ljust(longest), "bold" if colour else "")
        text_column = longest + 4
        if width and width - text_column < _MIN_COLUMNS:
            text_column = 4
            yield f"{end} {name}".rstrip()
        example_lines = list(wrapped(printable(story.shows), width and width - text_column, 2))
        for number, piece in enumerate(example_lines or [""]):
            head = f"{end} {name}  " if number == 0 and text_column > longest else " " * text_column
            yield f"{head}{coloured(piece, 'dim' if colour else '')}".rstrip()
        sections = {
            "requests": story.requested,
            "outcome": (story.outcome,) if story.outcome else (),
            "claims": story.claims,
            "runs on": story.runs,
            "because": story.because,
            "warnings": story.warnings,
        }
        for heading, texts in sections.items():
            head = heading
            for text in texts:
                for piece in wrapped(printable(text), width and width - _HEADING - 5, 2):
                    yield f"    {head.ljust(_HEADING)} {piece}"
                    head = ""
        if alike:
            yield f"    and {count_of(len(alike), 'pod')} more, to {printable(alike[-1].name)}, for the same reason"
        yield ""


def _refusal_or_name(story: PodProgress) -> object:
    return msgspec.structs.replace(story, name="", shows="") if story.end is End.REFUSED else story.name


def total(stories: Sequence[PodProgress], seconds: float) -> str:
    """Count the pods by their result, in one line."""
    counts = {end: sum(story.end is end for story in stories) for end in End}
    words = {
        End.PLACED: "placed",
        End.WAITS: "waiting for devices",
        End.REFUSED: "refused",
        End.LEFT: "left",
    }
    parts = [f"{count} {words[end]}" for end, count in counts.items() if count]
    pods = "1 pod" if len(stories) == 1 else f"{len(stories)} pods"
    return f"{pods}: {', '.join(parts) or 'nothing to create'}; {seconds:.1f} s"


def describe_pod(pod: Mapping[str, object]) -> tuple[str, ...]:
    """Return what a pod's containers request beyond cpu and memory, one line per container."""
    texts = []
    spec = mapping(pod.get("spec"))
    for container in containers_of(spec):
        resources = mapping(container.get("resources"))
        amounts = {**mapping(resources.get("requests")), **mapping(resources.get("limits"))}
        requested = [f"{key} {amount}" for key, amount in amounts.items() if "/" in key]
        if requested:
            asks_for = ", ".join(requested)
            texts.append(f"{container.get('name')}: {asks_for}")
    return tuple(texts)


def describe_claim(claim: ResourceClaim) -> str:
    """Return the name of a claim and its requests in a few words."""
    return f"{claim.metadata.name}: " + "; ".join(describe_requests(claim))


def describe_devices(results: Sequence[DeviceRequestAllocationResult]) -> str:
    """Return the devices of a claim, with the consumed capacity of shared devices."""
    parts = []
    for result in results:
        part = ", ".join(f"{amount} {name}" for name, amount in result.consumed_capacity.items())
        parts.append(f"{result.device} ({part})" if part else result.device)
    return ", ".join(parts)
