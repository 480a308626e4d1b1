"""`drawbridge check`: what the API server, the webhook, the fleet or a driver would refuse, before anything is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from analysis.configuration import (
    configuration_in_force,
    features_of,
    given_configuration,
    in_mode,
    is_config_map,
    read_config_map,
    server_named,
)
from analysis.state import find_controlled, in_namespace, not_replaced, print_assumed, print_inventory
from cli import contract as inputs
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.translate import Decision

_LEVELS = ("error", "warning", "info")


@inputs.command(
    "check",
    empty={"configuration": {"source": "", "mode": ""}, "findings": [], "passedBy": []},
    examples=("drawbridge check deploy/", "drawbridge check -f pod.yaml --inventory fleet.yaml --fail-on warning"),
)
@inputs.files(required=False)
@inputs.namespaced("The namespace of objects that name none; objects of other namespaces are not judged.")
@inputs.inventory()
@inputs.config()
@inputs.mode_option()
@inputs.output("text", "json", "sarif", "github", "junit", "markdown", "html", default="text")
@inputs.option(
    "--fail-on",
    "The least severe finding that makes the exit code 1.",
    type=click.Choice((*_LEVELS, "never")),
    default="error",
)
@inputs.server()
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
) -> Exit:
    """Find what the API server, the fleet or a driver would refuse.

    Objects are judged by the rules of the newest supported Kubernetes (or --kubernetes) and against each other. --inventory adds classes, slices and nodes that
    are not judged themselves. Exit code 1: a finding at or above --fail-on; 2: the input cannot be read.
    """
    if not files:
        raise Broken("nothing to check", "name manifests with -f FILE, -f DIR or -f -")
    from analysis.check import (
        add_webhook_findings,
        find_unservable,
        findings_of_skipped,
        locate,
        name_placeholders,
        prospective_nodes,
        with_taint_finding,
    )
    from analysis.devices import problems_of_unreadable
    from analysis.loading import Gathered, state_of
    from analysis.manifest_files import read_manifests, warn_of_skipped
    from dra.validation import findings, name, review
    from node import inventory as machines
    from rendering import formats
    from webhook.admission import decide_object, out_of_bounds
    from webhook.state import configuration as configurations

    server = server_named(kubernetes, feature_gates)
    given = given_configuration(config, files, inventory)
    documents, skipped = read_manifests(files, inventory, given=given)
    inventoried = inputs.read(inventory, files) if inventory else []
    within, elsewhere = in_namespace(documents, namespace)
    elsewhere |= find_controlled(within)
    documents = [one for number, one in enumerate(within) if number not in elsewhere]
    inventoried += [within[number] for number in sorted(elsewhere)]
    known = not_replaced(inventoried, documents)
    in_force = configuration_in_force(given, documents, known, judged=True)
    in_force.report(mode)
    configuration = in_force.configuration
    features = features_of(server, configuration)
    objects = [document.object for document in documents]
    around = [document.object for document in known]
    if templates := configuration.file.node_templates:
        around += prospective_nodes([*objects, *around], templates)

    # The rules of the API server, the configuration's reader, the webhook, the allocator and the quotas, in turn.
    found = review(objects, around, features.likely)
    for obj, of_object in zip(objects, found, strict=True):
        if obj.get("kind") == "DrawbridgeConfiguration":
            _, mistakes = configurations.read(obj)
            of_object.extend(mistakes)
        if is_config_map(obj):
            _, mistakes = read_config_map(obj)
            of_object.extend(mistakes)
        if (obj.get("apiVersion"), obj.get("kind")) == (machines.VERSION, machines.KIND):
            _, problems = machines.read(obj)
            of_object.extend(findings(problems, name(obj)))
    gathered = Gathered(objects=tuple(one.object for one in (*known, *documents)))
    state, unreadable = state_of(gathered, configuration, features)
    state = in_mode(state, mode)
    # The inventory is not judged: an object in it that cannot be read gets a warning, not a finding.
    for document in (known[one.number] for one in unreadable if one.number < len(known)):
        where = f"{document.file}:{document.line}"
        kind = document.object["kind"]
        inputs.warn(f"{where}: not a valid {kind}, so it is left out of the inventory; check it with -f")
    # Without a fleet in the input, nothing is refused because a device is missing.
    state = msgspec.structs.replace(state, confirmed=state.fleet.known)
    # Kinds whose CustomResourceDefinition is in the input may hold pod templates anywhere.
    decided: list[Sequence[Decision]] = []
    for value in objects:
        done = decide_object(value, state)
        key_decisions = [with_taint_finding(one, state) for one in done.decisions]
        decided.append((*key_decisions, *done.doubts, *out_of_bounds(value, state)))
    found = add_webhook_findings(objects, decided, found)
    if any(obj.get("kind") == "ResourceSlice" for obj in (*objects, *around)):
        found = find_unservable(objects, around, found, features.server)
    if any(one.object.get("kind") == "DeviceQuota" for one in (*documents, *inventoried)):
        from analysis.quota import findings_of_quotas, foretell

        for foretold in foretell(objects, [one.object for one in inventoried], state):
            found[foretold.number] += findings_of_quotas(foretold, objects[foretold.number])

    unjudged = [one for one in unreadable if one.number >= len(known) and not found[one.number - len(known)]]
    inputs.report_unread(problems_of_unreadable((*known, *documents), unjudged))

    checked: list[formats.ObjectFindings] = []
    for document, of_object in zip(documents, found, strict=True):
        checked.append(
            formats.ObjectFindings(name(document.object), document.place_of("")[0], locate(document, of_object))
        )
    checked = name_placeholders(checked, documents)
    checked += findings_of_skipped(one for one in skipped if one.key)
    summary = formats.summary_of(checked, len(documents))
    warn_of_skipped([one._replace(key="") for one in skipped])
    inputs.write(
        output,
        lambda: formats.report("drawbridge check", checked, summary),
        lambda: {
            "configuration": in_force.described(mode),
            "findings": formats.as_json(checked),
            "passedBy": [one._asdict() for one in skipped],
        },
        findings=lambda: checked,
    )
    print_inventory(documents, known, (one for decisions in decided for one in decisions))
    print_assumed(one.key for decisions in decided for one in decisions if one.assumed)
    if fail_on == "never":
        return Exit.FINE
    bad = _LEVELS[: _LEVELS.index(fail_on) + 1]
    return (
        Exit.REFUSED if any(finding.severity.value in bad for one in checked for finding in one.findings) else Exit.FINE
    )
