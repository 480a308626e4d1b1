"""Installs a driver in the way in which its tree installs the device plugin.

The driver's release has the form and the place of the plugin's release. If a folder contains only the plugin, the driver gets a sibling
folder with the same files; otherwise the plugin's documents are edited. An operator stays, and the driver is installed in addition.
"""

from __future__ import annotations

from posixpath import basename, dirname, join, relpath
from typing import TYPE_CHECKING, Final

from analysis.gitops import FOLDERS, is_kustomization, place_of
from analysis.migration import driver_objects
from analysis.migration.layout import entries_of, first_entry
from dra.raw import Object, inside, strings, text
from webhook.reading import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from analysis.gitops import Release
    from analysis.migration.layout import Changes, Folder, TreeLayout
    from analysis.migration.plan import Replacement
    from analysis.migration.pull_request import StepName

Place = tuple[str, str]  # namespace and name
# Kinds of objects that others name; they move to the folder of the driver.
NAMED: Final = ("RuntimeClass", "PriorityClass", "NodeFeatureRule")
KEPT: Final = ("Namespace", *NAMED)


def model_of(layout: TreeLayout, numbers: Collection[int]) -> Release | None:
    """Return the release among these that shows how the tree installs charts: that of a plugin rather than that of an operator."""
    candidates = [release for release in layout.releases if release.number in numbers and release.chart in PLUGINS]
    return min(candidates, key=lambda release: "operator" in release.chart, default=None)


class Installation:
    """Adds the release of a driver to the steps of a move."""

    def __init__(
        self,
        layout: TreeLayout,
        changes: Mapping[StepName, Changes],
        new: Replacement,
        model: Release,
        leaving: AbstractSet[int],
    ) -> None:
        """Install it as `model`, the release of a plugin among those that leave, or of an operator that stays."""
        self._layout, self._new, self._model = layout, new, model
        self._prepare, self._switch = changes["prepare"], changes["switch"]
        self._leaving, self._stays = leaving, model.number not in leaving
        self._document = layout.documents[model.number]
        self._names = {layout.name(model.number): new.chart, model.name: new.chart}

    def add(self, numbers: Collection[int]) -> dict[str, Place]:
        """Add the release like that of the model, which is among these. Return its place, and that of what builds it, by kind."""
        layout, new, model = self._layout, self._new, self._document.object
        number = self._model.number
        if is_kustomization(self._document):
            charts = PLUGINS.keys() & {release.chart for release in layout.releases if release.number == number}
            now = self._switch.now(number)
            self._switch.edits[number] = driver_objects.helm_charts(now, new, charts, keeps=self._stays)
            return {}
        self._folder = layout.new_folder(number, numbers, new.chart)
        if model["kind"] == "Application":
            wanted = driver_objects.application(model, new, self._model.chart, self._names)
        else:
            wanted = driver_objects.helm_release(model, new, self._source(), self._names)
            wanted = self._without(self._leaving, wanted)
        written = [number]
        self._put(number, wanted)
        builders = layout.builders(numbers)
        builder = layout.builder_of(number, builders)
        if self._folder is not None and builder is not None:
            self._names[layout.name(builder)] = new.chart
            self._put(builder, self._builder(builder, self._folder))
            written.append(builder)
        if self._folder is not None:
            self._copy(self._folder)
        documents = [layout.documents[other] for other in written]
        return {text(document.object["kind"]): (place_of(document.placed)[0], new.chart) for document in documents}

    def _put(self, number: int, obj: Object) -> None:
        """Write an object of the driver in the place of a document, or beside the document if that stays or has the name of its file."""
        file, name = self._layout.documents[number].file, self._layout.name(number)
        is_named = self._layout.is_alone(number) and name != "" and name in basename(file)
        if self._folder is not None and self._folder.has(file):
            self._switch.add(self._folder.path(file), obj, number)
        elif self._stays or is_named:
            new_name = basename(file).replace(name, self._new.chart) if is_named else f"{self._new.chart}.yaml"
            self._switch.add(join(dirname(file), new_name), obj, number, self._layout.entries(file))
            self._switch.edits |= {} if self._stays else {number: None}
        else:
            self._switch.edits[number] = obj

    def _without(self, gone: Collection[int], obj: Object, more: Sequence[Object] = ()) -> Object:
        """Return an object that waits for nothing that goes, and for `more`."""
        names = set(map(self._layout.name, gone))

        def kept(_: str, entry: Object) -> Object | None:
            group = text(entry.get("apiVersion")).partition("/")[0]
            return None if text(entry.get("name")) in names or group in driver_objects.PLUGIN_GROUPS else entry

        return driver_objects.waiting(obj, kept, more)

    # The folder

    def _builder(self, number: int, folder: Folder) -> Object:
        """Return what builds the folder of the driver, for what builds that of the model."""
        layout, document = self._layout, self._layout.documents[number]
        old = dirname(self._document.file)
        above = f"{dirname(folder.old)}/".lstrip("/")
        paths = old.removeprefix(above), folder.path(old).removeprefix(above)
        wanted = driver_objects.builder(document.object, self._new, self._names, paths)
        namespace = inside(document.object, "metadata").get("namespace")
        needs = {"name": layout.name(number)} | ({"namespace": namespace} if namespace else {})
        gone = (*self._leaving, *layout.builders(self._leaving))
        return self._without(gone, wanted, [needs] if self._stays else ())

    def _copy(self, folder: Folder) -> None:
        """Copy what others name and the kustomizations around the release to the folder of the driver, and list it beside the old one."""
        below = [(number, self._layout.documents[number]) for number in self._layout.below(folder.old)]
        for number, document in below:
            if document.object.get("kind") in KEPT and not self._stays:
                self._switch.add(folder.path(document.file), document.object, number)
        for number, document in below:
            if not is_kustomization(document) or not self._document.file.startswith(f"{dirname(document.file)}/"):
                continue
            path = folder.path(document.file)
            wanted = driver_objects.kustomization(document.object, self._names)
            for field in [field for field in FOLDERS if field in wanted]:
                wanted[field] = list(self._moved_entries(number, field, folder, dirname(path)))
            first = first_entry(document, number)._replace(folder=dirname(path))
            sources = map(first.like, self._prepare.added_in(dirname(path)))
            wanted["resources"] = list(dict.fromkeys((*strings(wanted, "resources"), *sources)))
            self._switch.add(path, wanted, number)
        for entry in self._layout.entries_below(folder.old):
            if not folder.has(entry.folder) and self._switch.adds_below(folder.path(entry.path)):
                self._switch.list_beside([entry], folder.path(entry.path))

    def _moved_entries(self, number: int, field: str, folder: Folder, new_folder: str) -> Iterator[str]:
        """Yield the entries of a kustomization for its copy in another folder."""
        for entry in entries_of(self._layout.documents[number], number, field):
            path = folder.path(entry.path)
            if not folder.has(entry.path):
                yield relpath(entry.path, new_folder) if entry.text.startswith(".") else entry.text
            elif self._prepare.adds_below(path) or self._switch.adds_below(path):
                yield entry._replace(folder=new_folder).like(path)

    # The source of the chart

    def _source(self) -> Object:
        """Add the source of the driver's chart, unless the tree has it. Return how a HelmRelease names it."""
        layout, new, documents = self._layout, self._new, self._layout.documents
        for number in layout.sources("HelmRepository"):
            if inside(documents[number].object, "spec").get("url") == driver_objects.repository_of(new):
                return layout.reference_to(number, layout.name(number))
        has_oci = new.url.startswith("oci://") and layout.sources("OCIRepository")
        kind = "OCIRepository" if has_oci else "HelmRepository"
        of_kind, old = layout.sources(kind), layout.source_of.get(self._model.number)
        like = old if old in of_kind else next(iter(of_kind), None)
        if like is None:
            plain = driver_objects.plain_source(self._document.object)
            self._add_source(driver_objects.source(plain, new), None)
            return {"kind": kind, "name": new.chart}
        wanted = driver_objects.source(documents[like].object, new)
        if like == old and self._replaces_source(like):
            self._put(like, wanted)
        else:
            self._add_source(wanted, like)
        return layout.reference_to(like, new.chart)

    def _replaces_source(self, source: int) -> bool:
        """Return whether the driver's source takes the place of the plugin's: in one file with the release, or beside it and not used by others."""
        file, of_release = self._layout.documents[source].file, self._document.file
        is_in_place = self._folder is None and dirname(file) == dirname(of_release)
        return file == of_release or (is_in_place and self._leaving >= {*self._layout.users(source)})

    def _add_source(self, obj: Object, like: int | None) -> None:
        """Write a source in the step `prepare`: where the tree has all sources, or else beside the release."""
        of_release, kind, files = self._document.file, obj["kind"].lower(), self._layout.documents
        file = of_release if like is None else files[like].file
        if like is not None and all(dirname(files[user].file) != dirname(file) for user in self._layout.users(like)):
            self._prepare.add(join(dirname(file), f"{self._new.chart}.yaml"), obj, like, self._layout.entries(file))
        elif self._folder is None:
            path = join(dirname(of_release), f"{self._new.chart}-{kind}.yaml")
            self._prepare.add(path, obj, like, self._layout.entries(of_release))
        else:
            name = basename(file) if like is not None and self._layout.is_alone(like) else f"{kind}.yaml"
            self._prepare.add(join(dirname(self._folder.path(of_release)), name), obj, like)
