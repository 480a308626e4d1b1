"""One component with the template of several apps, in a tree in which Flux adds components and substitutes `${APP}`.

Follows fluxcd/kustomize-controller 1.9: the specification of Kustomization v1, `components` and `postBuild`.
"""

from __future__ import annotations

from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from analysis.gitops import FLUX, is_kustomization
from analysis.migration.kustomizations import with_entry
from analysis.migration.pull_request import Edit, NewFile
from dra.raw import Object, inside, strings, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.gitops import Tree
    from cluster.manifests import Document

_ENOUGH: Final = 3  # apps with equal templates
_VARIABLE: Final = "APP"
_NAME: Final = "gpu"
_FILE: Final = "resourceclaimtemplate.yaml"


class SharedComponent(NamedTuple):
    """A component, and the positions of the templates that it replaces."""

    replaced: frozenset[int] = frozenset()
    edits: tuple[Edit, ...] = ()
    new: tuple[NewFile, ...] = ()


class _Use(NamedTuple):
    """An app that can have its template from a component."""

    position: int  # of its template
    builder: int  # the object of Flux that builds the app
    folder: str  # of its components, as its entries name the folder


def shared_component(
    documents: Sequence[Document], tree: Tree, templates: Sequence[tuple[int, Object]]
) -> SharedComponent:
    """Return the component for the most of these templates; each has the number of the document that needs it."""
    groups: dict[tuple[str, bytes], list[_Use]] = {}
    for position, (number, template) in enumerate(templates):
        if template["kind"] == "ResourceClaimTemplate" and "namespace" not in template["metadata"]:
            for folder, use in _uses(documents, tree, position, number, template["metadata"]["name"]):
                groups.setdefault((folder, msgspec.json.encode(template["spec"])), []).append(use)
    (folder, _), uses = max(groups.items(), key=lambda group: len(group[1]), default=(("", b""), []))
    if len(uses) < _ENOUGH:
        return SharedComponent()
    edits = []
    for use in uses:
        obj = documents[use.builder].object
        components = with_entry(strings(obj["spec"], "components"), join(use.folder, _NAME))
        edits.append(Edit(use.builder, {**obj, "spec": {**obj["spec"], "components": components}}))
    template = templates[uses[0].position][1]
    new = NewFile(join(folder, _NAME, _FILE), ({**template, "metadata": {"name": f"${{{_VARIABLE}}}"}},))
    component = {"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "resources": [f"./{_FILE}"]}
    of_component = NewFile(join(folder, _NAME, "kustomization.yaml"), (component,))
    return SharedComponent(frozenset(use.position for use in uses), tuple(edits), (of_component, new))


def _uses(
    documents: Sequence[Document], tree: Tree, position: int, number: int, name: str
) -> Iterator[tuple[str, _Use]]:
    """Yield the folder of the components that a document's builder adds, if the builder substitutes the name of the document's template."""
    flux = [other for other, document in enumerate(documents) if group_kind(document.object) == FLUX]
    builders = [builder for builder in flux if number in tree.built_by(builder)]
    spec = inside(documents[builders[0]].object, "spec") if len(builders) == 1 else {}
    if inside(spec, "postBuild", "substitute").get(_VARIABLE) != name:
        return
    # The document's path contains the path that the object of Flux builds.
    path, file = normpath(text(spec.get("path"))), tree.absolute(documents[number].file)
    built = file[: file.rfind(f"/{path}/") + len(path) + 1]
    by_folder = {
        dirname(tree.absolute(document.file)): dirname(document.file)
        for document in documents
        if is_kustomization(document) and document.object.get("kind") == "Component"
    }
    for entry in strings(spec, "components"):
        component = normpath(join(built, entry))
        if component in by_folder and join(dirname(component), _NAME) not in by_folder:
            yield dirname(by_folder[component]), _Use(position, builders[0], dirname(normpath(entry)))
            return
