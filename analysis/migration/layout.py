"""Where a tree keeps its files, and where a step adds new ones: beside others, and listed as the kustomizations list these."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import cached_property
from itertools import pairwise
from posixpath import basename, dirname, join, normpath, relpath, splitext
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops import FLUX, FOLDERS, is_kustomization, releases
from analysis.migration.pull_request import Edit, NewFile, Step, StepName
from dra.raw import inside, strings, text
from webhook.reading import PLUGIN_KINDS
from webhook.translate import group_kind, name_of, paths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from analysis.gitops import Release, Tree
    from cluster.manifests import Document
    from dra.raw import Object

BUILDERS: Final = (FLUX, ("argoproj.io", "Application"))
SOURCES: Final = ("OCIRepository", "HelmRepository")
_MOSTLY: Final = 5  # a list in which one of five entries is out of order is sorted


class ListEntry(NamedTuple):
    """An entry of a kustomization for a file or a folder."""

    number: int  # of the kustomization
    folder: str  # of the kustomization
    field: str
    text: str

    @property
    def path(self) -> str:
        """The path of the file or the folder."""
        return normpath(join(self.folder, self.text))

    def like(self, path: str) -> str:
        """Return the entry for another path, as this one is written."""
        return ("./" if self.text.startswith("./") else "") + relpath(path, self.folder or ".")


def entries_of(kustomization: Document, number: int, *fields: str) -> Iterator[ListEntry]:
    """Yield the entries in these fields of a kustomization."""
    for field in fields:
        for entry in strings(kustomization.object, field):
            yield ListEntry(number, dirname(kustomization.file), field, entry)


def first_entry(kustomization: Document, number: int) -> ListEntry:
    """Return the first resource of a kustomization; one for nothing if there is none."""
    nothing = ListEntry(number, dirname(kustomization.file), "resources", "")
    return next(entries_of(kustomization, number, "resources"), nothing)


class Folder(NamedTuple):
    """A folder that contains only plugins, and the folder of their driver."""

    old: str
    new: str
    part: tuple[str, str] = ("", "")  # a folder below it that gets another name

    def has(self, path: str) -> bool:
        """Return whether a path is the folder or below it."""
        return f"{path}/".startswith(f"{self.old}/")

    def path(self, old: str) -> str:
        """Return the driver's path that corresponds to a path of the plugin."""
        first, separator, below = old.removeprefix(self.old).removeprefix("/").partition("/")
        return normpath(join(self.new, (self.part[1] if first == self.part[0] else first) + separator + below))


class TreeLayout:
    """The places of the documents of a tree."""

    def __init__(self, documents: Sequence[Document], tree: Tree) -> None:
        self.documents = documents
        self.tree = tree
        self._in_file: defaultdict[str, list[int]] = defaultdict(list)
        self._in_folder: defaultdict[str, list[int]] = defaultdict(list)
        self._entries: defaultdict[str, list[ListEntry]] = defaultdict(list)  # by absolute path
        for number, document in enumerate(documents):
            self._in_file[normpath(document.file)].append(number)
            for entry in entries_of(document, number, *FOLDERS) if is_kustomization(document) else ():
                self._entries[tree.absolute(entry.path)].append(entry)
        for file, numbers in self._in_file.items():
            folder = dirname(file)
            while folder and folder != "/":
                self._in_folder[folder] += numbers
                folder = dirname(folder)

    @cached_property
    def releases(self) -> list[Release]:
        """The releases of the tree."""
        return list(releases(self.documents, self.tree))

    @cached_property
    def by_name(self) -> dict[tuple[str, str], int]:
        """The numbers of the documents by file and name."""
        return {(document.file, name_of(document.placed)): number for number, document in enumerate(self.documents)}

    def name(self, number: int) -> str:
        """Return an object's name as its file has it."""
        return text(inside(self.documents[number].object, "metadata").get("name"))

    def is_alone(self, number: int) -> bool:
        """Return whether a document has a file of its own."""
        return len(self.at(self.documents[number].file)) == 1

    def at(self, path: str) -> list[int]:
        """Return the documents in a file or below a folder."""
        return self._in_file.get(normpath(path)) or self.below(path)

    def below(self, folder: str) -> list[int]:
        """Return the documents in a folder and its subfolders."""
        return self._in_folder.get(folder, [])

    def entries(self, path: str) -> Sequence[ListEntry]:
        """Return the entries of kustomizations for a file or a folder."""
        return self._entries.get(self.tree.absolute(path), ())

    def entries_below(self, folder: str) -> Iterator[ListEntry]:
        """Yield the entries for a folder, and for everything in it."""
        start = f"{self.tree.absolute(folder)}/"
        for path, entries in self._entries.items():
            if f"{path}/".startswith(start):
                yield from entries

    def builders(self, numbers: Collection[int]) -> list[int]:
        """Return the Flux and Argo CD documents that build some of these documents, and no other release or workload."""
        released = {release.number for release in self.releases}
        builders = []
        for number, document in enumerate(self.documents):
            built = self.tree.built_by(number) if group_kind(document.object) in BUILDERS else frozenset[int]()
            others = built.difference(numbers)
            if len(others) < len(built) and not any(
                other in released or paths(self.documents[other].placed) for other in others
            ):
                builders.append(number)
        return builders

    def builder_of(self, number: int, builders: Collection[int]) -> int | None:
        """Return the builder of a document that builds the fewest other documents."""
        of_document = [builder for builder in builders if number in self.tree.built_by(builder)]
        return min(of_document, key=lambda builder: len(self.tree.built_by(builder)), default=None)

    def folder(self, number: int, numbers: Collection[int]) -> str:
        """Return the folder around a release that has nothing but these documents and what belongs to them; "" if there is none."""
        builders = self.builders(numbers)
        builder = self.builder_of(number, builders)
        parts = {*numbers, *builders}.union(*[self.tree.built_by(other) for other in builders])
        for candidate in [dirname(self.documents[other].file) for other in (builder, number) if other is not None]:
            below = self.below(candidate)
            is_known = builder is not None or self.entries(candidate)
            if number in below and is_known and all(other in parts or self._is_part(other) for other in below):
                return candidate
        return ""

    def new_folder(self, number: int, numbers: Collection[int], name: str) -> Folder | None:
        """Return the folder around a release, and a new sibling folder of this name. Return None if there is no such folder or the new one exists."""
        old = self.folder(number, numbers)
        new = join(dirname(old), name)
        if not old or self.below(new):
            return None
        part = dirname(self.documents[number].file).removeprefix(old).removeprefix("/").partition("/")[0]
        has_several = len(set(self.builders(numbers)).intersection(self.below(old))) > 1
        return Folder(old, new, (part, self._usual_part(part)) if part and has_several else ("", ""))

    def _is_part(self, number: int) -> bool:
        document = self.documents[number]
        kind = group_kind(document.object)
        # A document without a kind is a file that a kustomization generates an object from.
        return is_kustomization(document) or kind[1] in ("", *SOURCES, "Namespace") or kind in PLUGIN_KINDS

    def _usual_part(self, default: str) -> str:
        """Return the most common name of the subfolder that a Flux Kustomization builds."""
        names: Counter[str] = Counter()
        for document in self.documents:
            if group_kind(document.object) == FLUX:
                path = text(inside(document.object, "spec").get("path")).rstrip("/")
                if basename(dirname(path)) == basename(dirname(document.file)):
                    names[basename(path)] += 1
        return max(names, key=names.__getitem__, default=default)

    # Sources of charts

    @cached_property
    def source_of(self) -> dict[int, int]:
        """The OCIRepository or HelmRepository of each HelmRelease, if it is in the tree, by the numbers of the documents."""
        by_name: defaultdict[tuple[object, object], list[int]] = defaultdict(list)
        for number, document in enumerate(self.documents):
            if (kind := document.object.get("kind")) in SOURCES:
                by_name[kind, self.name(number)].append(number)
        found: dict[int, int] = {}
        for number in dict.fromkeys(release.number for release in self.releases):
            reference, folder = self._reference(number), dirname(self.documents[number].file)
            if same := by_name.get((reference.get("kind"), reference.get("name"))):
                found[number] = min(same, key=lambda source: dirname(self.documents[source].file) != folder)
        return found

    def _reference(self, number: int) -> Object:
        """Return how a HelmRelease names its source."""
        spec = inside(self.documents[number].object, "spec")
        return inside(spec, "chartRef") or inside(spec, "chart", "spec", "sourceRef")

    def reference_to(self, source: int, name: str) -> Object:
        """Return how releases name a source, with another name."""
        references = [self._reference(number) for number in self.users(source)]
        namespace = next((reference["namespace"] for reference in references if "namespace" in reference), None)
        kind = self.documents[source].object["kind"]
        return {"kind": kind, "name": name} | ({"namespace": namespace} if namespace else {})

    def users(self, source: int) -> list[int]:
        """Return the releases that use a source."""
        return [number for number, other in self.source_of.items() if other == source]

    def sources(self, kind: str) -> list[int]:
        """Return the sources of charts of a kind, first those with a file of their own in the folder of a release."""
        used = {*self.source_of.values()}  # an OCIRepository can have other content than a chart
        folders = {dirname(self.documents[release.number].file) for release in self.releases}
        of_kind = [
            number
            for number, document in enumerate(self.documents)
            if document.object.get("kind") == kind and (kind == "HelmRepository" or number in used)
        ]
        return sorted(
            of_kind,
            key=lambda number: (not self.is_alone(number), dirname(self.documents[number].file) not in folders),
        )


class Changes:
    """The edits, the new files and the notes of a step."""

    def __init__(self, layout: TreeLayout) -> None:
        self._layout = layout
        self.edits: dict[int, Object | None] = {}
        self.notes: list[str] = []
        self._new: dict[str, list[tuple[Object, int | None]]] = {}  # with the documents that the objects are like
        # New entries, by the number and the field of a kustomization, each with the entry that it follows.
        self._entries: defaultdict[tuple[int, str], list[tuple[str, str]]] = defaultdict(list)

    def now(self, number: int) -> Object:
        """Return a document as it is so far."""
        return self.edits.get(number) or self._layout.documents[number].object

    def removes(self, number: int) -> bool:
        """Return whether a document goes."""
        return self.edits.get(number, {}) is None

    def add(self, path: str, obj: Object, like: int | None, entries: Iterable[ListEntry] = ()) -> None:
        """Add an object to a new file, which is listed after these entries; `like` is the document whose form the object has."""
        self._new.setdefault(path, []).append((obj, like))
        self.list_beside(entries, path)

    def add_beside(self, number: int, obj: Object) -> None:
        """Add an object in a new file beside a document, which is listed last."""
        document = self._layout.documents[number]
        entries = self._layout.entries(document.file)
        if is_kustomization(document):
            entries = [first_entry(document, number)]
        path = self._path_beside(document, obj)
        if path not in self._new:
            for entry in entries:
                self._entries[entry.number, "resources"].append(("", entry.like(path)))
        self.add(path, obj, None)

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
        return join(folder, of_object if is_named_after_object or self._layout.at(join(folder, of_kind)) else of_kind)

    def copies(self, number: int) -> bool:
        """Return whether a document is the form of a new object."""
        return any(like == number for objects in self._new.values() for _, like in objects)

    def added_in(self, folder: str) -> list[str]:
        """Return the new files of a folder."""
        return [path for path in self._new if dirname(path) == folder]

    def adds_below(self, path: str) -> bool:
        """Return whether there is a new file at a path, or below it."""
        return any(f"{file}/".startswith(f"{path}/") for file in self._new)

    def list_beside(self, entries: Iterable[ListEntry], path: str) -> None:
        """List a path after each of these entries."""
        for entry in entries:
            self._entries[entry.number, entry.field].append((entry.text, entry.like(path)))

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
        for number, document in enumerate(documents) if self.edits or self._entries else ():
            if not is_kustomization(document) or self.removes(number):
                continue
            lists = {}
            for field in FOLDERS:
                old = list(entries_of(document, number, field))
                gone = {entry.text for entry in old if self._removes_all(self._layout.at(entry.path))}
                entries = _with_entries([entry.text for entry in old], self._entries.get((number, field), ()))
                if entries != [entry.text for entry in old] or gone:
                    lists[field] = [entry for entry in entries if entry not in gone]
            if lists:
                yield number, (self.edits.get(number) or document.object) | lists

    def _removes_all(self, numbers: Sequence[int]) -> bool:
        return bool(numbers) and all(map(self.removes, numbers))


def _with_entries(entries: list[str], new: Iterable[tuple[str, str]]) -> list[str]:
    """Return a list with new entries, in its order if it is sorted: else behind those that they follow, or at the end."""
    for before, entry in new:
        descents = sum(one > other for one, other in pairwise(entries))
        # An entry that follows none may take its place in a list that is sorted for the most part.
        is_sorted = not descents if before else descents * _MOSTLY <= len(entries)
        position = entries.index(before) + 1 if before in entries else len(entries)
        if is_sorted:
            smaller = [(other, index) for index, other in enumerate(entries, 1) if other < entry]
            _, position = max(smaller, default=("", 0))
        if entry not in entries:
            entries = [*entries[:position], entry, *entries[position:]]
    return entries


def _hyphened(kind: str) -> str:
    """Return a kind in lower case, with hyphens between its words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind).lower()
