"""`drawbridge survey`: the workloads that request devices in a cluster or a dump, the outcome for each, and obstacles.

The command reports kinds that it may not read, and leaves them out. If these are pods or workloads, the exit code is 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analysis.configuration import server_named
from analysis.errors import Broken
from cli import options
from cli.answers import write
from cli.applied import print_assumed
from cli.command import declare
from cli.configuration import given_configuration, report_configuration
from cli.exits import Exit
from cli.files import InputFiles, without_collection
from cli.output import warn
from dra.texts import list_first

if TYPE_CHECKING:
    from analysis.survey import Overview

FORMS = ("text", "wide", "json", "markdown", "sarif", "github", "junit")
_WITH_VALUES = ("HelmRelease", "Application", "ApplicationSet")
_LEVELS = ("refused", "unknown", "left", "partly", "approximated")


@declare("survey", examples=("drawbridge survey -f dump.yaml -o wide", "drawbridge survey -n team-a --fail-on refused"))
@options.files(help=options.INSTEAD_OF_CLUSTER)
@options.cluster_access()
@options.namespaced("Only this namespace.")
@click.option(
    "-l", "--selector", metavar="LABELS", default="", help="Only workloads with these labels, or whose pods have them."
)
@options.inventory()
@options.config()
@options.mode_option()
@options.server()
@options.option("--probe", "Detect the server's feature gates by its metrics (needs `get` on /metrics).")
@options.option(
    "--fail-on",
    "The least severe outcome of a workload that makes the exit code 1.",
    type=click.Choice((*_LEVELS, "never")),
    default="refused",
)
@options.output(*FORMS, default="text")
def command(
    *,
    files: InputFiles,
    kubeconfig: str,
    context: str,
    namespace: str,
    selector: str,
    config: str,
    mode: str | None,
    kubernetes: str,
    feature_gates: str,
    probe: bool,
    fail_on: str,
    output: str,
) -> Exit:
    """List the workloads that request devices, the outcome for each, and obstacles to the move to claims.

    Without -f the command reads the live cluster; it writes nothing. A workload and its pods count once. Exit code 1: the outcome of a
    workload is that of --fail-on or worse; 3: pods or a kind of workload could not be read.
    """
    if files and probe:
        raise Broken("-f excludes --probe", "leave --probe out: files have no server to ask")
    server = server_named(kubernetes, feature_gates)
    if server is not None and not files:
        raise Broken("a live cluster reports its own version", "leave --kubernetes and --feature-gates out")
    given = given_configuration(config)

    from analysis.loading import NECESSARY_KINDS, SURVEY
    from analysis.survey import SurveyScope, overview
    from cli.loading import read_dump, read_live
    from cluster.embedded import labels_test
    from cluster.errors import BadRequest
    from webhook.translate import namespace_of

    try:
        scope = SurveyScope(namespaces=frozenset(filter(None, [namespace])), labels=labels_test(selector))
    except BadRequest as error:
        raise Broken(f"-l: {error}", "write the selector as for kubectl, such as app=llm,tier!=test") from error
    if files:
        reading = read_dump(files, given, server, pods=False)
        namespaces = {namespace_of(obj) for obj in reading.objects}
        if namespace and namespaces and namespace not in namespaces:
            warn(
                f"no object of namespace {namespace!r} is in the input; it has those of {list_first(sorted(namespaces), 5)}"
            )
    else:
        reading = read_live(kubeconfig, context, SURVEY, given=given, namespace=namespace, probe=probe)
    report_configuration(reading.in_force, mode)
    with without_collection():
        result = _with_lines(overview(reading, scope, mode))
    import msgspec

    from analysis.survey import findings, report

    write(
        output,
        lambda: report(result, reading.skipped, whole=output != "text"),
        lambda: {
            "configuration": reading.in_force.described(mode),
            "outcomes": {outcome.value: number for outcome, number in result.outcomes.items()},
            **msgspec.to_builtins(result),
            "skippedDocuments": [skip._asdict() for skip in reading.skipped],
        },
        findings=lambda: findings(result),
        unread=result.unread,
    )
    print_assumed(key.key for workload in result.workloads for key in workload.keys if key.meaning_assumed)
    bad = () if fail_on == "never" else _LEVELS[: _LEVELS.index(fail_on) + 1]
    unseen = "unknown" in bad and any(skip.key for skip in reading.skipped)
    if unseen or any(workload.outcome in bad for workload in result.workloads):
        return Exit.REFUSED
    return Exit.FINE if NECESSARY_KINDS.isdisjoint(missed.kind for missed in result.unread) else Exit.UNDECIDED


def _with_lines(result: Overview) -> Overview:
    """Add the lines of keys in values of charts. A survey keeps no texts, so the files of these objects are read again."""
    from msgspec.structs import replace

    from cluster.manifests import read_leniently

    workloads = list(result.workloads)
    for number, workload in enumerate(workloads):
        if workload.kind not in _WITH_VALUES or not Path(workload.file).is_file():
            continue
        for document in read_leniently([workload.file])[0]:
            if document.first_line == workload.line and document.object.get("kind") == workload.kind:
                lines = [document.line_of(key.pointer) for key in workload.keys]
                keys = tuple(replace(key, line=line) for key, line in zip(workload.keys, lines, strict=True))
                workloads[number] = replace(workload, keys=keys)
    return replace(result, workloads=tuple(workloads))
