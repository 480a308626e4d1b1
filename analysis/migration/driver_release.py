"""Installs a driver in the way in which its tree installs the device plugin.

The driver's release has the form and the place of the plugin's release. If a folder contains only the plugin, the driver gets a sibling
folder with the same files; otherwise the plugin's documents are edited. An operator stays, and the driver is installed in addition.
"""

from __future__ import annotations

from posixpath import basename, dirname, join, relpath
from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.gitops import FOLDERS, is_kustomization, place_of
from analysis.migration import driver_objects
from analysis.migration.kustomizations import entries_of, first_entry
from dra.raw import Object, inside, strings
from webhook.reading import PLUGINS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from analysis.gitops import Release
    from analysis.migration.kustomizations import Changes, Entry
    from analysis.migration.layout import Folder, TreeLayout
    from analysis.migration.plan import Replacement

Place = tuple[str, str]  # namespace and name
# Kinds of objects that others name; they move to the folder of the driver.
NAMED: Final = ("RuntimeClass", "PriorityClass", "NodeFeatureRule")
KEPT: Final = ("Namespace", *NAMED)


class Model(NamedTuple):
    """An example of how the tree installs charts: the release of a plugin, or of an operator that stays."""

    release: Release
    stays: bool
    builder: int | None  # the document that builds its folder
    folder: Folder | None

    @property
    def number(self) -> int:
        return self.release.number


def model_of(layout: TreeLayout, numbers: Collection[int], name: str) -> Model | None:
    """Return the release to imitate: a plugin's release if there is one, else an operator's. `name` is the name of a new folder."""
    candidates = [release for release in layout.releases if release.number in numbers and release.chart in PLUGINS]
    if not candidates:
        return None
    release = min(candidates, key=lambda release: "operator" in release.chart)
    stays = bool(PLUGINS[release.chart].switch)
    builder = layout.builder_of(release.number, layout.builders(numbers))
    return Model(release, stays, builder, layout.new_folder(release.number, numbers, name))


class Installation:
    """Adds the release of a driver to the steps of a move."""

    def __init__(self, layout: TreeLayout, prepare: Changes, switch: Changes, new: Replacement, model: Model) -> None:
        self._layout, self._prepare, self._switch = layout, prepare, switch
        self._new, self._model = new, model
        self._names = {layout.name(model.number): new.chart, model.release.name: new.chart}

    def add(self, leaving: Collection[int]) -> dict[str, Place]:
        """Add the release when the plugins are removed. Return its place, and the place of its builder, by kind."""
        layout, model, new = self._layout, self._model, self._new
        document = layout.documents[model.number]
        if is_kustomization(document):
            of_document = [release.chart for release in layout.releases if release.number == model.number]
            charts = PLUGINS.keys() & of_document
            now = self._switch.now(model.number)
            self._switch.edits[model.number] = driver_objects.helm_charts(now, new, charts, keeps=model.stays)
            return {}
        places = {document.object["kind"]: (place_of(document.placed)[0], new.chart)}
        if document.object["kind"] == "Application":
            wanted = driver_objects.application(document.object, new, model.release.chart, self._names)
        else:
            wanted = driver_objects.helm_release(document.object, new, self._source(leaving), self._names)
            wanted = driver_objects.with_dependencies(wanted, set(map(layout.name, leaving)), None)
        self._put(model.number, wanted)
        if model.folder is not None:
            if model.builder is not None:
                self._names[layout.name(model.builder)] = new.chart
                self._put(model.builder, self._builder(model.builder, model.folder, leaving))
                places["Kustomization"] = (place_of(layout.documents[model.builder].placed)[0], new.chart)
            self._copy_kept(model.folder)
            self._copy_kustomizations(model.folder)
        return places

    def _put(self, number: int, obj: Object) -> None:
        """Replace a document with a driver object, or add the object in a new file if the document stays."""
        file, name = self._layout.documents[number].file, self._layout.name(number)
        if self._model.folder is not None and self._model.folder.has(file):
            self._switch.add(self._model.folder.path(file), obj, number)
            return
        is_named = self._layout.is_alone(number) and name != "" and name in basename(file)
        if not (self._model.stays or is_named):
            self._switch.edits[number] = obj
            return
        new_name = basename(file).replace(name, self._new.chart) if is_named else f"{self._new.chart}.yaml"
        self._add_beside(self._switch, file, join(dirname(file), new_name), obj, number)
        if not self._model.stays:
            self._switch.edits[number] = None

    def _add_beside(self, changes: Changes, file: str, path: str, obj: Object, like: int | None) -> None:
        """Add a new file, and list it in each kustomization that lists `file`."""
        changes.add(path, obj, like)
        changes.list_beside(self._layout.kustomizations.listing(file), path)

    # The folder

    def _builder(self, number: int, folder: Folder, leaving: Collection[int]) -> Object:
        """Return the builder of the driver's folder, made from the builder of the model's folder."""
        layout, document = self._layout, self._layout.documents[number]
        old = dirname(layout.documents[self._model.number].file)
        above = f"{dirname(folder.old)}/".lstrip("/")
        paths = old.removeprefix(above), folder.path(old).removeprefix(above)
        wanted = driver_objects.builder(document.object, self._new, self._names, paths)
        gone = set(map(layout.name, (*leaving, *layout.builders(leaving))))
        namespace = inside(document.object, "metadata").get("namespace")
        needs = {"name": layout.name(number)} | ({"namespace": namespace} if namespace else {})
        return driver_objects.with_dependencies(wanted, gone, needs if self._model.stays else None)

    def _copy_kept(self, folder: Folder) -> None:
        """Copy objects that other objects name to the driver's folder."""
        for number in () if self._model.stays else self._layout.below(folder.old):
            document = self._layout.documents[number]
            if document.object.get("kind") in KEPT:
                self._switch.add(folder.path(document.file), document.object, number)

    def _copy_kustomizations(self, folder: Folder) -> None:
        """Copy the kustomizations around the release to the driver's folder, and list the new folder next to the old one."""
        release = self._layout.documents[self._model.number].file
        for number in self._layout.below(folder.old):
            document = self._layout.documents[number]
            if not is_kustomization(document) or not release.startswith(f"{dirname(document.file)}/"):
                continue
            path = folder.path(document.file)
            wanted = driver_objects.kustomization(document.object, self._names)
            for field in FOLDERS:
                if field in wanted:
                    entries = entries_of(document, number, field)
                    wanted[field] = list(self._moved_entries(entries, folder, dirname(path)))
            first = first_entry(document, number)._replace(folder=dirname(path))
            sources = map(first.like, self._prepare.added_in(dirname(path)))
            wanted["resources"] = list(dict.fromkeys((*strings(wanted, "resources"), *sources)))
            self._switch.add(path, wanted, number)
        for entry in self._layout.kustomizations.listing_below(folder.old):
            if not folder.has(entry.folder) and self._switch.adds_below(folder.path(entry.path)):
                self._switch.list_beside([entry], folder.path(entry.path))

    def _moved_entries(self, entries: Iterable[Entry], folder: Folder, new_folder: str) -> Iterator[str]:
        """Yield the entries of a kustomization for its copy in another folder."""
        for entry in entries:
            path = folder.path(entry.path)
            if not folder.has(entry.path):
                yield relpath(entry.path, new_folder) if entry.text.startswith(".") else entry.text
            elif self._prepare.adds_below(path) or self._switch.adds_below(path):
                yield entry._replace(folder=new_folder).like(path)

    # The source of the chart

    def _source(self, leaving: Collection[int]) -> Object:
        """Add the source of the driver's chart, unless the tree has it. Return the reference to the source for a HelmRelease."""
        layout, model, new, documents = self._layout, self._model, self._new, self._layout.documents
        for number in layout.sources("HelmRepository"):
            if inside(documents[number].object, "spec").get("url") == driver_objects.repository_of(new):
                return layout.reference_to(number, layout.name(number))
        has_oci = new.url.startswith("oci://") and any(layout.sources("OCIRepository"))
        kind = "OCIRepository" if has_oci else "HelmRepository"
        old = layout.source_of(model.release)
        is_like_old = old is not None and documents[old].object["kind"] == kind
        like = old if is_like_old else next(layout.sources(kind), None)
        if like is None:
            plain = driver_objects.plain_source(documents[model.number].object)
            self._add_source(driver_objects.source(plain, new), None)
            return {"kind": kind, "name": new.chart}
        wanted = driver_objects.source(documents[like].object, new)
        if is_like_old and self._replaces_source(like, leaving):
            self._put(like, wanted)
        elif not self._is_beside(like):
            file = documents[like].file
            self._add_beside(self._prepare, file, join(dirname(file), f"{new.chart}.yaml"), wanted, like)
            return layout.reference_to(like, new.chart)
        else:
            self._add_source(wanted, like)
        namespace = wanted["metadata"].get("namespace")
        return {"kind": kind, "name": new.chart} | ({"namespace": namespace} if namespace else {})

    def _replaces_source(self, source: int, leaving: Collection[int]) -> bool:
        """Return whether the driver's source replaces the plugin's source: it is in the release's file, or in its folder and used by no other release."""
        file, of_release = (self._layout.documents[number].file for number in (source, self._model.number))
        is_in_place = self._model.folder is None and dirname(file) == dirname(of_release)
        users = {release.number for release in self._layout.users(source)}
        return file == of_release or (is_in_place and users <= set(leaving))

    def _is_beside(self, source: int) -> bool:
        """Return whether a source is in the folder of its release, not in a common folder of sources."""
        folder = dirname(self._layout.documents[source].file)
        users = self._layout.users(source)
        return any(dirname(self._layout.documents[release.number].file) == folder for release in users)

    def _add_source(self, obj: Object, like: int | None) -> None:
        """Write a source in the release's folder in the step `prepare`."""
        of_release, kind = self._layout.documents[self._model.number].file, obj["kind"].lower()
        if self._model.folder is None:
            path = join(dirname(of_release), f"{self._new.chart}-{kind}.yaml")
            self._add_beside(self._prepare, of_release, path, obj, like)
            return
        is_alone = like is not None and self._layout.is_alone(like)
        name = basename(self._layout.documents[like].file) if like is not None and is_alone else f"{kind}.yaml"
        self._prepare.add(join(dirname(self._model.folder.path(of_release)), name), obj, like)
