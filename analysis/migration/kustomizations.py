"""What the kustomizations of a tree list, and how they list more."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from posixpath import dirname, join, normpath, relpath
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops import FOLDERS, is_kustomization
from dra.raw import strings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.gitops import Tree
    from cluster.manifests import Document

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
    for text in strings(kustomization.object, *fields):
        yield Entry(number, folder, text)


def first_entry(kustomization: Document, number: int) -> Entry:
    """Return the first resource of a kustomization; one for nothing if there is none."""
    return next(entries_of(kustomization, number, "resources"), Entry(number, dirname(kustomization.file), ""))


def with_entry(entries: list[str], entry: str) -> list[str]:
    """Return a list with a new entry: in its order if most of the list is sorted, else at the end."""
    descents = sum(before > after for before, after in pairwise(entries))
    if descents * _MOSTLY > len(entries):
        return [*entries, entry]
    smaller = [other for other in entries if other < entry]
    position = entries.index(max(smaller)) + 1 if smaller else 0
    return [*entries[:position], entry, *entries[position:]]
