"""A survey as a report to hand on, as HTML or Markdown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.survey.screen import OWN_CLAIMS, SIDE_TEXTS, network_tables, totals, why
from dra.texts import count_of, list_first
from rendering import formats
from rendering.report import Marked, Report, Rows, Screen, Why, striped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.survey.overview import Overview
    from rendering.report import Cell

_NAMED = 12  # nodes


def report(overview: Overview) -> Report:
    """Make the report."""
    server = f"Kubernetes {overview.server}, " if overview.server else ""
    counted = list(totals(overview))
    outcomes = [(number, Marked(outcome), meaning) for outcome, number, meaning in counted]
    reasons = [
        (one.workloads, one.pods, Marked(one.outcome), one.key, Why(f"{why(one)}{f' [{one.code}]' if one.code else ''}", one.remedy))
        for one in overview.reasons
    ]  # fmt: skip
    plugins = [
        (one.key, one.nodes, one.devices, one.moving, one.staying, one.freed, one.stranded) for one in overview.plugins
    ]
    drivers = [(one.driver, one.nodes, one.devices) for one in overview.drivers]
    sides: list[Sequence[Cell]] = []
    for side in overview.sides if plugins or drivers else ():
        for name, meaning in SIDE_TEXTS.items():
            if nodes := getattr(side, name):
                sides.append((side.key, len(nodes), meaning, list_first(nodes, _NAMED)))
    workloads: list[Sequence[Cell]] = []
    for one in overview.workloads:
        requests: dict[str, None] = {}  # each key once
        for key in one.keys:
            amount = f" = {key.amount}" if key.amount else ""
            requests[f"{key.key}{amount}{f': {reason}' if (reason := why(key)) else ''}"] = None
        would = f"would be {one.would} in mode enforce" if one.would else ""
        outcome = Marked(one.outcome or OWN_CLAIMS)
        workloads.append((one.namespace, (one.kind, one.name), outcome, one.pods, (would, *requests)))
    used = ("Used by what moves", "Used by what stays", "Freed", "Stranded")
    parts = (
        f"{server}{count_of(overview.objects, 'object')} read, {count_of(overview.pods, 'living pod')} among them.",
        "" if overview.workloads else "No workload requests a device.",
        striped({outcome: number for outcome, number, _ in counted}) if counted else "",
        Rows(("Workloads", "Outcome", ""), outcomes),
        Rows(("Workloads", "Pods", "Outcome", "Key", "Why, and what to do"), reasons, "To decide"),
        *(Screen(lines, title) for title, lines in network_tables(overview.network)),
        formats.table(formats.by_object(overview.obstacles), title="In the way"),
        Rows(("Key", "Nodes", "Devices", *used), plugins, "Devices of device plugins"),
        Rows(("Driver", "Nodes", "Devices"), drivers, "Devices of drivers"),
        Rows(("Key", "Nodes", "which", "Names"), sides, "Node by node"),
        Rows(("Namespace", "Workload", "Outcome", "Pods", "What it requests"), workloads, "Workloads"),
    )
    return Report("Accelerator workloads: what becomes of them", parts)
