"""`drawbridge doctor`: finds what is wrong in a cluster, with remedies; `--repair` asks, then repairs what it can.

It reads a live cluster, or with `-f` a dump. A repair fails if its object changed since it was read.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from cli import contract as inputs
from cli import loop
from cli.configuration import configuration_of
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cli.doctor import Ailment
    from cli.report import Cell, Report
    from cluster.protocol import Cluster

Outcome = dict[str, Any]


@inputs.command(
    "doctor",
    empty={"findings": [], "unread": []},
    examples=("drawbridge doctor -f dump.yaml", "drawbridge doctor --repair --yes"),
)
@inputs.files(required=False, help="A dump of a cluster instead of a live one. May be repeated.")
@inputs.option("--repair", "Repair what can be repaired, and ask before each change.")
@inputs.option("--yes", "With --repair: do not ask.")
@inputs.config("The DrawbridgeConfiguration of the cluster. Default: the one that is installed there.")
@inputs.reached()
@inputs.output("text", "json", "markdown", "html", default="text")
def command(
    *, files: tuple[str, ...], repair: bool, yes: bool, config: str, kubeconfig: str, context: str, output: str
) -> Exit:
    """Find what is wrong with claims, pods, templates, leases and the parts of drawbridge in a cluster."""
    if repair and files:
        raise Broken("--repair needs a live cluster, and excludes -f", "leave --repair out, or -f")
    if repair and not yes and (output != "text" or not sys.stdin.isatty()):
        raise Broken("--repair cannot ask for confirmation here", "give --yes, or run it on a terminal with -o text")
    configuration = configuration_of(config, files) if config else None
    from cli.doctor import describe, diagnose, read_dump, survey, write_repair
    from cluster.errors import ClusterError
    from cluster.kubernetes import Kubernetes

    now = datetime.now(UTC)
    unread: dict[str, str] = {}

    async def look(cluster: Cluster) -> list[Outcome]:
        """Examine a live cluster, and repair what the user confirms."""
        server = cluster if isinstance(cluster, Kubernetes) else None
        observed = await survey(cluster, now, configuration, server)
        unread.update(observed.unread)
        ailments = diagnose(observed)
        outcomes = [_outcome(one) for one in ailments]
        for one, outcome in zip(ailments, outcomes, strict=True):
            if one.repair is None or not repair:
                continue
            if not yes and not click.confirm(f"{one.object}: {one.message}. Shall I {describe(one.repair)}?"):
                continue
            try:
                problem = await write_repair(cluster, one.repair)
            except ClusterError as error:  # other repairs may be permitted
                problem = str(error)
            outcome |= {"repaired": not problem, "problem": problem}
        return outcomes

    if files:
        outcomes = [_outcome(one) for one in diagnose(read_dump(files, now, configuration))]
    else:
        outcomes = loop.visit(kubeconfig, context, look, "docs/doctor.md")
    if output == "json":
        inputs.write_json(
            {"findings": outcomes, "unread": [{"kind": kind, "reason": why} for kind, why in unread.items()]}
        )
    elif output in ("markdown", "html"):
        inputs.write_report(_report(outcomes, unread))
    else:
        unread_too = [f"not read: {', '.join(sorted(unread))}"] if unread else []
        lines: list[str] = []
        for one in outcomes:
            lines.append(f"{one['object']}: {one['what']}: {one['message']}")
            if one["repaired"]:
                lines.append(f"  done: {one['repair']}")
                continue
            lines.append(f"  {one['remedy']}")
            if one["repair"]:
                lines.append(f"  --repair would {one['repair']}")
            if one["problem"]:
                lines.append(f"  not done: {one['problem']}")
        done = sum(one["repaired"] for one in outcomes)
        repaired = f", {done} repaired" if done else ""
        lines.append(f"{inputs.count_of(len(outcomes), 'finding')}{repaired}")
        inputs.print_lines([*lines, *unread_too])
    if all(one["repaired"] for one in outcomes):
        return Exit.UNDECIDED if unread else Exit.FINE
    return Exit.REFUSED


def _report(outcomes: Sequence[Outcome], unread: Mapping[str, str]) -> Report:
    from cli.report import Report, Rows, Why

    has_repairs = any(one["repair"] for one in outcomes)
    head = ["Object", "What", "Why, and what to do"]
    if has_repairs:
        head.append("What --repair does")
    rows: list[list[Cell]] = []
    for one in outcomes:
        row: list[Cell] = [one["object"], one["what"], Why(one["message"], one["remedy"])]
        if has_repairs:
            repair = f"done: {one['repair']}" if one["repaired"] else one["repair"]
            row.append((repair, one["problem"]))
        rows.append(row)
    found = Rows(head, rows)
    left_out = Rows(("Kind", "Why"), list(unread.items()), "Not read")
    return Report("Doctor", (inputs.count_of(len(outcomes), "finding"), found, left_out))


def _outcome(one: Ailment) -> Outcome:
    from cli.doctor import describe

    return {
        "what": one.kind,
        "object": one.object,
        "message": one.message,
        "remedy": one.remedy,
        "repair": describe(one.repair) if one.repair is not None else "",
        "repaired": False,
        "problem": "",
    }
