"""Labels namespaces, so that their claims may have admin access.

Follows kubernetes/kubernetes v1.37: pkg/registry/resource/resourceclaimtemplate/strategy.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.gitops import releases
from analysis.migration.pull_request import Edit, Step
from dra.raw import inside, text
from webhook.translate import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.gitops import Tree
    from analysis.migration.plan import MigrationPlan
    from cluster.manifests import Document

_LABEL: Final = "resource.kubernetes.io/admin-access"


def label_namespaces(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> Step:
    """Return the step that labels the namespaces whose consumers get claims with admin access."""
    edits, notes = [], []
    for namespace in sorted(set(_with_admin_access(documents, tree, plan))):
        numbers = [
            number
            for number, document in enumerate(documents)
            if document.object.get("kind") == "Namespace" and namespace in _names(document, number, tree)
        ]
        labels = [inside(documents[number].object, "metadata", "labels") for number in numbers]
        if any(of_object.get(_LABEL) == "true" for of_object in labels):
            continue
        by_hand = f'by hand, before the merge: label namespace {namespace} with {_LABEL}: "true"'
        if len(numbers) != 1:
            where = ", ".join(documents[number].file for number in numbers)
            notes.append(
                f"{by_hand}; " + (f"several files have it: {where}" if where else "the tree has no file of it")
            )
        elif len(_names(documents[numbers[0]], numbers[0], tree)) > 1:
            notes.append(f"{by_hand}; {documents[numbers[0]].file} is that of several namespaces")
        else:
            obj = documents[numbers[0]].object
            metadata = {**inside(obj, "metadata"), "labels": {**labels[0], _LABEL: "true"}}
            edits.append(Edit(numbers[0], {**obj, "metadata": metadata}))
    return Step("prepare", tuple(edits), (), tuple(notes))


def _with_admin_access(documents: Sequence[Document], tree: Tree, plan: MigrationPlan) -> Iterator[str]:
    """Yield the namespaces of the pods whose claims get admin access."""
    classes = {
        device_class
        for family in plan.families
        if family.sharing is not None and family.sharing.decision == "admin access"
        for device_class in (family.driver, *family.device_classes)
    }
    # Flux may install a release in another namespace than that of its object.
    of_releases = {
        name_of(documents[release.number].placed): release.namespace for release in releases(documents, tree)
    }
    for consumer in plan.consumers:
        if consumer.verdict != "cannot" and classes.intersection(consumer.device_class.split(" or ")):
            yield of_releases.get(consumer.object) or consumer.object.split("/")[1]


def _names(document: Document, number: int, tree: Tree) -> frozenset[str]:
    """Return the names of a Namespace; a build that sets a namespace sets the name of the Namespace, too."""
    return tree.namespaces_set(number) or frozenset((text(inside(document.object, "metadata").get("name")),))
