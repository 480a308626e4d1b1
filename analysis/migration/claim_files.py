"""The files of claims: each beside the object that needs its claims, with an entry in the kustomizations that list the object's file."""

from __future__ import annotations

import re
from itertools import pairwise
from posixpath import basename, commonpath, dirname, join, normpath, splitext
from typing import TYPE_CHECKING, Final

from analysis.gitops import FOLDERS, is_kustomization
from analysis.migration.pull_request import Edit, NewFile
from dra.raw import Object, inside, strings, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Tree
    from cluster.manifests import Document

_FIELD: Final = "resources"
_MOSTLY: Final = 5  # a list in which one of five entries is out of order is sorted


class ClaimFiles:
    """Collects the claims and templates that a tree needs."""

    def __init__(self, documents: Sequence[Document], tree: Tree) -> None:
        """Read the entries of the kustomizations of a tree."""
        self._documents = documents
        self._tree = tree
        self._files = {document.file for document in documents}
        self._new: dict[str, list[Object]] = {}
        self._added: dict[int, list[str]] = {}
        # By the absolute path of a file: the kustomizations that list it, and their entries.
        self._listed: dict[str, list[tuple[int, str]]] = {}
        for number, document in enumerate(documents):
            if is_kustomization(document):
                folder = dirname(document.file)
                for entry in strings(document.object, *FOLDERS):
                    path = tree.absolute(normpath(join(folder, entry)))
                    self._listed.setdefault(path, []).append((number, entry))

    def add(self, number: int, obj: Object) -> None:
        """Add a claim or a template beside a document."""
        document = self._documents[number]
        path = self._path_beside(document, obj)
        if path not in self._new:
            for kustomization, folder in self._kustomizations_of(number):
                self._added.setdefault(kustomization, []).append(folder + basename(path))
        self._new.setdefault(path, []).append(obj)

    def common_place(self, numbers: Collection[int], namespace: str) -> int:
        """Return the document beside which a claim of several documents is written."""
        folders = {dirname(self._documents[number].file) for number in numbers}
        above = commonpath(folders) if all(folders) else ""
        for number, document in enumerate(self._documents):
            is_above = len(folders) > 1 and is_kustomization(document) and dirname(document.file) == above
            set_by_tree = self._tree.namespace_of(number)
            if is_above and (set_by_tree == namespace or not self._tree.replaces_namespace(number)):
                return number
        return min(numbers)

    def edits(self) -> Iterator[Edit]:
        """Yield the kustomizations with the new entries."""
        for number, added in self._added.items():
            obj = self._documents[number].object
            entries = strings(obj, _FIELD)
            for entry in added:
                entries = with_entry(entries, entry)
            yield Edit(number, {**obj, _FIELD: entries})

    def new(self) -> Iterator[NewFile]:
        """Yield the new files."""
        for path, objects in self._new.items():
            yield NewFile(path, tuple(objects))

    def _kustomizations_of(self, number: int) -> list[tuple[int, str]]:
        """Return the kustomizations that list the file of a document, and the folder of their entries."""
        document = self._documents[number]
        if is_kustomization(document):
            entries = strings(document.object, _FIELD)
            return [(number, "./" if entries and entries[0].startswith("./") else "")]
        listed = self._listed.get(self._tree.absolute(document.file), [])
        return [(kustomization, entry.removesuffix(basename(entry))) for kustomization, entry in listed]

    def _path_beside(self, document: Document, obj: Object) -> str:
        """Return the path of a new file, named as the tree names the file of the document: after the kind, or after the object."""
        folder, (stem, extension) = dirname(document.file), splitext(basename(document.file))
        if basename(document.file) == "Chart.yaml":
            folder = join(folder, "templates")
        hyphened = "-" in stem and stem == _hyphened(text(document.object.get("kind")))
        kind = text(obj.get("kind"))
        of_kind = (_hyphened(kind) if hyphened else kind.lower()) + extension
        of_object = f"{text(inside(obj, 'metadata').get('name'))}-{of_kind}"
        is_named_after_object = stem == text(inside(document.object, "metadata").get("name"))
        return join(folder, of_object if is_named_after_object or join(folder, of_kind) in self._files else of_kind)


def _hyphened(kind: str) -> str:
    """Return a kind in lower case, with hyphens between its words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind).lower()


def with_entry(entries: list[str], entry: str) -> list[str]:
    """Return a list with a new entry: in its order if most of the list is sorted, else at the end."""
    descents = sum(before > after for before, after in pairwise(entries))
    if descents * _MOSTLY > len(entries):
        return [*entries, entry]
    smaller = [other for other in entries if other < entry]
    position = entries.index(max(smaller)) + 1 if smaller else 0
    return [*entries[:position], entry, *entries[position:]]
