"""Makes a report of a story: the lines that the terminal shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.explain.screen import (
    screen_of_claim,
    screen_of_device,
    screen_of_pod,
    screen_of_server,
    screen_of_workload,
)
from analysis.explain.stories import DeviceStory, LoneClaimStory, PodStory, WorkloadStory
from analysis.report import Report, Screen

if TYPE_CHECKING:
    from analysis.loading import AssumedServer

Story = PodStory | WorkloadStory | LoneClaimStory | DeviceStory


def report(story: Story, server: AssumedServer) -> Report:
    """Return the report about a pod, a workload, a claim or a device."""
    match story:
        case PodStory():
            title, lines = f"Pod {story.name}", screen_of_pod(story)
        case WorkloadStory():
            title, lines = f"{story.kind} {story.name}", screen_of_workload(story)
        case LoneClaimStory():
            title, lines = f"Claim {story.claim.name}", screen_of_claim(story)
        case _:
            title, lines = f"Device {story.name}", screen_of_device(story)
    return Report(title, (Screen([*lines, *screen_of_server(server)]),))
