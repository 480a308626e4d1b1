"""`drawbridge doctor`: finds what is wrong in a cluster, with remedies; `--repair` asks, then repairs what it can.

It reads a live cluster, or with `-f` a dump. A repair fails if the object has changed since the command read it.
"""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec.structs import replace

from analysis.errors import Broken
from cli import loop, options
from cli.answers import write
from cli.command import declare
from cli.configuration import given_configuration, report_configuration
from cli.exits import Exit
from cli.output import warn
from dra.codes import Severity
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from analysis.doctor import DoctorInput
    from analysis.report import Part, Report
    from analysis.rules import NotChecked
    from cli.files import InputFiles
    from cluster.protocol import Cluster
    from dra.finding import Finding

_PAGE = "docs/commands.md#drawbridge-doctor"


class RepairOutcome(NamedTuple):
    """What `--repair` would do about a finding ("" for nothing), whether it did so, and why it did not."""

    repair: str = ""
    repaired: bool = False
    problem: str = ""

    def lines(self) -> list[str]:
        """Return the outcome as lines of text."""
        if self.repaired:
            return [f"done: {self.repair}"]
        lines = [f"--repair would {self.repair}"] if self.repair else []
        return [*lines, f"not done: {self.problem}"] if self.problem else lines


@declare("doctor", examples=("drawbridge doctor -f dump.yaml", "drawbridge doctor --repair --yes"))
@options.files(help="A dump of a cluster instead of a live one. May be repeated.")
@options.option("--repair", "Repair what can be repaired, and ask before each change.")
@options.option("--yes", "With --repair: do not ask.")
@options.config()
@options.cluster_access()
@options.verbose()
@options.output("text", "json", "sarif", "github", "junit", "markdown", default="text")
def command(
    *,
    files: InputFiles,
    repair: bool,
    yes: bool,
    config: str,
    kubeconfig: str,
    context: str,
    verbose: bool,
    output: str,
) -> Exit:
    """Find what is wrong with claims, pods, templates, leases and the parts of drawbridge in a cluster."""
    if repair and files:
        raise Broken("--repair needs a live cluster, and excludes -f", "leave --repair out, or -f")
    if repair and not yes and (output != "text" or not sys.stdin.isatty()):
        raise Broken("--repair cannot ask for confirmation here", "give --yes, or run it on a terminal with -o text")
    given = given_configuration(config)
    from analysis.doctor import RULES, describe, diagnose, of_dump, survey, write_repair
    from analysis.findings import by_object, report_of_findings
    from analysis.rules import not_checked
    from cli.files import refuse_without_fleet
    from cli.formats import as_json
    from cli.loading import read_dump
    from cluster.errors import ClusterError
    from cluster.kubernetes import Kubernetes

    async def look(cluster: Cluster) -> DoctorInput:
        return await survey(cluster, datetime.now(UTC), given, cluster if isinstance(cluster, Kubernetes) else None)

    if files:
        reading = read_dump(files, given, judged=True)
        refuse_without_fleet(reading.objects)
        observed = of_dump(reading)
    else:
        observed = loop.visit(kubeconfig, context, look, _PAGE)
    for warning in observed.warnings if verbose or observed.reading.is_live else ():
        warn(warning)
    changes = diagnose(observed)
    outcomes = {
        finding: RepairOutcome("" if change is None else describe(change)) for finding, change in changes.items()
    }

    async def mend(cluster: Cluster) -> None:
        """Repair what the user confirms."""
        for finding, change in changes.items():
            if change is None:
                continue
            if not yes and not click.confirm(f"{finding.object}: {finding.message}. Shall I {describe(change)}?"):
                continue
            try:
                problem = await write_repair(cluster, change)
            except ClusterError as error:  # other repairs may be permitted
                problem = str(error)
            outcomes[finding] = RepairOutcome(describe(change), not problem, problem)

    if repair:
        loop.visit(kubeconfig, context, mend, _PAGE)
    in_force, unread = observed.reading.in_force, observed.reading.unread
    missing = not_checked(RULES, observed.reading, observed.missing)
    report_configuration(in_force)
    checked = by_object(outcomes)
    notes = {finding: lines for finding, outcome in outcomes.items() if (lines := outcome.lines())}
    write(
        output,
        lambda: _report(
            report_of_findings("drawbridge doctor", checked, _summary(outcomes), notes),
            missing,
            verbose=verbose or output != "text",
        ),
        lambda: {
            "configuration": in_force.described(),
            "findings": [
                finding | outcome._asdict()
                for finding, outcome in zip(as_json(checked), outcomes.values(), strict=True)
            ],
            "notChecked": missing,
        },
        findings=lambda: checked,
        unread=unread,
    )
    if all(outcome.repaired or finding.severity is Severity.INFO for finding, outcome in outcomes.items()):
        return Exit.UNDECIDED if unread else Exit.FINE
    return Exit.REFUSED


def _summary(outcomes: Mapping[Finding, RepairOutcome]) -> str:
    done = sum(outcome.repaired for outcome in outcomes.values())
    number = Counter(finding.severity.value for finding in outcomes)
    counts = (
        f": {', '.join(f'{number[severity]} {severity}' for severity in Severity if number[severity])}"
        if number
        else ""
    )
    return f"{count_of(len(outcomes), 'finding')}{counts}{f'; {done} repaired' if done else ''}"


def _report(report: Report, missing: Sequence[NotChecked], *, verbose: bool) -> Report:
    """Add a table of the codes that were not checked; unless `verbose`, a line instead."""
    from analysis.rules import table_of_not_checked

    codes = {code for entry in missing for code in entry.codes}
    part: Part = table_of_not_checked(missing)
    if codes and not verbose:
        inputs = ", ".join(sorted({name for entry in missing for name in entry.inputs}))
        part = f"{count_of(len(codes), 'code')} not checked for lack of input ({inputs}); `-v` lists the reasons"
    return replace(report, parts=(*report.parts, part))
