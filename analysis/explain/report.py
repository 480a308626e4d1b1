"""Makes a report of a story: a summary, tables, and all lines that the terminal shows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from analysis.capacity import STATE_TEXTS
from analysis.explain.screen import (
    screen_of_claim,
    screen_of_device,
    screen_of_pod,
    screen_of_server,
    screen_of_workload,
)
from analysis.explain.stories import DeviceStory, LoneClaimStory, PodStory, WorkloadStory
from analysis.report import Part, Report, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from analysis.explain.stories import ClaimStory
    from analysis.loading import AssumedServer

Story = PodStory | WorkloadStory | LoneClaimStory | DeviceStory


def report(story: Story, server: AssumedServer) -> Report:
    """Return the report about a pod, a workload, a claim or a device."""
    match story:
        case PodStory():
            title, parts, lines = f"Pod {story.name}", _claim_parts(story, story.claims), screen_of_pod(story)
        case WorkloadStory():
            rows = [(len(pod.names), pod.first.name, pod.first.state.reasons[0].text) for pod in story.pods]
            fates = Rows(("Pods", "Such as", "State"), rows)
            title, parts, lines = f"{story.kind} {story.name}", iter((fates,)), screen_of_workload(story)
        case LoneClaimStory():
            title, parts, lines = (
                f"Claim {story.claim.name}",
                _claim_parts(story, [story.claim]),
                screen_of_claim(story),
            )
        case _:
            title, parts, lines = f"Device {story.name}", _device_parts(story), screen_of_device(story)
    return Report(title, tuple(parts), full=[*lines, *screen_of_server(server)])


def _claim_parts(story: PodStory | LoneClaimStory, claims: Iterable[ClaimStory]) -> Iterator[Part]:
    """Show the claims of a pod, or a single claim, and their prospect."""
    reason = story.reason if isinstance(story, LoneClaimStory) else story.state.reasons[0]
    yield reason.text
    yield from reason.remedies
    claim_rows = [
        (claim.name, claim.state.value, claim.since, tuple(device.device for device in claim.devices))
        for claim in claims
    ]
    yield Rows(("Claim", "State", "Since", "Devices"), claim_rows, "Claims")
    if story.prospect is not None:
        # How many nodes could serve the pod or claim, and which claims are in the way.
        counts: Counter[str] = Counter()
        for group in story.prospect.groups:
            counts[group.verdict.value] += len(group.nodes)
        yield Rows(("Nodes", "Verdict"), [(number, verdict) for verdict, number in counts.items()], "Where it could go")
        blockers = [
            (blocker.node, ", ".join(blocker.pods) or f"claim {blocker.claim}", blocker.devices, blocker.since)
            for blocker in story.prospect.blockers
        ]
        yield Rows(("Node", "Who", "Devices", "Since"), blockers, "In the way")
    quotas = [(use.line, use.hard, use.used, use.requested, "yes" if use.exceeded else "no") for use in story.quota]
    yield Rows(("Line", "Hard", "Used", "Asked", "Beyond"), quotas, "Quota")


def _device_parts(story: DeviceStory) -> Iterator[Part]:
    state = STATE_TEXTS.get(story.state, story.state)
    yield f"{state}{f', on node {story.node}' if story.node else ''}"
    capacity = [
        (name, story.available[name], whole) for name, whole in story.capacity.items() if name in story.available
    ]
    yield Rows(("Capacity", "Left", "Of"), capacity)
    holders = [
        (", ".join(holder.pods) or f"claim {holder.claim}", holder.since, ", ".join(f"{key}={amount}" for key, amount in holder.share.items()))
        for holder in story.holders
    ]  # fmt: skip
    yield Rows(("Holder", "Since", "Share"), holders)
