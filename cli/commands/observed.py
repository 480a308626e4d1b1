"""`drawbridge observed`: counts the decisions of running webhooks by namespace, from their logs."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from analysis.errors import Broken
from analysis.report import Report, Rows, Screen
from cli import options
from cli.answers import write
from cli.command import declare
from cli.exits import Exit
from cli.output import warn
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analysis.observations import SeenNamespace
    from analysis.report import Cell

_SHOWN = 5  # the most reasons of a namespace in a report


@declare(
    "observed",
    examples=(
        "kubectl -n drawbridge-system logs deploy/drawbridge-webhook --tail=-1 | drawbridge observed",
        "drawbridge observed webhook.log -n team-a -o json",
    ),
)
@click.argument("logs", nargs=-1, metavar="[FILE|-]...")
@options.namespaced("Only this namespace.")
@options.output("text", "json", "markdown", default="text")
def command(*, logs: tuple[str, ...], namespace: str, output: str) -> Exit:
    """Count the webhook's outcomes for the pods of each namespace, with the reasons.

    In a mode other than enforce, the outcomes are those that enforce would have had. The command reads the logs of webhooks at level
    info, from files or standard input. The logs do not have pods without an accelerator.
    """
    from analysis.observations import summarise

    if not logs and sys.stdin.isatty():
        raise Broken("no logs are given", "name files, or pipe in `kubectl logs` of the webhook")
    with ExitStack() as opened:
        lines: list[Iterable[bytes]] = []
        for name in logs or ("-",):
            try:
                lines.append(sys.stdin.buffer if name == "-" else opened.enter_context(Path(name).open("rb")))
            except OSError as error:
                raise Broken(f"{name}: cannot be read: {error.strerror or error}", "check the path") from error
        summaries = summarise((line for log in lines for line in log), warn)
    if not summaries:
        warn(
            "no decision of a webhook was read: pass the webhook's log, from `kubectl logs`; the webhook logs decisions only at level info"
        )
    shown = [row for row in summaries if namespace in ("", row.namespace)]
    write(output, lambda: _report(shown), lambda: {"namespaces": [msgspec.to_builtins(row) for row in shown]})
    return Exit.FINE


def _report(shown: Sequence[SeenNamespace]) -> Report:
    """Count the pods by namespace, with the first reasons of each."""
    from webhook.dialects import Outcome

    totalled = {outcome: sum(row.outcomes.get(outcome, 0) for row in shown) for outcome in Outcome}
    counts = {outcome: count for outcome, count in totalled.items() if count}
    head = ("Namespace", "Mode", *(outcome.capitalize() for outcome in counts))
    rows: list[Sequence[Cell]] = [
        (row.namespace, row.mode, *(row.outcomes.get(outcome, 0) for outcome in counts)) for row in shown
    ]
    reasons: list[str] = []
    for row in shown:
        reasons += [
            f"{row.namespace}: {reason.outcome}: {reason.text} ({count_of(reason.pods, 'pod')})"
            for reason in row.reasons[:_SHOWN]
        ]
        if len(row.reasons) > _SHOWN:
            more = count_of(len(row.reasons) - _SHOWN, "more reason")
            reasons.append(f"{row.namespace}: and {more} (see -o json)")
    pods = count_of(sum(counts.values()), "pod")
    namespaces = count_of(len({row.namespace for row in shown}), "namespace")
    totals = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    summary = f"{pods} in {namespaces}{f': {totals}' if totals else ''}"
    return Report("Decisions of webhooks", (Rows(head, rows), Screen(reasons)), summary)
