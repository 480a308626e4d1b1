"""`drawbridge test`: runs test cases for rules and policies, each a pod, an inventory and the expected result."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from cli import contract as inputs
from cli.contract import Broken, Exit
from rendering.report import Report, Screen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.cases import CaseResult


@inputs.command(
    "test",
    empty={"cases": []},
    examples=("drawbridge test cases/", "drawbridge test cases/drawbridge-test.yaml -o junit"),
)
@click.argument("paths", nargs=-1, metavar="[FILE|DIR]...")
@inputs.output("text", "json", "sarif", "github", "junit", "markdown", "html", default="text")
def command(*, paths: tuple[str, ...], output: str) -> Exit:
    """Run test cases: what becomes of pods under a configuration and an inventory.

    In directories (default: the working directory) the files named drawbridge-test.yaml are read. Each has `cases`: a `name`, a `pod` (a file
    or an object), `inventory`, and `expect`: `outcome`, `code`, `devices`, `left`, `says`, `fits` (docs/rules.md). Exit code 1: a case
    failed. With -q only failed cases are listed.
    """
    from analysis.cases import FILE
    from cluster import manifests
    from dra.finding import Finding, Place, Severity
    from rendering import formats

    files: dict[Path, None] = {}
    for path in map(Path, paths or (".",)):
        below = [path]
        if path.is_dir():
            below = sorted(Path(parent, FILE) for parent, _, names in manifests.walk(path) if FILE in names)
        if not below:
            raise Broken(f"{path} contains no {FILE}", "give files of cases, or a directory that contains some")
        files |= dict.fromkeys(below)
    results = [result for file in files for result in _run(file)]
    checked: list[formats.ObjectFindings] = []
    for one in results:
        place = Place(file=one.file, line=one.line, column=1)
        found = [
            Finding(code="case", severity=Severity.ERROR, object=one.name, path="", message=problem, place=place)
            for problem in one.problems
        ]
        checked.append(formats.ObjectFindings(one.name, one.file, found))
    inputs.write(
        output,
        lambda: _report(results),
        lambda: {"cases": [msgspec.to_builtins(one) for one in results]},
        findings=lambda: checked,
    )
    return Exit.FINE if all(one.passed for one in results) else Exit.REFUSED


def _report(results: Sequence[CaseResult]) -> Report:
    """List the cases, with --quiet those that failed, with their problems."""
    lines: list[str] = []
    for one in results:
        if not (one.passed and inputs.quiet()):
            lines.append(f"{'pass' if one.passed else 'fail'}  {one.file}:{one.line}  {one.name}")
        lines += [f"      {problem}" for problem in one.problems]
    failed = sum(not one.passed for one in results)
    summary = f"{inputs.count_of(len(results), 'case')}: {len(results) - failed} passed, {failed} failed"
    return Report("Cases", (Screen(lines),), summary)


def _run(file: Path) -> Iterator[CaseResult]:
    """Run the cases of a file, or raise a ManifestError for an invalid one."""
    from analysis.arrivals import brings_pods
    from analysis.cases import CaseResult, Cases, Expected, problems_of
    from analysis.configuration import configuration_in_force, features_of, given_configuration
    from analysis.devices import read_each
    from analysis.state import state_of_files
    from cluster import manifests
    from dra.wire import convert

    documents = inputs.read([str(file)])
    if len(documents) != 1:
        raise Broken(f"{file}: {inputs.count_of(len(documents), 'document')}", "a file of cases is one document")
    document = documents[0]
    [cases] = read_each(documents, lambda obj: convert(obj, Cases))
    wrong = [] if cases.cases else [(document, "/cases", "cases is empty")]
    for number, case in enumerate(cases.cases):
        if case.expect == Expected():
            wrong.append((document, f"/cases/{number}/expect", "expect is empty"))
    inputs.refuse(wrong)
    given = given_configuration(_resolve(file, cases.config) if cases.config else None)
    if given is not None:
        given = given._replace(source=os.path.normpath(given.source))
    reported: set[str] = set()
    for number, case in enumerate(cases.cases):
        around = inputs.read([_resolve(file, one) for one in (*cases.inventory, *case.inventory)])
        if isinstance(case.pod, str):
            pods = inputs.read([_resolve(file, case.pod)])
        else:
            pods = manifests.parse(msgspec.json.encode(case.pod).decode())
        pointer = f"/cases/{number}"
        if not any(brings_pods(one.object) for one in pods):
            inputs.refuse([(document, f"{pointer}/pod", "pod holds no pod and no workload")])
        in_force = configuration_in_force(given, pods, around)
        if in_force.source not in reported:
            in_force.report()
            reported.add(in_force.source)
        configuration = in_force.configuration
        state = state_of_files(pods, around, configuration, features_of(None, configuration))
        problems = tuple(problems_of(case.expect, pods, around, state))
        yield CaseResult(
            file=str(file), line=document.line_of(pointer), name=case.name, passed=not problems, problems=problems
        )


def _resolve(file: Path, named: str) -> str:
    """Return a path that a file of cases names; one below the working directory may be untrusted, and names nothing outside of it."""
    from cluster.manifests import bounds

    path = os.path.join(file.parent, named)  # noqa: PTH118  Path would make `-` of `./-`
    if bounds(str(file)) and not bounds(path):
        raise Broken(f"{file}: {named} is outside of the working directory", "name a file that lies below it")
    if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):
        raise Broken(f"{file}: {named} is not a regular file", "name a file or a directory")
    return path
