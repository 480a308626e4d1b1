"""A story as a report to hand on: what is said first, what is drawn, and the lines of the terminal in full. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from cli.explain.screen import (
    screen_of_claim,
    screen_of_device,
    screen_of_pod,
    screen_of_server,
    screen_of_workload,
)
from cli.explain.stories import DeviceStory, Loner, PodStory, WorkloadStory
from cli.html import SAID, squares
from cli.report import Drawn, Part, Report, Rows, Screen, amounts, striped
from dra.quantity import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cli.explain.stories import ClaimStory
    from cli.loading import ServerMeant, Unread
    from cli.report import Cell

Told = PodStory | WorkloadStory | Loner | DeviceStory


def report(told: Told, server: ServerMeant, unread: Iterable[Unread]) -> Report:
    """Make the report of a pod, a workload, a claim or a device."""
    match told:
        case PodStory():
            title, parts, said = f"Pod {told.name}", _asking(told, told.claims), screen_of_pod(told)
        case WorkloadStory():
            rows = [(len(one.names), one.first.name, one.first.standing.message) for one in told.pods]
            fates = Rows(("Pods", "Such as", "State"), rows)
            title, parts, said = f"{told.kind} {told.name}", iter((fates,)), screen_of_workload(told)
        case Loner():
            title, parts, said = f"Claim {told.claim.name}", _asking(told, [told.claim]), screen_of_claim(told)
        case _:
            title, parts, said = f"Device {told.name}", _device(told), screen_of_device(told)
    full = Screen([*said, *screen_of_server(server)], "In full")
    missing = Rows(("What", "Why"), [(one.kind, one.reason) for one in unread], "Not read, so something may be missing")
    return Report(title, (*parts, full, missing))


def _asking(told: PodStory | Loner, claims: Iterable[ClaimStory]) -> Iterator[Part]:
    """Show the claims of a pod, or one that stands by itself, and what is to be expected for them."""
    yield told.standing.message or "There is nothing to do."
    held = [(one.name, one.state.value, one.since, tuple(it.device for it in one.devices)) for one in claims]
    yield Rows(("Claim", "State", "Since", "Devices"), held, "Claims")
    if told.prospect is not None:
        # How many nodes could serve it, and who is in the way.
        counts: Counter[str] = Counter()
        for group in told.prospect.groups:
            counts[group.verdict.value] += group.count
        yield Rows(("Nodes", "Verdict"), [(number, verdict) for verdict, number in counts.items()], "Where it could go")
        if counts:
            yield striped(counts)
        if told.prospect.nearest:
            yield told.prospect.nearest
        blockers = [
            (one.node, ", ".join(one.pods) or f"claim {one.claim}", one.devices, one.since)
            for one in told.prospect.blockers
        ]
        yield Rows(("Node", "Who", "Devices", "Since"), blockers, "In the way")
    quotas: list[Sequence[Cell]] = []
    for use in told.quota:
        drawn = amounts(use.hard, use.used, use.asked)
        quotas.append((use.line, drawn, use.hard, use.used, use.asked, "yes" if use.exceeded else "no"))
    yield Rows(("Line", "", "Hard", "Used", "Asked", "Beyond"), quotas, "Quota")


def _device(told: DeviceStory) -> Iterator[Part]:
    said = SAID.get(told.state, told.state)
    if told.state in SAID:
        yield Drawn(squares([(told.state, said)]))
    yield f"{said}{f', on node {told.node}' if told.node else ''}"
    capacity = [
        (name, amounts(whole, str(Quantity.parse(whole) - Quantity.parse(told.available[name]))), told.available[name], whole)
        for name, whole in told.capacity.items() if name in told.available
    ]  # fmt: skip
    yield Rows(("Capacity", "", "Left", "Of"), capacity)
    holders = [
        (", ".join(one.pods) or f"claim {one.claim}", one.since, ", ".join(f"{key}={amount}" for key, amount in one.share.items()))
        for one in told.holders
    ]  # fmt: skip
    yield Rows(("Holder", "Since", "Share"), holders)
