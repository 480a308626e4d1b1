"""`drawbridge check`: what the API server, the fleet or a driver would refuse, before anything is applied."""

from __future__ import annotations

from operator import attrgetter

import click
import msgspec

from cli import contract as inputs
from cli.configuration import among, configuration_of, features_of, in_mode, mode_option, server_named
from cli.contract import Broken, Exit
from cli.state import besides, in_namespace, leave_made, say_assumed, state_of

_LEVELS = ("error", "warning", "info")


@inputs.command(
    "check",
    empty={"findings": [], "passedBy": []},
    examples=("drawbridge check deploy/", "drawbridge check -f pod.yaml --inventory fleet.yaml --fail-on warning"),
)
@inputs.files(required=False)
@inputs.namespaced("The namespace of objects that name none; those of other namespaces are known, and not judged.")
@inputs.inventory()
@inputs.config_among_files()
@mode_option()
@inputs.output("text", "json", "sarif", "github", "junit", "markdown", "html", default="text")
@inputs.option(
    "--fail-on", "The mildest finding that makes the exit 1.", type=click.Choice((*_LEVELS, "never")), default="error"
)
@inputs.server()
@click.option("--explain", metavar="CODE", help="Say what a code means and what helps; `all` lists every code.")
def command(
    *,
    files: tuple[str, ...],
    namespace: str,
    inventory: tuple[str, ...],
    config: str,
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
    from cli.check import (
        Placed,
        at_the_webhook,
        lay_out_prospects,
        name_placeholders,
        never,
        place,
        reports,
        say,
        sort_out,
    )
    from dra.pointer import text_at
    from dra.validation import TYPES, Problem, Reviewed, findings, is_ours, name, read, review
    from webhook.admission import decide_object, out_of_bounds
    from webhook.state import configuration as configurations
    from webhook.translate import group_kind

    server = server_named(kubernetes, feature_gates)
    given = configuration_of(config, files, inventory) if config else None
    documents, passed = sort_out(*inputs.read_tree(files, inventory), files)
    if not documents and not passed and not inputs.unread():
        inputs.warn("the input holds no objects")
    inventoried = inputs.read(inventory, files) if inventory else []
    within, elsewhere = in_namespace(documents, namespace)
    elsewhere |= leave_made(within)
    documents = [one for number, one in enumerate(within) if number not in elsewhere]
    inventoried += [within[number] for number in sorted(elsewhere)]
    known = besides(inventoried, documents)
    # The inventory is not judged, so an unreadable object in it gets a warning in place of a finding.
    for document in known:
        value = document.object
        if is_ours(value) and text_at(value, "/kind") in TYPES and read(value) is None:
            where = f"{document.file}:{document.line}"
            inputs.warn(f"{where}: left out of the inventory: not a {value['kind']}; check it with -f")
    configuration = given or among(documents, known, judged=True)
    features = features_of(server, configuration)
    objects = [document.object for document in documents]
    around = [document.object for document in known]
    if templates := configuration.file.node_templates:
        around += lay_out_prospects([*objects, *around], templates)

    # The API server, the configuration's reader, the allocator, the webhook and the quotas judge in turn.
    found = review(objects, around, features.likely)
    for number, obj in enumerate(objects):
        if obj.get("kind") == "DrawbridgeConfiguration":
            _, mistakes = configurations.read(obj)
            found += [Reviewed(number, mistake) for mistake in mistakes]
    state = in_mode(state_of([*known, *documents], (), configuration, features), mode)
    # Where no fleet is given, nothing is refused for its absence.
    state = msgspec.structs.replace(state, confirmed=state.fleet.known)
    # Templates are looked for in every kind whose definition is there.
    decided = [
        (
            *decide_object(value, state, unknown=group_kind(value) in state.custom_kinds).decisions,
            *out_of_bounds(value, state),
        )
        for value in objects
    ]
    found = at_the_webhook(objects, decided, found)
    if any(obj.get("kind") == "ResourceSlice" for obj in (*objects, *around)):
        found += never(objects, around, found, features.server)
    if any(one.object.get("kind") == "DeviceQuota" for one in (*documents, *inventoried)):
        from cli.quota import foretell, reviewed

        foretold = foretell(objects, [one.object for one in inventoried], state)
        found += reviewed(foretold, objects)

    # Findings get their places, in the order of the input; a key given twice is a finding of the reader.
    placed: list[Placed] = []
    for number, document in enumerate(documents):
        for key, line in document.duplicates:
            problem = Problem("D005", "", f"the key {key!r} is given twice, the later one counts")
            (finding,) = findings([problem], name(document.object))
            placed.append(Placed(number, finding, document.file, line, 1))
    placed += place(documents, found)
    placed.sort(key=attrgetter("number", "line", "column"))
    placed = name_placeholders(placed, documents)
    for text in say(passed) if output not in ("json", "text") and not inputs.quiet() else ():
        inputs.complain(text)
    match output:
        case "json":
            inputs.write_json({**reports.as_json(placed), "passedBy": [one._asdict() for one in passed]})
        case "markdown" | "html":
            inputs.write_report(reports.report(placed, len(documents)))
        case "sarif" | "github" | "junit":
            checked = [(name(document.object), document.place_of("")[0]) for document in documents]
            inputs.tell_hosts(reports.for_hosts(output, placed, checked, "check"))
        case _:
            inputs.tell([*reports.text(placed, len(documents)).split("\n"), *say(passed)])
    say_assumed(one.key for decisions in decided for one in decisions if one.assumed)
    if fail_on == "never":
        return Exit.FINE
    bad = _LEVELS[: _LEVELS.index(fail_on) + 1]
    return Exit.REFUSED if any(one.finding.severity.value in bad for one in placed) else Exit.FINE
