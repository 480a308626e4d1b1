"""What the kustomizations of a tree list, and how they list more: new objects are in files beside others."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from posixpath import basename, commonpath, dirname, join, normpath, relpath, splitext
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops import FOLDERS, is_kustomization
from analysis.migration.pull_request import Edit, NewFile
from dra.raw import inside, strings, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Tree
    from cluster.manifests import Document
    from dra.raw import Object

_FIELD: Final = "resources"
_MOSTLY: Final = 5  # a list in which one of five entries is out of order is sorted


class Entry(NamedTuple):
    """An entry of a kustomization for a file or a folder."""

    number: int  # of the kustomization
    folder: str  # of the kustomization
    text: str

    @property
    def path(self) -> str:
        """The path of the file or the folder."""
        return normpath(join(self.folder, self.text))

    def like(self, path: str) -> str:
        """Return the entry for another path, as this one is written."""
        return ("./" if self.text.startswith("./") else "") + relpath(path, self.folder or ".")


class Kustomizations:
    """The entries of the kustomizations of a tree."""

    def __init__(self, documents: Sequence[Document], tree: Tree) -> None:
        """Read the entries."""
        self._absolute = tree.absolute
        self._listing: defaultdict[str, list[Entry]] = defaultdict(list)  # by absolute path
        for number, document in enumerate(documents):
            for entry in entries_of(document, number, *FOLDERS) if is_kustomization(document) else ():
                self._listing[tree.absolute(entry.path)].append(entry)

    def listing(self, path: str) -> Sequence[Entry]:
        """Return the entries for a file or a folder."""
        return self._listing.get(self._absolute(path), ())

    def listing_below(self, folder: str) -> Iterator[Entry]:
        """Yield the entries for a folder, and for everything in it."""
        start = f"{self._absolute(folder)}/"
        for path, entries in self._listing.items():
            if f"{path}/".startswith(start):
                yield from entries


def entries_of(kustomization: Document, number: int, *fields: str) -> Iterator[Entry]:
    """Yield the entries in these fields of a kustomization."""
    folder = dirname(kustomization.file)
    for entry in strings(kustomization.object, *fields):
        yield Entry(number, folder, entry)


def first_entry(kustomization: Document, number: int) -> Entry:
    """Return the first resource of a kustomization; one for nothing if there is none."""
    return next(entries_of(kustomization, number, _FIELD), Entry(number, dirname(kustomization.file), ""))


def with_entry(entries: list[str], entry: str) -> list[str]:
    """Return a list with a new entry: in its order if most of the list is sorted, else at the end."""
    descents = sum(before > after for before, after in pairwise(entries))
    if descents * _MOSTLY > len(entries):
        return [*entries, entry]
    smaller = [other for other in entries if other < entry]
    position = entries.index(max(smaller)) + 1 if smaller else 0
    return [*entries[:position], entry, *entries[position:]]


class ClaimFiles:
    """Collects the claims and templates that a tree needs."""

    def __init__(self, documents: Sequence[Document], tree: Tree) -> None:
        """Read the entries of the kustomizations of a tree."""
        self._documents = documents
        self._tree = tree
        self._files = {document.file for document in documents}
        self._kustomizations = Kustomizations(documents, tree)
        self._new: dict[str, list[Object]] = {}
        self._added: dict[int, list[str]] = {}

    def add(self, number: int, obj: Object) -> None:
        """Add a claim or a template beside a document."""
        document = self._documents[number]
        path = self._path_beside(document, obj)
        if path not in self._new:
            for entry in self._entries_beside(number):
                self._added.setdefault(entry.number, []).append(entry.like(path))
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

    def _entries_beside(self, number: int) -> Sequence[Entry]:
        """Return the entries for the file of a document, or the first one of a kustomization."""
        document = self._documents[number]
        if is_kustomization(document):
            return [first_entry(document, number)]
        return self._kustomizations.listing(document.file)

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
