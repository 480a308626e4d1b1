"""The findings of `drawbridge check`: the rules of the API server, the configuration, the webhook, the allocator and the quotas, in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from analysis.check import (
    add_webhook_findings,
    find_unservable,
    locate,
    name_placeholders,
    prospective_nodes,
    with_taint_finding,
)
from analysis.configuration import KIND, in_mode, is_config_map, read_config_map
from analysis.findings import ObjectFindings
from analysis.gitops import Tree, mistakes
from analysis.quota_use import findings_of_quotas, foretell
from analysis.requesting import decisions_of_patches
from cli.applied import find_controlled, in_namespace
from cli.files import absolute, problems_of_unreadable, repository_root
from dra.validation import findings, name, review
from node import inventory as machines
from webhook.admission import decide_object, out_of_bounds
from webhook.state import configuration as configurations
from webhook.unknown import located

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.loading import Reading
    from cli.files import ReadFiles
    from cluster.manifests import Document, InputProblem
    from dra.finding import Finding
    from dra.raw import Object
    from webhook.translate import Decision


class Input(NamedTuple):
    """The objects to judge, the inventory, and all documents of the files if these are a whole Git tree."""

    documents: list[Document]
    inventory: list[Document]
    tree: Sequence[Document] = ()
    patched: Sequence[Document] = ()  # whose requests patches change


class CheckFindings(NamedTuple):
    """The findings of each object, the decisions about keys, and the objects that could not be read.

    The objects of the inventory are not judged, so unreadable ones have no finding; they are in `left_out`.
    """

    findings: list[ObjectFindings]
    decisions: list[Decision]
    left_out: list[Document]
    unread: list[InputProblem]


def separate(files: ReadFiles, namespace: str) -> Input:
    """Choose the objects to judge. Objects of other namespaces, and objects whose controller is in the input, go to the inventory."""
    documents, elsewhere = in_namespace(files.documents, namespace)
    elsewhere |= find_controlled(documents)
    judged = [value for number, value in enumerate(documents) if number not in elsewhere]
    parts, other_parts = in_namespace([part.document for part in files.patched], namespace)
    patched = [part for number, part in enumerate(parts) if number not in other_parts]
    inventory = [*files.inventory, *(documents[number] for number in sorted(elsewhere))]
    return Input(judged, inventory, files.everything if files.is_whole_tree else (), patched)


def check_input(subject: Input, whole: Reading, mode: str | None) -> CheckFindings:
    """Judge objects by all rules."""
    reading = whole.of_documents(subject.documents, subject.inventory)
    configuration, features = reading.configuration, reading.features
    objects = [document.object for document in subject.documents]
    number_around = len(reading.documents) - len(objects)
    known_objects = [document.object for document in reading.documents[:number_around]]
    if templates := configuration.file.node_templates:
        known_objects += prospective_nodes([*objects, *known_objects], templates)
    by_object = review(objects, known_objects, features.likely)
    for obj, of_object in zip(objects, by_object, strict=True):
        of_object.extend(_mistakes(obj))
    unreadable = reading.typed.unreadable
    state = in_mode(reading.state, mode)
    decided: list[Sequence[Decision]] = []
    for value in objects:
        key_decisions = [with_taint_finding(decision, state) for decision in decide_object(value, state).decisions]
        decided.append((*key_decisions, *located(value, out_of_bounds(value, state))))
    by_object = add_webhook_findings(objects, decided, by_object)
    if any(obj.get("kind") == "ResourceSlice" for obj in (*objects, *known_objects)):
        by_object = find_unservable(objects, known_objects, by_object, features.server)
    for foretold in foretell(objects, [document.object for document in subject.inventory], state):
        by_object[foretold.number] += findings_of_quotas(foretold, objects[foretold.number])
    for number, mistake in _mistakes_of_tree(subject):
        by_object[number].append(msgspec.structs.replace(mistake, object=name(objects[number])))
    checked = [
        ObjectFindings(name(document.object), document.place_of("")[0], locate(document, of_object))
        for document, of_object in zip(subject.documents, by_object, strict=True)
    ]
    for document in subject.patched:
        decisions = decide_object(document.placed, state).decisions
        of_patches = [with_taint_finding(decision, state) for decision in decisions_of_patches(document, decisions)]
        decided.append(of_patches)
        [of_object] = add_webhook_findings([document.object], [of_patches], [[]])
        located_findings = locate(document, of_object)
        checked.append(ObjectFindings(name(document.object), document.origin[0], located_findings))
    unjudged = [
        problem
        for problem in unreadable
        if problem.number >= number_around and not by_object[problem.number - number_around]
    ]
    return CheckFindings(
        name_placeholders(checked, [*subject.documents, *subject.patched]),
        [decision for decisions in decided for decision in decisions],
        [reading.documents[problem.number] for problem in unreadable if problem.number < number_around],
        list(problems_of_unreadable(reading.documents, unjudged)),
    )


def _mistakes_of_tree(subject: Input) -> Iterator[tuple[int, Finding]]:
    """Yield the mistakes between the files of a tree, with the number of the object."""
    if subject.tree:
        tree = Tree(subject.tree, absolute, repository_root)
        numbers = {document.index: number for number, document in enumerate(subject.tree)}
        places = [numbers[document.index] for document in subject.documents]
        yield from mistakes(subject.documents, tree, places)


def _mistakes(obj: Object) -> Sequence[Finding]:
    """Return the mistakes in a DrawbridgeConfiguration, in the ConfigMap of an installation, or in a DeviceInventory."""
    if obj.get("kind") == KIND:
        return configurations.read_configuration(obj)[1]
    if is_config_map(obj):
        return read_config_map(obj)[1]
    if (obj.get("apiVersion"), obj.get("kind")) == (machines.VERSION, machines.KIND):
        return findings(machines.read_inventory(obj)[1], name(obj))
    return ()
