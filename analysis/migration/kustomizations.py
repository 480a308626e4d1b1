"""Reads the entries of a tree's kustomizations, and adds entries for new files."""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import pairwise
from posixpath import basename, commonpath, dirname, join, normpath, relpath, splitext
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops import FOLDERS, is_kustomization
from analysis.migration.pull_request import Edit, NewFile, Step, StepName
from dra.raw import inside, strings, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from analysis.gitops import Tree
    from analysis.migration.layout import TreeLayout
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
        """Return an entry for another path in the same notation."""
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
        """Return the entries that name a file or a folder."""
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
    """Return the first resource of a kustomization; an empty entry if there is none."""
    return next(entries_of(kustomization, number, _FIELD), Entry(number, dirname(kustomization.file), ""))


def with_entry(entries: list[str], entry: str) -> list[str]:
    """Add an entry to a list: at its sorted position if most of the list is sorted, else at the end."""
    descents = sum(before > after for before, after in pairwise(entries))
    if descents * _MOSTLY > len(entries):
        return [*entries, entry]
    smaller = [other for other in entries if other < entry]
    position = entries.index(max(smaller)) + 1 if smaller else 0
    return [*entries[:position], entry, *entries[position:]]


class ClaimFiles:
    """Collects the new claims and templates of a tree, and the files for them."""

    def __init__(self, documents: Sequence[Document], tree: Tree) -> None:
        """Read the entries of the kustomizations of a tree."""
        self._documents = documents
        self._tree = tree
        self._files = {document.file for document in documents}
        self._kustomizations = Kustomizations(documents, tree)
        self._new: dict[str, list[Object]] = {}
        self._added: dict[int, list[str]] = {}

    def add(self, number: int, obj: Object) -> None:
        """Add a claim or a template in the folder of a document."""
        document = self._documents[number]
        path = self._path_beside(document, obj)
        if path not in self._new:
            for entry in self._entries_beside(number):
                self._added.setdefault(entry.number, []).append(entry.like(path))
        self._new.setdefault(path, []).append(obj)

    def common_place(self, numbers: Collection[int], namespace: str) -> int:
        """Return the document whose folder gets a claim that several documents use."""
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
        """Return the entries for a document's file; for a kustomization, its first entry."""
        document = self._documents[number]
        if is_kustomization(document):
            return [first_entry(document, number)]
        return self._kustomizations.listing(document.file)

    def _path_beside(self, document: Document, obj: Object) -> str:
        """Return the path of a new file. It is named after the kind or the object, as the document's file is."""
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
    """Return a kind in kebab case."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind).lower()


class Changes:
    """Collects the edits, new files and notes of a step."""

    def __init__(self, layout: TreeLayout) -> None:
        self._layout = layout
        self.edits: dict[int, Object | None] = {}
        self.notes: list[str] = []
        self._new: dict[str, list[tuple[Object, int | None]]] = {}  # with the documents that the objects are like
        self._beside: defaultdict[Entry, list[str]] = defaultdict(list)  # new entries

    def now(self, number: int) -> Object:
        """Return a document with the edits so far."""
        return self.edits.get(number) or self._layout.documents[number].object

    def removes(self, number: int) -> bool:
        """Return whether the step removes a document."""
        return self.edits.get(number, {}) is None

    def add(self, path: str, obj: Object, like: int | None) -> None:
        """Add an object in a new file, formatted like the document `like`."""
        self._new.setdefault(path, []).append((obj, like))

    def copies(self, number: int) -> bool:
        """Return whether a document is copied unchanged to a new file."""
        document = self._layout.documents[number]
        return any(obj is document.object for objects in self._new.values() for obj, _ in objects)

    def added_in(self, folder: str) -> list[str]:
        """Return the new files in a folder."""
        return [path for path in self._new if dirname(path) == folder]

    def adds_below(self, path: str) -> bool:
        """Return whether there is a new file at a path, or below it."""
        return any(f"{file}/".startswith(f"{path}/") for file in self._new)

    def list_beside(self, entries: Iterable[Entry], path: str) -> None:
        """Insert an entry for a path after each of these entries."""
        for entry in entries:
            self._beside[entry].append(entry.like(path))

    def step(self, name: StepName, documents: Sequence[Document]) -> Step:
        """Return the step. `documents` are the documents after the previous step."""
        edits = self.edits | dict(self._lists(documents))
        new = [
            NewFile(path, tuple(obj for obj, _ in objects), objects[0][1] if len(objects) == 1 else None)
            for path, objects in self._new.items()
        ]
        return Step(
            name,
            tuple(Edit(number, obj) for number, obj in sorted(edits.items()) if obj != documents[number].object),
            tuple(new),
            tuple(dict.fromkeys(self.notes)),
        )

    def _lists(self, documents: Sequence[Document]) -> Iterator[tuple[int, Object]]:
        """Yield the edited kustomizations: without removed files, with new files."""
        for number, document in enumerate(documents) if self.edits or self._beside else ():
            if not is_kustomization(document) or self.removes(number):
                continue
            lists = {}
            for field in FOLDERS:
                old = list(entries_of(document, number, field))
                entries = list(dict.fromkeys(self._entries(old)))
                if entries != (texts := [entry.text for entry in old]):
                    lists[field] = sorted(entries) if texts == sorted(texts) else entries
            if lists:
                yield number, (self.edits.get(number) or document.object) | lists

    def _entries(self, old: Iterable[Entry]) -> Iterator[str]:
        for entry in old:
            numbers = self._layout.at(entry.path)
            if not numbers or not all(map(self.removes, numbers)):
                yield entry.text
            yield from self._beside.get(entry, ())
