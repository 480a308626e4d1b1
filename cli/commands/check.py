"""`drawbridge check`: what the API server, the fleet or a driver would refuse, before anything is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from cli import contract as inputs
from cli.configuration import among, configuration_of, features_of, in_mode, mode_option, server_named
from cli.contract import Broken, Exit
from cli.state import besides, state_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cli.check import Placed
    from cluster.manifests import Document
    from dra.server import Server
    from dra.validation import Reviewed
    from webhook.state import Configuration, State

_LEVELS = ("error", "warning", "info")


@inputs.command("check", empty={"findings": []})
@inputs.files(required=False)
@inputs.inventory()
@click.option("--config", metavar="FILE", help="A DrawbridgeConfiguration; without it, the one among the files, or the defaults.")  # fmt: skip
@mode_option()
@inputs.output("text", "json", "sarif", "github", "junit", "markdown", default="text")
@click.option(
    "--fail-on",
    type=click.Choice((*_LEVELS, "never")),
    default="error",
    show_default=True,
    help="The mildest finding that makes the exit 1.",
)
@inputs.server()
@click.option("--explain", metavar="CODE", help="Say what a code means and what helps; `all` lists every code.")
def command(
    *,
    files: tuple[str, ...],
    inventory: tuple[str, ...],
    config: str | None,
    mode: str | None,
    output: str,
    fail_on: str,
    kubernetes: str,
    feature_gates: str,
    explain: str | None,
) -> Exit:
    """Find what the API server, the fleet or a driver would refuse.

    Objects are judged by the rules of Kubernetes 1.37, or of --kubernetes, and against each other; --inventory adds classes, slices and nodes
    that are known but not judged. Exit 1 if anything is found at or above --fail-on, 2 if the input cannot be read.
    """
    if explain is not None:
        from cli.check import explain_codes

        return explain_codes(explain, output)
    if not files:
        raise Broken("nothing to check", "name manifests with -f FILE, -f DIR or -f -")
    from dra.validation import review

    server = server_named(kubernetes, feature_gates)
    given = configuration_of(config, files, inventory) if config else None
    documents = inputs.read_what_can_be(files, inventory)
    inventoried = inputs.read(inventory, files) if inventory else []
    known = besides(inventoried, documents)
    _warn_of_unreadable(known)
    configuration = given or among(documents, known, judged=True)
    features = features_of(server, configuration)
    around = _objects(known)
    around += _prospects(documents, known, configuration)
    found = review(_objects(documents), around, features.likely)
    found += _configurations(documents)
    found += _infeasible(_objects(documents), around, found, features.server)
    state = in_mode(state_of([*known, *documents], (), configuration, features), mode)
    found = _refused(documents, state, found)
    found += _over_quota(documents, inventoried, state)
    placed = _place(documents, found)
    _print(placed, documents, output)
    return _verdict(placed, fail_on)


def _warn_of_unreadable(known: Sequence[Document]) -> None:
    """Say what the inventory does not tell because it cannot be read; it is not judged, so no finding would."""
    from dra.validation import TYPES, is_ours, read

    for document in known:
        value = document.object
        if is_ours(value) and value.get("kind") in TYPES and read(value) is None:
            place = f"{document.file}:{document.line}"
            click.echo(
                f"warning: {place}: left out of the inventory: not a {value['kind']}; check it with -f", err=True
            )


def _objects(documents: Sequence[Document]) -> list[dict[str, object]]:
    return [document.object for document in documents]


def _configurations(documents: Sequence[Document]) -> list[Reviewed]:
    """Judge configuration files, which the webhook's room knows how to read."""
    files: dict[int, dict[str, Any]] = {}
    for number, document in enumerate(documents):
        if document.object.get("kind") == "DrawbridgeConfiguration":
            files[number] = document.object
    if not files:
        return []
    from dra.validation import Reviewed
    from webhook.state import configuration as config

    reviewed: list[Reviewed] = []
    for number, value in files.items():
        _, findings = config.read(value)
        reviewed += [Reviewed(number, finding) for finding in findings]
    return reviewed


def _prospects(
    documents: Sequence[Document], known: Sequence[Document], configuration: Configuration
) -> list[dict[str, object]]:
    """Give the nodes that may come, by the configuration."""
    templates = configuration.file.node_templates
    if not templates:
        return []
    from cli.check import lay_out_prospects

    every = _objects([*documents, *known])
    return lay_out_prospects(every, templates)


def _infeasible(
    objects: Sequence[dict[str, object]],
    known: Sequence[dict[str, object]],
    found: Sequence[Reviewed],
    server: Server,
) -> list[Reviewed]:
    """Ask the allocator, where there is a fleet to ask about."""
    if not any(value.get("kind") == "ResourceSlice" for value in (*objects, *known)):
        return []
    from cli.check import never

    return never(objects, known, found, server)


def _refused(documents: Sequence[Document], state: State, found: Sequence[Reviewed]) -> list[Reviewed]:
    """Add what the gate would say of pods and workloads."""
    from cli.check import at_the_gate

    # Where no fleet is told, it is no reason to refuse anything.
    state = msgspec.structs.replace(state, confirmed=state.fleet.known)
    objects = _objects(documents)
    return at_the_gate(objects, state, found)


def _over_quota(documents: Sequence[Document], around: Sequence[Document], state: State) -> list[Reviewed]:
    """Ask the quotas that are among the files."""
    if not any(one.object.get("kind") == "DeviceQuota" for one in (*documents, *around)):
        return []
    from cli.quota import foretell, reviewed

    objects = _objects(documents)
    foretold = foretell(objects, _objects(around), state)
    return list(reviewed(foretold, objects))


def _place(documents: Sequence[Document], found: Sequence[Reviewed]) -> list[Placed]:
    """Give findings their places, in the order of the input; keys given twice are findings of the reader."""
    from cli.check import Placed, place
    from dra.validation import Problem, findings, name

    by_document: dict[int, list[Placed]] = {}
    for index, document in enumerate(documents):
        for key, line in document.duplicates:
            problem = Problem("D005", "", f"the key {key!r} is given twice, the later one counts")
            (finding,) = findings([problem], name(document.object))
            placed = by_document.setdefault(index, [])
            placed.append(Placed(index, finding, document.file, line, 1))
    for one in place(documents, found):
        placed = by_document.setdefault(one.number, [])
        placed.append(one)
    in_order: list[Placed] = []
    for index in sorted(by_document):
        placed = by_document[index]
        in_order += sorted(placed, key=_position)
    return in_order


def _position(place: Placed) -> tuple[int, int]:
    return place.line, place.column


def _print(placed: Sequence[Placed], documents: Sequence[Document], output: str) -> None:
    from cli.check import reports
    from dra.validation import name

    match output:
        case "json":
            inputs.write_json(reports.as_json(placed))
        case "markdown":
            click.echo(reports.markdown(placed))
        case "sarif" | "github" | "junit":
            checked = [(name(document.object), document.place_of("")[0]) for document in documents]
            inputs.tell_hosts(reports.for_hosts(output, placed, checked, "check"))
        case _:
            inputs.tell(reports.text(placed, len(documents)).split("\n"))


def _verdict(placed: Sequence[Placed], fail_on: str) -> Exit:
    if fail_on == "never":
        return Exit.FINE
    bad = _LEVELS[: _LEVELS.index(fail_on) + 1]
    return Exit.REFUSED if any(one.finding.severity.value in bad for one in placed) else Exit.FINE
