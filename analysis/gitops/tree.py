"""What kustomize, Flux and Argo CD include of a Git tree, and the namespaces that they set."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from posixpath import commonpath, dirname, join, normpath
from typing import TYPE_CHECKING

from analysis.gitops.argo_values import merged
from analysis.gitops.kustomizations import FOLDERS, files_of, is_kustomization
from analysis.gitops.patches import patched, patches_of
from analysis.gitops.sources import APPLICATION, APPLICATION_SET, FLUX, RELEASE, sources_of
from cluster.manifests import document_of, value_of
from cluster.resources import resource_of
from dra.budget import Budget
from dra.errors import OutOfBudget
from dra.raw import inside, strings, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from typing import Any

    from analysis.gitops.patches import Patch, Patched
    from analysis.gitops.sources import Source
    from cluster.manifests import Document, InputProblem
    from dra.raw import Object

_BUILDERS = (FLUX, APPLICATION, APPLICATION_SET)
_MAX_VISITS = 1_000_000  # of folders and files, in all builds of a tree
MAX_STEPS = 5_000_000  # of applying the patches of a tree


def _name(obj: Object) -> str:
    return text(inside(obj, "metadata").get("name"))


class Tree:
    """The folders of a tree, with the namespaces that are set for each document."""

    def __init__(
        self,
        documents: Sequence[Document],
        absolute: Callable[[str], str],
        repository: Callable[[str], str],
        others: Sequence[InputProblem] = (),
    ) -> None:
        """Visit the folders of these documents; `others` are texts that are no objects, such as lists of operations of patches.

        `absolute` returns the absolute path of a file, and `repository` the root of the repository of an absolute folder; "" if it has none.
        """
        self._documents = documents
        self.absolute = absolute
        self._repository = repository
        self._kustomizations: dict[str, Document] = {}
        self._positions: dict[str, int] = {}  # of the kustomizations among the documents
        self._by_file: defaultdict[str, list[int]] = defaultdict(list)
        self._builders: list[int] = []
        for number, document in enumerate(documents):
            if is_kustomization(document):
                folder = dirname(absolute(document.file))
                self._kustomizations[folder], self._positions[folder] = document, number
            else:
                self._by_file[document.file].append(number)
            if group_kind(document.object) in _BUILDERS:
                self._builders.append(number)
        # The members of each folder: files, and folders that contain files.
        self._below: defaultdict[str, set[str]] = defaultdict(set)
        self._numbers = {absolute(file): numbers for file, numbers in self._by_file.items()}
        for path in (*self._numbers, *self._kustomizations) if self._kustomizations or self._builders else ():
            while (above := dirname(path)) != path and path not in self._below[above]:
                self._below[above].add(path)
                path = above  # noqa: PLW2901
        self._folders = frozenset((*self._below, *self._kustomizations))
        self._common = commonpath(files) if (files := {*map(dirname, self._numbers), *self._kustomizations}) else ""
        self._replaced: defaultdict[int, set[str]] = defaultdict(set)  # the namespaces that replace that of a document
        self._added: defaultdict[int, set[str]] = defaultdict(set)  # the namespaces of documents that have none
        self._included: set[int] = set()
        self._built: defaultdict[int, set[int]] = defaultdict(
            set
        )  # the documents that an object of Flux or Argo CD builds
        self._entries: dict[str, tuple[str, ...]] = {}  # what a kustomization includes, by its folder
        self._visited: dict[tuple[str, str, str, bool], set[int]] = {}
        self._visits = 0
        self._has_more_patches = False
        self._others = {absolute(other.file): other for other in others}
        self._patches: defaultdict[tuple[tuple[str, str], str], list[Object]] = defaultdict(list)
        for position in self._positions.values() if self._builders else ():
            for patch in self.patches.get(position, ()):
                if isinstance(patch.content, dict):
                    self._patches[group_kind(patch.content), _name(patch.content)].append(patch.content)
        self._visit_all()

    @property
    def is_too_large(self) -> bool:
        """Whether it has so many builds or patches that only the first were followed."""
        return self._visits > _MAX_VISITS or self._has_more_patches

    def _visit_all(self) -> None:
        """Visit the kustomizations that nothing includes, then the folders that Flux and Argo CD build."""
        included = {
            self.absolute(path)
            for kustomization in self._kustomizations.values()
            for path in files_of(kustomization, FOLDERS)
        }
        # A hidden folder beside others is no entry of a cluster: what it has counts only if something includes it.
        files = {number: self.absolute(self._documents[number].file) for number in self._builders}
        visible = [number for number, file in files.items() if not self._is_hidden(file) or file in included]
        built = [
            (number, source)
            for number in visible or self._builders
            for obj in self._as_patched(number)
            for source in self._sources(number, obj)
        ]
        # Other repositories have the same paths. That of this tree is the most common one.
        uses = Counter((source.builder, source.repository) for _, source in built)
        most = {builder: max(number for (other, _), number in uses.items() if other == builder) for builder, _ in uses}
        built = [
            (number, source)
            for number, source in built
            if uses[source.builder, source.repository] == most[source.builder]
        ]
        targets = {self._folder_of(number, source) for number, source in built if self._namespace_set(source)}
        visited = set[int]()
        for folder in self._kustomizations:
            if folder not in included and folder not in targets:
                of_folder = self._visit(folder, "", "", recurses=False)
                visited |= set() if self._is_hidden(folder) else of_folder
        # The objects of Flux and Argo CD that only kustomizations list may be the entry of a cluster.
        self._included = visited.intersection(self._builders) if built else visited
        for number, source in built:
            if folder := self._folder_of(number, source):
                # In many trees, a transformer copies the namespace of Flux's object into its targetNamespace.
                inherited = self.namespace_of(number) if group_kind(self._documents[number].object) == FLUX else ""
                added = source.namespace or inherited
                options = source.options
                replacing = text(options.get("namespace"))
                components = [normpath(join(folder, path)) for path in strings(options, "components")]
                for path in (folder, *components):
                    visited = self._visit(path, replacing, added, recurses=source.recurses and path == folder)
                    self._built[number] |= visited
                    self._included |= visited

    def _is_hidden(self, path: str) -> bool:
        """Return whether a path is in a folder of the repository whose name begins with a dot."""
        return "/." in path.removeprefix(self._repository(dirname(path)) or self._common)

    def _as_patched(self, number: int) -> Iterator[Object]:
        """Yield an object of Flux or Argo CD as it is written, and with each patch of the tree for its name."""
        obj = self._documents[number].object
        yield obj
        yield from (merged(obj, patch) for patch in self._patches.get((group_kind(obj), _name(obj)), ()))

    def patch_files(self, document: Document, file: str) -> Iterator[tuple[Document, str, Any]]:
        """Yield the patches in a file that a document names, each with its pointer."""
        path = self.absolute(normpath(join(dirname(document.file), file)))
        for number in self._numbers.get(path, ()):
            yield self._documents[number], "", self._documents[number].object
        if other := self._others.get(path):
            yield document_of(other), "", value_of(other.text.decode(errors="replace"))

    @property
    def has_builds(self) -> bool:
        """Whether the tree has kustomizations, objects of Flux or Argo CD, or documents that are no objects, such as values of charts."""
        return bool(self._kustomizations or self._builders) or any(
            group_kind(document.object) == RELEASE or "kind" not in document.object for document in self._documents
        )

    @cached_property
    def patches(self) -> Mapping[int, Sequence[Patch]]:
        """The patches of each kustomization, and of each object of Flux or Argo CD, by the number of its document."""
        patches = {number: [*patches_of(document, self)] for number, document in enumerate(self._documents)}
        return {number: of_document for number, of_document in patches.items() if of_document}

    @cached_property
    def patched(self) -> tuple[Patched, ...]:
        """The objects as builds make them with patches."""
        parts: list[Patched] = []
        try:
            for part in patched(self._documents, self, Budget(MAX_STEPS)):
                parts.append(part)  # noqa: PERF402  what was found before the budget is spent counts
        except OutOfBudget:
            self._has_more_patches = True
        return tuple(parts)

    @property
    def builds(self) -> Iterator[AbstractSet[int]]:
        """The numbers of the documents of each build, with those of its kustomizations, or of the object of Flux or Argo CD."""
        yield from self._visited.values()
        yield from ({number, *built} for number, built in self._built.items())

    def scope_of(self, number: int) -> AbstractSet[int]:
        """Return the numbers of the documents that the patches of a kustomization, or of an object of Flux or Argo CD, may change."""
        folder = dirname(self.absolute(self._documents[number].file))
        if self._positions.get(folder) != number:
            return self.built_by(number)
        # A component changes what the kustomizations build that include it.
        makers = [folder]
        if self._documents[number].object.get("kind") == "Component":
            makers = [
                other
                for other, kustomization in self._kustomizations.items()
                if folder in map(self.absolute, files_of(kustomization, ["components"]))
            ]
        waiting, seen, scope = makers, set[str](), set[int]()
        while waiting:
            path = waiting.pop()
            if path not in seen:
                seen.add(path)
                scope.update(self._numbers.get(path, ()), [self._positions[path]] if path in self._positions else ())
                waiting += self._entries.get(path, ())
        return scope

    def _sources(self, number: int, obj: Object) -> Iterator[Source]:
        document = self._documents[number]
        starts = [f"{root}/" for root in self._roots(document)]
        yield from sources_of(
            obj,
            ([name.removeprefix(start) for name in self._folders if name.startswith(start)] for start in starts),
        )

    def _roots(self, document: Document) -> list[str]:
        """Return the folders that may be the root of the repository of a document, the likeliest first.

        Without a repository, that is the highest folder of the input; then come the folders above it, because the input may be a part of a tree.
        """
        folder = dirname(self.absolute(document.file))
        repository = self._repository(folder)
        above = [folder]
        while (parent := dirname(above[-1])) not in ("/", ""):
            above.append(parent)
        count = sum(name.startswith(repository or self._common) for name in above)
        return [*reversed(above[:count]), *([] if repository else above[count:])]

    @staticmethod
    def _namespace_set(source: Source) -> str:
        return text(source.options.get("namespace")) or source.namespace

    def _folder_of(self, number: int, source: Source) -> str:
        """Return the folder of a source; "" if the tree has none."""
        roots = self._roots(self._documents[number])
        folders = (normpath(join(root, source.path.lstrip("/"))) for root in roots)
        return next((folder for folder in folders if folder in self._folders), "")

    def _visit(self, folder: str, namespace: str, added: str, *, recurses: bool) -> set[int]:
        """Set the namespace of all documents that the build of a folder includes, and return their numbers.

        An outer namespace replaces an inner one.
        """
        build = folder, namespace, added, recurses
        if build in self._visited:
            return self._visited[build]
        visited = self._visited[build] = set()
        waiting = [(folder, namespace)]
        seen: set[str] = set()
        while waiting and self._visits <= _MAX_VISITS:
            self._visits += 1
            path, outer = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            for number in self._numbers.get(path, ()):
                (self._replaced if outer else self._added)[number].add(outer or added)
                visited.add(number)
            kustomization = self._kustomizations.get(path)
            if kustomization is not None:
                inner = outer or self._own_namespace(kustomization)
                # For a kustomization, the namespace is that of the objects that it generates.
                number = self._positions[path]
                (self._replaced if inner else self._added)[number].add(inner or added)
                visited.add(number)
                if path not in self._entries:
                    self._entries[path] = tuple(map(self.absolute, files_of(kustomization, FOLDERS)))
                waiting += [(entry, inner) for entry in self._entries[path]]
            elif path == folder or recurses:
                waiting += [(entry, outer) for entry in self._below.get(path, ()) if recurses or entry in self._numbers]
        return visited

    def _own_namespace(self, kustomization: Document) -> str:
        """Return the namespace that a kustomization sets, itself or by the kustomization of a transformer."""
        if own := text(kustomization.object.get("namespace")):
            return own
        transformers = [
            self._kustomizations.get(self.absolute(path)) for path in files_of(kustomization, ["transformers"])
        ]
        set_by_transformers = [text(found.object.get("namespace")) for found in transformers if found is not None]
        return next(filter(None, set_by_transformers), "")

    def includes(self, number: int) -> bool:
        """Return whether Flux, Argo CD, or in a tree without them a kustomization includes a document."""
        return number in self._included

    @cached_property
    def reached(self) -> frozenset[int]:
        """The numbers of the documents that a build includes, and of the builders that nothing includes; of all, in a tree without builds."""
        if not self._included:
            return frozenset(range(len(self._documents)))
        return frozenset(self._included.union([number for number, built in self._built.items() if built]))

    def built_by(self, number: int) -> frozenset[int]:
        """Return the numbers of the documents that an object of Flux or Argo CD builds."""
        return frozenset(self._built.get(number, ()))

    def built_with(self, number: int) -> frozenset[int]:
        """Return the numbers of the documents that Flux or Argo CD build together with a document."""
        return frozenset().union(*[built for built in self._built.values() if number in built])

    def kustomization_beside(self, number: int) -> str:
        """Return the kustomization in the folder of a document that no kustomization lists; "" if there is none."""
        if number in self._replaced or number in self._added:
            return ""
        beside = self._kustomizations.get(dirname(self.absolute(self._documents[number].file)))
        return "" if beside is None else beside.file

    def replaces_namespace(self, number: int) -> bool:
        """Return whether a build sets the namespace of a document, whatever the document has."""
        return number in self._replaced

    def namespaces_set(self, number: int) -> frozenset[str]:
        """Return the namespaces that builds set for a document, whatever the document has."""
        return frozenset(self._replaced.get(number, ()))

    def namespace_of(self, number: int) -> str:
        """Return the namespace that is set for a document; "" if there is none, or several."""
        obj = self._documents[number].object
        kind = resource_of(obj)
        if kind is not None and not kind.namespaced:
            return ""
        replaced = self._replaced.get(number)
        if replaced:
            return next(iter(replaced)) if len(replaced) == 1 else ""
        added = self._added.get(number, set()) - {""}
        has_own = bool(inside(obj, "metadata").get("namespace"))
        return next(iter(added)) if len(added) == 1 and not has_own else ""
