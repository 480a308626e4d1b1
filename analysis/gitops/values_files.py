"""Finds the files and ConfigMaps of a tree with values of charts.

valuesFrom                       of a HelmRelease: a ConfigMap or Secret, also one that a kustomization generates from a file
helm.valueFiles                  of an Application: paths in the tree, also `$REF/PATH` of a source with `ref`
valuesFile                       of the `helmCharts` of a kustomization
Chart.yaml and values.yaml       a chart in the tree, with the values of its dependencies
"""

from __future__ import annotations

from posixpath import basename, commonpath, dirname, join, normpath
from typing import TYPE_CHECKING, NamedTuple

from analysis.gitops.argo_values import parsed
from analysis.gitops.kustomizations import is_kustomization
from dra.pointer import member
from dra.raw import Object, inside, items, mapping, strings, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.gitops.tree import Tree
    from cluster.manifests import Document

_SOURCES_OF_VALUES = (("", "ConfigMap"), ("", "Secret"))


class ValuesFile(NamedTuple):
    """Values of a chart outside of the object that names the chart."""

    number: int  # of the document
    pointer: str  # to the values, or to their text
    values: Object
    is_text: bool = False


class ValuesFiles:
    """The documents of a tree, by path, and the ConfigMaps and Secrets with texts."""

    def __init__(self, documents: Sequence[Document], tree: Tree) -> None:
        """Index the documents; `tree` is the tree of these."""
        self._documents, self._tree = documents, tree
        self._by_path: dict[str, list[int]] = {}
        self._objects: dict[tuple[str, str], list[int]] = {}
        # Keys and paths, each with the kustomization, by the name of a generated ConfigMap.
        self._generated: dict[str, list[tuple[int, str, str]]] = {}
        for number, document in enumerate(documents):
            self._by_path.setdefault(tree.absolute(document.file), []).append(number)
            if group_kind(document.object) in _SOURCES_OF_VALUES:
                name = text(inside(document.object, "metadata").get("name"))
                self._objects.setdefault((text(document.object.get("kind")), name), []).append(number)
            if is_kustomization(document):
                folder = dirname(document.file)
                for generator in (
                    *items(document.object, "configMapGenerator"),
                    *items(document.object, "secretGenerator"),
                ):
                    for entry in strings(generator, "files"):
                        key, separator, path = entry.partition("=")
                        place = join(folder, path if separator else key)
                        generated = self._generated.setdefault(text(generator.get("name")), [])
                        generated.append((number, key if separator else basename(key), place))

    def at(self, path: str) -> Iterator[ValuesFile]:
        """Yield the values of a file."""
        numbers = self._by_path.get(self._tree.absolute(path), [])
        if len(numbers) == 1:
            yield ValuesFile(numbers[0], "", self._documents[numbers[0]].object)

    def below_root(self, document: Document, path: str) -> Iterator[ValuesFile]:
        """Yield the values of a file; `path` begins at the root of the repository, which is the highest folder that has the path."""
        above, highest = dirname(self._tree.absolute(document.file)), ""
        while above != dirname(above):
            candidate = normpath(join(above, path))
            highest = candidate if candidate in self._by_path else highest
            above = dirname(above)
        if highest:
            yield from self.at(highest)

    def of_references(self, number: int, spec: Object) -> Iterator[ValuesFile]:
        """Yield the values that `valuesFrom` of a HelmRelease names; `number` is that of its document."""
        for reference in items(spec, "valuesFrom"):
            name, key = text(reference.get("name")), text(reference.get("valuesKey")) or "values.yaml"
            if reference.get("targetPath"):
                continue  # one value
            for other in self._nearest(number, self._objects.get((text(reference.get("kind")), name), []))[:1]:
                for field in ("data", "stringData"):
                    written = text(inside(self._documents[other].object, field).get(key))
                    if written:
                        yield ValuesFile(other, member(f"/{field}", key), parsed(written), is_text=True)
            generated = self._generated.get(name, [])
            nearest = self._nearest(number, [other for other, _, _ in generated])
            for other, generated_key, path in generated:
                if generated_key == key and other in nearest:
                    yield from self.at(path)

    def _nearest(self, number: int, others: Sequence[int]) -> list[int]:
        """Return those of several documents that one build has together with a document, and among them those in the nearest folder."""
        together = self._tree.built_with(number) if len(others) > 1 else ()
        near = [other for other in others if other in together] or others
        folders = [dirname(self._tree.absolute(self._documents[other].file)) for other in (number, *near)]
        depths = [len(commonpath([folders[0], folder])) for folder in folders[1:]]
        return [other for other, depth in zip(near, depths, strict=True) if depth == max(depths)]

    def of_application(self, document: Document, source: Object, sources: Sequence[Object]) -> Iterator[ValuesFile]:
        """Yield the values that `valueFiles` of a source of an Application name."""
        references = {f"${text(other.get('ref'))}" for other in sources if other.get("ref")}
        for file in strings(inside(source, "helm"), "valueFiles"):
            start, _, path = file.partition("/")
            if start in references:
                yield from self.below_root(document, path)
            elif folder := text(source.get("path")):
                yield from self.below_root(document, join(folder, file))

    def of_chart(self, chart: Document) -> Iterator[tuple[str, str, ValuesFile]]:
        """Yield the name and version of each chart with values in values.yaml beside a Chart.yaml."""
        for file in self.at(join(dirname(chart.file), "values.yaml")):
            rest = file.values
            own = text(chart.object.get("name")), text(chart.object.get("version"))
            for dependency in items(chart.object, "dependencies"):
                name = text(dependency.get("name"))
                # The values of a chart are also those of its library.
                if name == "common" and "bjw-s" in text(dependency.get("repository")):
                    own = name, text(dependency.get("version"))
                key = text(dependency.get("alias")) or name
                if key in rest:
                    values = mapping(rest[key])
                    yield name, text(dependency.get("version")), file._replace(pointer=member("", key), values=values)
                rest = {other: value for other, value in rest.items() if other != key}
            if rest:
                yield *own, file._replace(values=rest)
