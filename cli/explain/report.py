"""A story as a report to hand on: what is said first, what is drawn, and the lines of the terminal in full. Pure."""

from __future__ import annotations

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
    from collections.abc import Iterable, Iterator

    from cli.explain.stories import ClaimStory, Prospect, QuotaUse
    from cli.loading import ServerMeant, Unread

Told = PodStory | WorkloadStory | Loner | DeviceStory


def report(told: Told, server: ServerMeant, unread: Iterable[Unread]) -> Report:
    """Make the report of a pod, a workload, a claim or a device."""
    match told:
        case PodStory():
            title, parts, said = f"Pod {told.name}", _pod(told), screen_of_pod(told)
        case WorkloadStory():
            title, parts, said = f"{told.kind} {told.name}", _workload(told), screen_of_workload(told)
        case Loner():
            title, parts, said = f"Claim {told.claim.name}", _claim(told), screen_of_claim(told)
        case _:
            title, parts, said = f"Device {told.name}", _device(told), screen_of_device(told)
    full = Screen([*said, *screen_of_server(server)], "In full")
    missing = Rows(("What", "Why"), [(one.kind, one.reason) for one in unread], "Not read, so something may be missing")
    return Report(title, (*parts, full, missing))


def _pod(told: PodStory) -> Iterator[Part]:
    yield told.standing.message or "Nothing is to be done."
    yield _claims(told.claims)
    yield from _prospect(told.prospect)
    yield _quota(told.quota)


def _workload(told: WorkloadStory) -> Iterator[Part]:
    rows = [(len(one.names), one.first.name, one.first.standing.message) for one in told.pods]
    yield Rows(("Pods", "Such as", "How they fare"), rows)


def _claim(told: Loner) -> Iterator[Part]:
    yield told.standing.message or "Nothing is to be done."
    yield _claims([told.claim])
    yield from _prospect(told.prospect)
    yield _quota(told.quota)


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


def _claims(claims: Iterable[ClaimStory]) -> Rows:
    rows = [(one.name, one.state.value, one.since, tuple(it.device for it in one.devices)) for one in claims]
    return Rows(("Claim", "State", "Since", "Devices"), rows, "Claims")


def _prospect(prospect: Prospect | None) -> Iterator[Part]:
    """Draw how many nodes could serve it, and name who is in the way."""
    if prospect is None:
        return
    counts: dict[str, int] = {}
    for one in prospect.groups:
        counts[one.verdict.value] = counts.get(one.verdict.value, 0) + one.count
    rows = [(number, verdict) for verdict, number in counts.items()]
    yield Rows(("Nodes", "Verdict"), rows, "Where it could go")
    if counts:
        yield striped(counts)
    if prospect.nearest:
        yield prospect.nearest
    blockers = [
        (one.node, ", ".join(one.pods) or f"claim {one.claim}", one.devices, one.since) for one in prospect.blockers
    ]
    yield Rows(("Node", "Who", "Devices", "Since"), blockers, "In the way")


def _quota(lines: Iterable[QuotaUse]) -> Rows:
    rows = [
        (
            one.line,
            amounts(one.hard, one.used, one.asked),
            one.hard,
            one.used,
            one.asked,
            "yes" if one.exceeded else "no",
        )
        for one in lines
    ]
    return Rows(("Line", "", "Hard", "Used", "Asked", "Beyond"), rows, "Quota")
