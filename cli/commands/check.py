"""`drawbridge check`: what the API server, the webhook, the fleet or a driver would refuse, before anything is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from analysis.configuration import server_named
from analysis.errors import Broken
from cli import options
from cli.answers import report_problems, write
from cli.applied import print_assumed, warn_no_classes
from cli.command import declare
from cli.configuration import given_configuration, report_configuration
from cli.exits import Exit
from cli.output import warn

if TYPE_CHECKING:
    from cli.files import InputFiles

_LEVELS = ("error", "warning", "info")


@declare(
    "check",
    examples=("drawbridge check deploy/", "drawbridge check -f pod.yaml --inventory fleet.yaml --fail-on warning"),
)
@options.files()
@options.namespaced("The namespace of objects without one; objects of other namespaces are not checked.")
@options.inventory()
@options.config()
@options.mode_option()
@options.output("text", "json", "sarif", "github", "junit", "markdown", default="text")
@options.option(
    "--fail-on",
    "The least severe finding that makes the exit code 1.",
    type=click.Choice((*_LEVELS, "never")),
    default="error",
)
@options.server()
def command(
    *,
    files: InputFiles,
    namespace: str,
    config: str,
    mode: str | None,
    output: str,
    fail_on: str,
    kubernetes: str,
    feature_gates: str,
) -> Exit:
    """Find what the API server, the fleet or a driver would refuse.

    The objects are checked by the rules of the newest supported Kubernetes (or of --kubernetes), and against each other. --inventory adds
    classes, slices and nodes that are not checked themselves. Exit code 1: a finding at or above --fail-on; 2: the input cannot be read.
    """
    if not files:
        raise Broken("nothing to check", "name manifests with -f FILE, -f DIR or -f -")
    from analysis.check import findings_of_skipped
    from analysis.findings import report_of_findings, summary_of
    from cli.checked import check_input, separate
    from cli.files import warn_of_skipped
    from cli.formats import as_json
    from cli.loading import read_whole

    server = server_named(kubernetes, feature_gates)
    reading, input_files = read_whole(files, given_configuration(config), server, judged=True)
    skipped, in_force = reading.skipped, reading.in_force
    judged = separate(input_files, namespace)
    report_configuration(in_force, mode)
    result = check_input(judged, reading, mode)
    for document in result.left_out:
        kind = document.object["kind"]
        warn(
            f"{document.file}:{document.line}: not a valid {kind}, so it is left out of the inventory; check it with -f"
        )
    report_problems(result.unread)
    unchecked = findings_of_skipped(skip for skip in skipped if skip.key)
    checked = [*result.findings, *unchecked]
    summary = summary_of(checked, len(judged.documents), len(unchecked))
    warn_of_skipped([skip._replace(key="") for skip in skipped])
    write(
        output,
        lambda: report_of_findings("drawbridge check", checked, summary),
        lambda: {
            "configuration": in_force.described(mode),
            "findings": as_json(checked),
            "skippedDocuments": [skip._asdict() for skip in skipped],
        },
        findings=lambda: checked,
    )
    warn_no_classes(judged.documents, judged.inventory, result.decisions)
    print_assumed(decision.key for decision in result.decisions if decision.meaning_assumed)
    bad = () if fail_on == "never" else _LEVELS[: _LEVELS.index(fail_on) + 1]
    return (
        Exit.REFUSED
        if any(finding.severity.value in bad for of_object in checked for finding in of_object.findings)
        else Exit.FINE
    )
