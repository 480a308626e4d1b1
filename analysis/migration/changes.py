"""Collects what one step of a move changes, and makes the kustomizations follow."""

from __future__ import annotations

from collections import defaultdict
from posixpath import dirname
from typing import TYPE_CHECKING

from analysis.gitops import FOLDERS, is_kustomization
from analysis.migration.kustomizations import entries_of
from analysis.migration.pull_request import Edit, NewFile, Step, StepName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from analysis.migration.kustomizations import Entry
    from analysis.migration.layout import TreeLayout
    from cluster.manifests import Document
    from dra.raw import Object


class Changes:
    """The edits, the new files and the notes of a step."""

    def __init__(self, layout: TreeLayout) -> None:
        self._layout = layout
        self.edits: dict[int, Object | None] = {}
        self.notes: list[str] = []
        self._new: dict[str, list[tuple[Object, int | None]]] = {}  # with the documents that the objects are like
        self._beside: defaultdict[Entry, list[str]] = defaultdict(list)  # new entries

    def now(self, number: int) -> Object:
        """Return a document as it is so far."""
        return self.edits.get(number) or self._layout.documents[number].object

    def removes(self, number: int) -> bool:
        """Return whether a document goes."""
        return self.edits.get(number, {}) is None

    def add(self, path: str, obj: Object, like: int | None) -> None:
        """Add an object to a new file; `like` is the document whose form the object has."""
        self._new.setdefault(path, []).append((obj, like))

    def copies(self, number: int) -> bool:
        """Return whether a document is copied to a new file as it is."""
        document = self._layout.documents[number]
        return any(obj is document.object for objects in self._new.values() for obj, _ in objects)

    def added_in(self, folder: str) -> list[str]:
        """Return the new files of a folder."""
        return [path for path in self._new if dirname(path) == folder]

    def adds_below(self, path: str) -> bool:
        """Return whether there is a new file at a path, or below it."""
        return any(f"{file}/".startswith(f"{path}/") for file in self._new)

    def list_beside(self, entries: Iterable[Entry], path: str) -> None:
        """List a path after each of these entries."""
        for entry in entries:
            self._beside[entry].append(entry.like(path))

    def step(self, name: StepName, documents: Sequence[Document]) -> Step:
        """Return the step; `documents` are those that the step before it leaves."""
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
        """Yield the kustomizations that list what the step leaves and adds."""
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
