"""`drawbridge survey`: who asks for devices in a cluster, or in a dump of one, what becomes of each, and what is in the way.

It only reads. What may not be read is named, and the rest goes on; then the survey is not whole, and the exit says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import contract as inputs
from cli.configuration import configuration_of, features_of, server_named
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.survey import Gathered, Scope
    from cli.survey.overview import Overview
    from cluster.protocol import Cluster
    from webhook.state import Configuration, Features

FORMS = ("text", "wide", "json", "csv", "html", "sarif", "github", "junit")
_LEVELS = ("refused", "unclear", "stays", "waits", "differs")


EMPTY: dict[str, object] = {
    "server": "",
    **{key: {} for key in ("fates", "features", "classes", "modes")},
    **{key: [] for key in ("workloads", "reasons", "obstacles", "plugins", "drivers", "sides", "unread")},
    "objects": 0,
    "pods": 0,
}


@inputs.command("survey", empty=EMPTY)
@inputs.files(required=False, help="A dump of a cluster, or manifests, instead of a live cluster. May be repeated.")
@inputs.cluster()
@click.option("--config", metavar="FILE", default="", help="A DrawbridgeConfiguration; without it, the defaults.")
@inputs.server()
@click.option(
    "--probe",
    is_flag=True,
    help="Ask the server which feature gates are on, by its metrics (needs `get` on /metrics), else by dry runs (needs `create`).",
)
@click.option(
    "--fail-on",
    type=click.Choice((*_LEVELS, "never")),
    default="stays",
    show_default=True,
    help="The mildest fate of a workload that makes the exit 1.",
)
@inputs.output(*FORMS, default="text")
def command(
    *,
    files: tuple[str, ...],
    kubeconfig: str,
    context: str,
    namespace: str,
    all_namespaces: bool,
    selector: str,
    config: str,
    kubernetes: str,
    feature_gates: str,
    probe: bool,
    fail_on: str,
    output: str,
) -> Exit:
    """Say who asks for devices, what becomes of each, and what is in the way.

    Without -f the live cluster is read, all of its namespaces unless -n says which; nothing is ever written. A workload counts once,
    with what it made. Exit 1 if a workload fares as --fail-on says or worse, 3 if what workloads are told by could not be read.
    """
    if files and (kubeconfig or context):
        raise Broken("files are read, or a cluster", "leave -f out, or --kubeconfig and --context")
    if namespace and all_namespaces:
        raise Broken("-n and -A contradict", "leave one of them out")
    server = server_named(kubernetes, feature_gates)
    if server is not None and not files:
        raise Broken(
            "a live cluster says for itself which Kubernetes it is", "leave --kubernetes and --feature-gates out"
        )
    configuration = configuration_of(config, files)
    scope = _scope(namespace, selector)
    if files:
        gathered = _read(files)
        features = features_of(server, configuration)
    else:
        gathered, features = _visit(kubeconfig, context, namespace, probe=probe)
    seen = _look(gathered, configuration, features, scope)
    _print(seen, output)
    return _verdict(seen, fail_on)


def _scope(namespace: str, selector: str) -> Scope:
    from cli.survey import Scope
    from cluster.embedded import labels_test
    from cluster.errors import BadRequest

    namespaces = frozenset(filter(None, [namespace]))
    try:
        labels = labels_test(selector)
    except BadRequest as error:
        raise Broken(f"-l: {error}", "write it as kubectl has it: app=llm,tier!=test") from error
    return Scope(namespaces=namespaces, labels=labels)


def _read(files: Sequence[str]) -> Gathered:
    from cli.devices import warn_of_misspelt
    from cli.survey import Gathered, Trimmer

    documents = inputs.read_what_can_be(files, keep=Trimmer().trim)
    warn_of_misspelt(documents)
    objects = [document.object for document in documents]
    places = [document.origin for document in documents]
    return Gathered(objects=tuple(objects), places=tuple(places))


def _visit(kubeconfig: str, context: str, namespace: str, *, probe: bool) -> tuple[Gathered, Features]:
    """Read a live cluster."""
    from cli import loop
    from cli.survey import gather
    from webhook.state import Features

    async def look(cluster: Cluster) -> Gathered:
        where = namespace or None
        with inputs.progress() as tell:
            return await gather(cluster, where, tell, probe=probe)

    gathered = loop.visit(kubeconfig, context, look, "docs/survey.md")
    server = gathered.server
    assert server is not None
    features = Features.seen(server.minor, server.gates)
    return gathered, features


def _look(gathered: Gathered, configuration: Configuration, features: Features, scope: Scope) -> Overview:
    from cli.survey import overview

    with inputs.undisturbed():
        return overview(gathered, configuration, features, scope)


def _print(seen: Overview, output: str) -> None:
    from cli.survey.page import page
    from cli.survey.screen import screen
    from cli.survey.table import table

    match output:
        case "json":
            inputs.write_json(_plain(seen))
        case "csv":
            click.echo(table(seen), nl=False)
        case "sarif" | "github" | "junit":
            inputs.tell_hosts(_for_hosts(seen, output))
        case "html":
            click.echo(page(seen), nl=False)
        case _:
            columns = inputs.width()
            wide = output == "wide"
            lines = screen(seen, columns=columns, wide=wide, colour=inputs.colours())
            inputs.tell(lines, styled=True)


def _for_hosts(seen: Overview, form: str) -> str:
    from cli.check import reports
    from cli.survey.table import findings

    placed = [reports.Placed(*one) for one in findings(seen)]
    workloads = [(f"{one.kind}/{one.namespace}/{one.name}", one.file) for one in seen.workloads]
    return reports.for_hosts(form, placed, workloads, "survey")


def _plain(seen: Overview) -> dict[str, object]:
    import msgspec

    plain: dict[str, object] = msgspec.to_builtins(seen)
    fates = {fate.value: number for fate, number in seen.fates.items()}
    return {"fates": fates, **plain}


def _verdict(seen: Overview, fail_on: str) -> Exit:
    from cli.survey import TELLING

    bad: tuple[str, ...] = ()
    if fail_on != "never":
        bad = _LEVELS[: _LEVELS.index(fail_on) + 1]
    fates = {one.fate.value for one in seen.workloads}
    if not fates.isdisjoint(bad):
        return Exit.REFUSED
    unread = {one.kind for one in seen.unread}
    return Exit.FINE if unread.isdisjoint(TELLING) else Exit.UNDECIDED
