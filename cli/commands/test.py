"""`drawbridge test`: runs test cases for rules and policies, each with a pod, an inventory and the expected result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from analysis.errors import Broken
from analysis.report import Report, Screen
from cli import options
from cli.answers import write
from cli.command import declare
from cli.exits import Exit
from cli.output import quiet
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.cases import CaseResult


@declare("test", examples=("drawbridge test cases/", "drawbridge test cases/drawbridge-test.yaml -o junit"))
@click.argument("paths", nargs=-1, metavar="[FILE|DIR]...")
@options.output("text", "json", "sarif", "github", "junit", "markdown", default="text")
def command(*, paths: tuple[str, ...], output: str) -> Exit:
    """Run test cases, which compare the result for a pod under a configuration and an inventory with the expected result.

    In directories (default: the working directory) the command reads the files named drawbridge-test.yaml. Each file has `cases`. A case has
    a `name`, a `pod` (a file or an object), an `inventory`, and `expect` with `outcome`, `code`, `devices`, `left`, `says` and `fits`
    (docs/commands.md). Exit code 1: a case failed. With -q only failed cases are listed.
    """
    from analysis.findings import ObjectFindings
    from cli.cases import FILE, run
    from cluster import manifests
    from dra.finding import Finding, Place, Severity

    files: dict[Path, None] = {}
    for path in map(Path, paths or (".",)):
        below = [path]
        if path.is_dir():
            below = sorted(Path(parent, FILE) for parent, _, names in manifests.walk(path) if FILE in names)
        if not below:
            raise Broken(f"{path} contains no {FILE}", "give files of cases, or a directory that contains some")
        files |= dict.fromkeys(below)
    results = [result for file in files for result in run(file)]
    checked: list[ObjectFindings] = []
    for result in results:
        position = Place(file=result.file, line=result.line, column=1)
        findings = [
            Finding(code="case", severity=Severity.ERROR, object=result.name, path="", message=problem, place=position)
            for problem in result.problems
        ]
        checked.append(ObjectFindings(result.name, result.file, findings))
    write(
        output,
        lambda: _report(results),
        lambda: {"cases": [msgspec.to_builtins(result) for result in results]},
        findings=lambda: checked,
    )
    return Exit.FINE if all(result.passed for result in results) else Exit.REFUSED


def _report(results: Sequence[CaseResult]) -> Report:
    """List the cases with their problems; with --quiet, list only failed cases."""
    lines: list[str] = []
    for result in results:
        if not (result.passed and quiet()):
            lines.append(f"{'pass' if result.passed else 'fail'}  {result.file}:{result.line}  {result.name}")
        lines += [f"      {problem}" for problem in result.problems]
    failed = sum(not result.passed for result in results)
    summary = f"{count_of(len(results), 'case')}: {len(results) - failed} passed, {failed} failed"
    return Report("Cases", (Screen(lines),), summary)
