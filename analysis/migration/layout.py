"""The places of a plugin's release, source and builder in a tree, and the places for the driver's."""

from __future__ import annotations

from collections import Counter, defaultdict
from posixpath import basename, dirname, join, normpath
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops import FLUX, is_kustomization, releases
from analysis.migration.kustomizations import Kustomizations
from dra.raw import inside, text
from webhook.reading import PLUGIN_KINDS
from webhook.translate import group_kind, name_of, paths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Release, Tree
    from cluster.manifests import Document
    from dra.raw import Object

BUILDERS: Final = (FLUX, ("argoproj.io", "Application"))
SOURCES: Final = ("OCIRepository", "HelmRepository")


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
        self.releases = list(releases(documents, tree))
        self.by_name = {(document.file, name_of(document.placed)): number for number, document in enumerate(documents)}
        self.kustomizations = Kustomizations(documents, tree)
        self._in_file: defaultdict[str, list[int]] = defaultdict(list)
        for number, document in enumerate(documents):
            self._in_file[normpath(document.file)].append(number)
        self._in_folder: defaultdict[str, list[int]] = defaultdict(list)
        for file, numbers in self._in_file.items():
            folder = dirname(file)
            while folder and folder != "/":
                self._in_folder[folder] += numbers
                folder = dirname(folder)

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
        """Return the largest folder around a release that contains only these documents and their files; "" if there is none."""
        own = dirname(self.documents[number].file)
        builders = self.builders(numbers)
        builder = self.builder_of(number, builders)
        home = "" if builder is None else dirname(self.documents[builder].file)
        parts = {*numbers, *builders}.union(*[self.tree.built_by(other) for other in builders])
        for candidate in dict.fromkeys((home, own)):
            below = self.below(candidate)
            is_known = builder is not None or bool(self.kustomizations.listing(candidate))
            if (
                candidate
                and number in below
                and is_known
                and all(other in parts or self._is_part(other) for other in below)
            ):
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

    def reference(self, release: Release) -> Object:
        """Return the source reference of a HelmRelease."""
        spec = inside(self.documents[release.number].object, "spec")
        return inside(spec, "chartRef") or inside(spec, "chart", "spec", "sourceRef")

    def reference_to(self, source: int, name: str) -> Object:
        """Return the reference of releases to a source, with another name."""
        references = [self.reference(release) for release in self.users(source)]
        namespace = next((reference["namespace"] for reference in references if "namespace" in reference), None)
        kind = self.documents[source].object["kind"]
        return {"kind": kind, "name": name} | ({"namespace": namespace} if namespace else {})

    def source_of(self, release: Release) -> int | None:
        """Return the OCIRepository or HelmRepository of a HelmRelease, if it is in the tree."""
        reference = self.reference(release)
        wanted = reference.get("kind"), reference.get("name")
        same = [
            number
            for number, document in enumerate(self.documents)
            if (document.object.get("kind"), self.name(number)) == wanted and wanted[0] in SOURCES
        ]
        beside = dirname(self.documents[release.number].file)
        return min(same, key=lambda number: dirname(self.documents[number].file) != beside, default=None)

    def users(self, source: int) -> list[Release]:
        """Return the releases that use a source."""
        return [release for release in self.releases if self.source_of(release) == source]

    def sources(self, kind: str) -> Iterator[int]:
        """Yield the chart sources of a kind. Sources with a file of their own in a release's folder come first."""
        used = set(map(self.source_of, self.releases))  # an OCIRepository can have other content than a chart
        folders = {dirname(self.documents[release.number].file) for release in self.releases}
        of_kind = [
            number
            for number, document in enumerate(self.documents)
            if document.object.get("kind") == kind and (kind == "HelmRepository" or number in used)
        ]
        yield from sorted(
            of_kind,
            key=lambda number: (not self.is_alone(number), dirname(self.documents[number].file) not in folders),
        )
