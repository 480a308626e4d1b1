"""A survey as a report to hand on, as HTML or Markdown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli.report import Part, Report, Rows, Why, marked, striped
from cli.survey.screen import SAID, STANDING
from cli.survey.verdicts import Outlook
from cli.terminal import count_of, few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.survey.overview import Asking, Overview

_NAMED = 12  # nodes


def report(seen: Overview) -> Report:
    """Make the report."""
    return Report("Accelerator workloads: what becomes of them", tuple(_parts(seen)))


def _parts(seen: Overview) -> Iterator[Part]:
    server = f"Kubernetes {seen.server}, " if seen.server else ""
    yield f"{server}{count_of(seen.objects, 'object')} read, {count_of(seen.pods, 'living pod')} among them."
    if not seen.workloads:
        yield "No workload asks for a device."
    fates = {fate.value: seen.fates[fate] for fate in Outlook if seen.fates[fate]}
    if fates:
        yield striped(fates)
    yield Rows(("Workloads", "Fate", ""), [(number, marked(fate), SAID[Outlook(fate)]) for fate, number in fates.items()])  # fmt: skip
    reasons = [
        (one.workloads, one.pods, marked(one.fate), one.key, Why(f"{one.detail}{f' [{one.code}]' if one.code else ''}", one.remedy))
        for one in seen.reasons
    ]  # fmt: skip
    yield Rows(("Workloads", "Pods", "Fate", "Key", "Why, and what to do"), reasons, "To decide")
    obstacles = [(one.what, one.object, Why(one.message, one.remedy)) for one in seen.obstacles]
    yield Rows(("What", "Where", "Why, and what to do"), obstacles, "In the way")
    head = ("Key", "Nodes", "Devices", "Used by what moves", "Used by what stays", "Freed", "Stranded")
    plugins = [
        (one.key, one.nodes, one.devices, one.moving, one.staying, one.freed, one.stranded) for one in seen.plugins
    ]
    yield Rows(head, plugins, "Devices of device plugins")
    drivers = [(one.driver, one.nodes, one.devices) for one in seen.drivers]
    yield Rows(("Driver", "Nodes", "Devices"), drivers, "Devices of drivers")
    sides = [
        (side.key, len(nodes), said, few(nodes, _NAMED))
        for side in (seen.sides if plugins or drivers else ())
        for name, said in STANDING.items()
        if (nodes := getattr(side, name))
    ]
    yield Rows(("Key", "Nodes", "which", "Names"), sides, "Node by node")
    workloads = [
        (one.namespace, (one.kind, one.name), marked(one.fate), one.pods, _asked(one)) for one in seen.workloads
    ]
    yield Rows(("Namespace", "Workload", "Fate", "Pods", "What it asks for"), workloads, "Workloads")
    unread = [(one.kind, one.reason) for one in seen.unread]
    yield Rows(("What", "Why"), unread, "Not read, so this survey is not whole")


def _asked(one: Asking) -> tuple[str, ...]:
    """List what a workload asks for, each key once."""
    asked: dict[str, None] = {}
    for key in one.keys:
        amount = f" = {key.amount}" if key.amount else ""
        asked[f"{key.key}{amount}{f': {key.detail}' if key.detail else ''}"] = None
    return tuple(asked)
