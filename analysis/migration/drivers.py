"""What becomes of the device plugins of a tree, and of what depends on them: the steps of a move without its consumers.

The release of a driver has the form and the place of that of the plugin. If a folder has nothing but the plugin, the driver gets a folder
beside it, with the same files; else the documents of the plugin are edited. An operator stays, and the driver is installed beside it.
"""

from __future__ import annotations

from collections import defaultdict
from posixpath import basename, dirname, join, normpath, relpath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from analysis.gitops import FOLDERS, dependencies, is_kustomization, place_of
from analysis.migration import driver_objects
from analysis.migration.charts import EXPORTERS, PLUGIN_KINDS, PLUGINS
from analysis.migration.layout import SOURCES, Folder, Layout
from analysis.migration.pull_request import Edit, NewFile, Step, StepName
from cluster.manifests import CannotEdit
from dra.raw import Object, inside, items, strings, text
from webhook.translate import group_kind, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from analysis.gitops import Release, Tree
    from analysis.migration.plan import Family, MigrationPlan, Plugin, Replacement, Sharing
    from cluster.manifests import Document

_Place = tuple[str, str]  # namespace and name
# Kinds of objects that others name; they move to the folder of the driver.
_KEPT: Final = ("Namespace", "RuntimeClass", "PriorityClass", "NodeFeatureRule")


def driver_steps(
    documents: Sequence[Document], tree: Tree, plan: MigrationPlan
) -> Callable[[StepName, Sequence[Document]], Step]:
    """Return a function: the step of this name that removes plugins or installs drivers of a plan, for the documents as they are before it.

    `documents` are those of the tree.
    """
    move = _Move(Layout(documents, tree))
    for family in plan.families:
        move.replace(family)
    move.follow(plan)
    return move.step


class _Model(NamedTuple):
    """The release that shows how the tree installs charts: that of a plugin, or of an operator that stays."""

    release: Release
    stays: bool
    builder: int | None  # the document that builds its folder
    folder: Folder | None

    @property
    def number(self) -> int:
        return self.release.number


class _Changes:
    """What one step changes."""

    def __init__(self) -> None:
        self.edits: dict[int, Object | None] = {}
        self.new: dict[
            str, list[tuple[Object, int | None]]
        ] = {}  # objects by path, with the documents that they are like
        self.listed: dict[str, list[str]] = {}  # by absolute path, the paths that kustomizations list in its place
        self.notes: list[str] = []


class _Move:
    """Collects the steps of a move."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._documents = layout.documents
        self._changes: dict[StepName, _Changes] = {"prepare": _Changes(), "switch": _Changes(), "tidy": _Changes()}
        self._switch = self._changes["switch"]
        # By kind and place of a release or a builder that goes: the place of that of the driver.
        self._places: dict[tuple[str, _Place], _Place | None] = {}
        self._folders: list[Folder] = []

    def step(self, name: StepName, documents: Sequence[Document]) -> Step:
        """Return a step; `documents` are those that the step before it leaves."""
        changes = self._changes[name]
        self._list_files(changes, documents)
        edits = [
            Edit(number, wanted)
            for number, wanted in sorted(changes.edits.items())
            if wanted != documents[number].object
        ]
        new = [
            NewFile(path, tuple(obj for obj, _ in objects), objects[0][1] if len(objects) == 1 else None)
            for path, objects in changes.new.items()
        ]
        return Step(name, tuple(edits), tuple(new), tuple(dict.fromkeys(changes.notes)))

    # Plugins

    def replace(self, family: Family) -> None:
        """Replace the plugins of a family by its driver."""
        new = family.replacement
        if new is None or (family.sharing is not None and family.sharing.decision == "stay"):
            why = "drawbridge knows no chart of this driver" if new is None else "the plan decides so"
            self._switch.notes.append(f"{family.driver}: the device plugin stays, because {why}")
            return
        in_tree = [plugin for plugin in family.plugins if basename(plugin.file) != "Chart.yaml"]
        for plugin in family.plugins:
            if plugin not in in_tree:
                self._switch.notes.append(
                    f"by hand, in the same commit: {plugin.object} in {plugin.file}: {plugin.how}"
                )
        if family.sharing is not None and family.sharing.decision == "shares":
            new = self._with_shares(new, family.sharing)
        plugins = {self._number_of(plugin): plugin for plugin in in_tree}
        staying = {number for number, plugin in plugins.items() if self._switch_of(number, plugin)}
        for number in staying:
            plugin, switch = plugins[number], self._switch_of(number, plugins[number])
            if not self._set(number, plugin.chart, switch, value=False):
                self._switch.notes.append(
                    f"by hand, in the same commit: `{'.'.join(switch)}: false` in the values of {plugin.object}, which are not in {plugin.file}"
                )
        leaving = plugins.keys() - staying
        places: dict[str, _Place] = {}
        if new.installed:
            places = self._places_of(new.installed)
        elif model := self._model(leaving, new.chart) or self._model(staying, new.chart):
            places = self._install(self._on_same_nodes(new, plugins), model, leaving)
            self._switch.notes += [f"{new.chart}: {note}" for note in new.notes]
        else:
            self._switch.notes.append(
                f"by hand, before the merge: install chart {new.chart} {new.version} from {new.url} with the values `{_in_line(new.values)}`; no chart of its own runs the device plugin of {family.driver}"
            )
        self._remove(leaving, places)

    def _with_shares(self, new: Replacement, sharing: Sharing) -> Replacement:
        """Return the chart of a driver that shares devices between claims."""
        self._switch.notes.append(f"{new.chart}: {sharing.choices['shares']}")
        values = sharing.values_for_shares
        charts = (new.chart, driver_objects.chart_name(new))
        in_tree = [release.values for release in self._layout.releases if release.chart in charts]
        if new.installed and not any(values.keys() <= of_release.keys() for of_release in in_tree):
            self._switch.notes.append(
                f"by hand, in the same commit: {new.installed} needs chart {new.chart} {new.version} or newer, with the values `{_in_line(values)}`"
            )
        return replace(new, values={**new.values, **values})

    def _number_of(self, plugin: Plugin) -> int:
        """Return the document of a plugin; a release of `helmCharts` is named after its chart, and in a kustomization."""
        number = self._layout.by_name.get((plugin.file, plugin.object))
        if number is not None:
            return number
        of_file = self._layout.in_file[plugin.file]
        return next(number for number in of_file if is_kustomization(self._documents[number]))

    def _switch_of(self, number: int, plugin: Plugin) -> tuple[str, ...]:
        """Return the path of the switch of an operator; () for a plugin that goes."""
        kind = group_kind(self._documents[number].object)
        runner = PLUGINS[plugin.chart] if plugin.chart else PLUGIN_KINDS.get(kind)
        return runner.switch if runner is not None else ()

    def _set(self, number: int, chart: str, path: tuple[str, ...], *, value: bool) -> bool:
        """Change a setting of a chart or an object. Return whether the document has its values, and they can be edited."""
        try:
            wanted = driver_objects.with_setting(self._now(number), chart, path, value=value)
        except CannotEdit:
            return False
        if wanted is not None:
            self._switch.edits[number] = wanted
        return wanted is not None

    def _now(self, number: int) -> Object:
        """Return a document as the switch has it so far."""
        return self._switch.edits.get(number) or self._documents[number].object

    def _model(self, numbers: Collection[int], name: str) -> _Model | None:
        """Return the release to follow among these: that of a plugin rather than that of an operator."""
        candidates = [
            release for release in self._layout.releases if release.number in numbers and release.chart in PLUGINS
        ]
        if not candidates:
            return None
        release = min(candidates, key=lambda release: "operator" in release.chart)
        stays = bool(PLUGINS[release.chart].switch)
        if release.kind == "Kustomization":
            return _Model(release, stays, None, None)
        builder = self._layout.builder_of(release.number, self._layout.builders(numbers))
        return _Model(release, stays, builder, self._layout.new_folder(release.number, numbers, name))

    def _on_same_nodes(self, new: Replacement, numbers: Collection[int]) -> Replacement:
        """Return the chart of a driver whose pods tolerate the taints that those of the plugin tolerate."""
        values = [release.values for release in self._layout.releases if release.number in numbers]
        settings = [*values, *[inside(self._documents[number].object, "spec") for number in numbers]]
        settings += [inside(of_plugin, "daemonsets") for of_plugin in settings]  # of the GPU operator
        for of_plugin in settings:
            if tolerations := of_plugin.get("tolerations"):
                plugin = {**inside(new.values, "kubeletPlugin"), "tolerations": tolerations}
                new = replace(new, values={**new.values, "kubeletPlugin": plugin})
            for name in ("nodeSelector", "affinity"):
                if of_plugin.get(name):
                    self._switch.notes.append(
                        f"the {name} of the device plugin is not that of {new.chart}, which runs on all nodes with its devices: see `kubeletPlugin.{name}`"
                    )
        return new

    def _places_of(self, installed: str) -> dict[str, _Place]:
        """Return the places of a driver's release, and of what builds it."""
        file, _, line = installed.rpartition(":")
        number = next(other for other in self._layout.in_file[file] if self._documents[other].line == int(line))
        places = {text(self._documents[number].object.get("kind")): place_of(self._documents[number].placed)}
        builder = self._layout.builder_of(number, self._layout.builders([number]))
        if builder is not None:
            places["Kustomization"] = place_of(self._documents[builder].placed)
        return places

    # The driver

    def _install(self, new: Replacement, model: _Model, leaving: Collection[int]) -> dict[str, _Place]:
        """Add the release of a driver. Return its place, and that of what builds it."""
        document = self._documents[model.number]
        if is_kustomization(document):
            charts = [
                release.chart
                for release in self._layout.releases
                if release.number == model.number and release.chart in PLUGINS
            ]
            wanted = driver_objects.helm_charts(self._now(model.number), new, charts, keeps=model.stays)
            self._switch.edits[model.number] = wanted
            return {}
        names = {self._layout.name(model.number): new.chart, model.release.name: new.chart}
        places = {document.object["kind"]: (place_of(document.placed)[0], new.chart)}
        if document.object["kind"] == "Application":
            wanted = driver_objects.application(document.object, new, model.release.chart, names)
        else:
            reference = self._add_source(new, model, leaving)
            wanted = driver_objects.helm_release(document.object, new, reference, names)
            gone = {self._layout.name(number) for number in leaving}
            wanted = driver_objects.with_dependencies(wanted, gone, None)
        self._put(model.number, wanted, model)
        if model.builder is not None and model.folder is not None:
            builder = self._documents[model.builder]
            names[self._layout.name(model.builder)] = new.chart
            self._put(model.builder, self._builder(new, model, names, leaving), model)
            places["Kustomization"] = (place_of(builder.placed)[0], new.chart)
        if model.folder is not None:
            self._copy_folder(model, names)
            self._folders.append(model.folder)
        return places

    def _put(self, number: int, obj: Object, model: _Model) -> None:
        """Write an object of the driver in the place of a document, or beside it if the document stays."""
        document = self._documents[number]
        file, name = document.file, obj["metadata"]["name"]
        if model.folder is not None and model.folder.has(file):
            self._switch.new.setdefault(model.folder.path(file), []).append((obj, number))
            return
        old, old_name = basename(file), self._layout.name(number)
        has_name = len(self._layout.in_file[file]) == 1 and old_name != "" and old_name in old
        if not model.stays and not has_name:
            self._switch.edits[number] = obj
            return
        path = join(dirname(file), old.replace(old_name, name) if has_name else f"{name}.yaml")
        self._switch.new.setdefault(path, []).append((obj, number))
        self._switch.listed[self._layout.tree.absolute(file)] = [path]
        if not model.stays:
            self._switch.edits[number] = None

    def _builder(self, new: Replacement, model: _Model, names: dict[str, str], leaving: Collection[int]) -> Object:
        """Return what builds the folder of the driver, for what builds that of the model."""
        assert model.builder is not None
        assert model.folder is not None
        document = self._documents[model.builder]
        old = dirname(self._documents[model.number].file)
        above = f"{dirname(model.folder.old)}/".lstrip("/")
        paths = old.removeprefix(above), model.folder.path(old).removeprefix(above)
        wanted = driver_objects.builder(document.object, new, names, paths)
        gone = {self._layout.name(number) for number in (*leaving, *self._layout.builders(leaving))}
        namespace = inside(document.object, "metadata").get("namespace")
        needs = {"name": self._layout.name(model.builder)} | ({"namespace": namespace} if namespace else {})
        return driver_objects.with_dependencies(wanted, gone, needs if model.stays else None)

    def _copy_folder(self, model: _Model, names: dict[str, str]) -> None:
        """Copy what others name, and the kustomizations around a release, to the folder of the driver."""
        folder = model.folder
        assert folder is not None
        around: list[int] = []
        for number in self._layout.below(folder.old):
            document = self._documents[number]
            if document.object.get("kind") in _KEPT and not model.stays:
                self._switch.new.setdefault(folder.path(document.file), []).append((document.object, number))
            elif is_kustomization(document):
                is_around = f"{dirname(self._documents[model.number].file)}/".startswith(f"{dirname(document.file)}/")
                around += [number] if is_around else []
        new = {path for changes in self._changes.values() for path in changes.new}
        for number in around:
            document = self._documents[number]
            path = folder.path(document.file)
            wanted = driver_objects.kustomization(document.object, names)
            for field in FOLDERS:
                if field in wanted:
                    wanted[field] = list(self._moved_entries(document, strings(wanted, field), folder, new))
            resources = strings(wanted, "resources")
            listed = {normpath(join(dirname(path), entry)) for entry in resources}
            sources = [file for file in self._changes["prepare"].new if dirname(file) == dirname(path)]
            wanted["resources"] = [
                *resources,
                *[_entry(file, document) for file in sources if file not in listed],
            ]
            self._switch.new.setdefault(path, []).append((wanted, number))

    def _moved_entries(
        self, document: Document, old: Sequence[str], folder: Folder, new: Collection[str]
    ) -> Iterator[str]:
        """Yield the entries of a kustomization for its copy in another folder."""
        place = dirname(folder.path(document.file))
        for entry in old:
            path = normpath(join(dirname(document.file), entry))
            if not folder.has(path):
                yield relpath(path, place) if entry.startswith(".") else entry
            elif any(f"{file}/".startswith(f"{folder.path(path)}/") for file in new):
                yield ("./" if entry.startswith("./") else "") + relpath(folder.path(path), place)

    # The source of the chart

    def _add_source(self, new: Replacement, model: _Model, leaving: Collection[int]) -> Object:
        """Add the source of the driver's chart, unless the tree has it. Return how a HelmRelease names it."""
        old = self._layout.source_of(model.release)
        has_oci = new.url.startswith("oci://") and any(self._layout.sources("OCIRepository"))
        kind = "OCIRepository" if has_oci else "HelmRepository"
        for number in self._layout.sources("HelmRepository"):
            if inside(self._documents[number].object, "spec").get("url") == driver_objects.repository_of(new):
                return self._reference(number, "HelmRepository", self._layout.name(number))
        is_like_old = old is not None and self._documents[old].object["kind"] == kind
        like = old if is_like_old else next(iter(self._layout.sources(kind)), None)
        if like is None:
            plain = driver_objects.plain_source(self._documents[model.number].object)
            self._put_source(driver_objects.source(plain, new), None, model)
            return {"kind": kind, "name": new.chart}
        wanted = driver_objects.source(self._documents[like].object, new)
        file, of_release = (dirname(self._documents[number].file) for number in (like, model.number))
        is_in_place = model.folder is None and file == of_release
        is_of_plugin = {release.number for release in self._layout.users(like)} <= set(leaving)
        if like == old and (
            (is_in_place and is_of_plugin) or self._documents[like].file == self._documents[model.number].file
        ):
            self._put(like, wanted, model)
        elif not self._put_source(wanted, like, model):
            return self._reference(like, kind, new.chart)
        namespace = wanted["metadata"].get("namespace")
        return {"kind": kind, "name": new.chart} | ({"namespace": namespace} if namespace else {})

    def _reference(self, source: int, kind: str, name: str) -> Object:
        """Return how releases name a source, with another name."""
        references = [self._layout.reference(release) for release in self._layout.users(source)]
        namespace = next((reference["namespace"] for reference in references if "namespace" in reference), None)
        return {"kind": kind, "name": name} | ({"namespace": namespace} if namespace else {})

    def _put_source(self, obj: Object, like: int | None, model: _Model) -> bool:
        """Write a source in the step `prepare`. Return whether it is beside the release, and not where the tree has all sources."""
        prepare = self._changes["prepare"]
        of_release, name = self._documents[model.number].file, f"{obj['kind'].lower()}.yaml"
        if like is not None:
            file = self._documents[like].file
            is_beside = any(
                dirname(self._documents[release.number].file) == dirname(file) for release in self._layout.users(like)
            )
            if not is_beside:
                path = join(dirname(file), f"{obj['metadata']['name']}.yaml")
                prepare.listed[self._layout.tree.absolute(file)] = [path]
                prepare.new[path] = [(obj, like)]
                return False
            name = basename(file) if self._layout.is_alone(like) else name
        if model.folder is not None:
            path = join(dirname(model.folder.path(of_release)), name)
        else:
            path = join(dirname(of_release), f"{obj['metadata']['name']}-{obj['kind'].lower()}.yaml")
            prepare.listed[self._layout.tree.absolute(of_release)] = [path]
        prepare.new[path] = [(obj, like)]
        return True

    # What goes

    def _remove(self, leaving: Collection[int], places: dict[str, _Place]) -> None:
        """Remove plugins, what builds only them, and the sources of their charts."""
        going = set(leaving)
        for number in leaving:
            if folder := self._layout.folder(number, leaving):
                going.update(self._layout.below(folder))
        going -= self._switch.edits.keys()
        removed = {*going, *[number for number, wanted in self._switch.edits.items() if wanted is None]}
        builders = [
            number for number in self._layout.builders(leaving) if self._layout.tree.built_by(number) <= removed
        ]
        self._switch.edits = dict.fromkeys((*going, *builders)) | self._switch.edits
        for number in (*leaving, *builders):
            document = self._documents[number]
            kind = text(document.object.get("kind"))
            self._places[kind, place_of(document.placed)] = places.get(kind)
        for number in sorted(going - {*leaving, *builders}):
            document = self._documents[number]
            if not (is_kustomization(document) or document.object.get("kind") in (*SOURCES, *_KEPT)):
                self._switch.notes.append(f"{name_of(document.placed)} goes with the plugin ({document.file})")
        self._tidy(leaving, places)

    def _tidy(self, leaving: Collection[int], places: dict[str, _Place]) -> None:
        """Remove the sources and namespaces that nothing uses any more."""
        edits = self._changes["tidy"].edits
        of_leaving = [release for release in self._layout.releases if release.number in leaving]
        for source in {self._layout.source_of(release) for release in of_leaving if release.kind == "HelmRelease"}:
            if (
                source is not None
                and source not in self._switch.edits
                and {release.number for release in self._layout.users(source)} <= set(leaving)
            ):
                edits[source] = None
        gone = {
            number for changes in self._changes.values() for number, wanted in changes.edits.items() if wanted is None
        }
        for namespace in {release.namespace for release in of_leaving} - {place for place, _ in places.values()}:
            objects = {
                number
                for number, document in enumerate(self._documents)
                if place_of(document.placed)[0] == namespace and not is_kustomization(document)
            }
            for number, document in enumerate(self._documents):
                is_namespace = document.object.get("kind") == "Namespace" and self._layout.name(number) == namespace
                if is_namespace and number not in gone and objects <= gone:
                    edits[number] = None

    # What follows

    def follow(self, plan: MigrationPlan) -> None:
        """Change what depends on the plugins that go."""
        if not self._places and not self._switch.edits:
            return
        charts = {release.number: release.chart for release in self._layout.releases if release.chart in EXPORTERS}
        depending: defaultdict[int, dict[str, _Place | None]] = defaultdict(dict)
        for follower in plan.follow:
            number = self._layout.by_name.get((follower.file, follower.object), -1)
            needs = dependencies(self._documents[number].placed) if number >= 0 else ()
            needed = next((need for need in needs if need.pointer == follower.place), None)
            place = (needed.kind, (needed.namespace, needed.name)) if needed is not None else ("", ("", ""))
            if place in self._places:
                depending[number][follower.place] = self._places[place]
            elif number in charts and self._set(number, charts[number], EXPORTERS[charts[number]].switch, value=True):
                exporter = EXPORTERS[charts[number]]
                self._switch.notes.append(
                    f"chart {charts[number]} reads `{'.'.join(exporter.switch)}` since {exporter.since}"
                )
            else:
                self._switch.notes.append(
                    f"by hand: {follower.file}:{follower.line}: {follower.object}: {follower.what}"
                )
        for number, new in depending.items():
            if self._switch.edits.get(number, {}) is not None:
                self._switch.edits[number] = _with_places(self._now(number), self._documents[number], new)

    # Kustomizations

    def _list_files(self, changes: _Changes, documents: Sequence[Document]) -> None:
        """Change what the kustomizations list, so that it is what the step leaves and adds."""
        if not (changes.edits or changes.listed):
            return
        for number, document in enumerate(documents):
            if is_kustomization(document) and changes.edits.get(number, {}) is not None:
                wanted = dict(changes.edits.get(number) or document.object)
                for field in FOLDERS:
                    if old := strings(document.object, field):
                        new = list(dict.fromkeys(self._entries(document, old, changes)))
                        wanted[field] = sorted(new) if old == sorted(old) else new
                if wanted != document.object:
                    changes.edits[number] = wanted

    def _entries(self, document: Document, old: Sequence[str], changes: _Changes) -> Iterator[str]:
        folder = dirname(document.file)
        for entry in old:
            path = normpath(join(folder, entry))
            numbers = self._layout.in_file.get(path) or self._layout.below(path)
            is_gone = bool(numbers) and all(changes.edits.get(number, {}) is None for number in numbers)
            moved = (
                [self._moved(path, outer) for outer in self._folders if outer.has(path) and not outer.has(folder)]
                if changes is self._switch
                else []
            )
            listed = changes.listed.get(self._layout.tree.absolute(path), [])
            if not is_gone:
                yield entry
            for new in (*filter(None, moved), *listed):
                yield ("./" if entry.startswith("./") else "") + relpath(new, folder or ".")

    def _moved(self, path: str, folder: Folder) -> str:
        new = folder.path(path)
        return new if any(f"{file}/".startswith(f"{new}/") for file in self._switch.new) else ""


def _entry(file: str, kustomization: Document) -> str:
    """Return the entry for a file beside a kustomization, as the others are written."""
    has_dot = any(entry.startswith("./") for entry in strings(kustomization.object, "resources"))
    return ("./" if has_dot else "") + basename(file)


def _with_places(obj: Object, document: Document, new: Mapping[str, _Place | None]) -> Object:
    """Return an object of Flux that waits for other objects, by the pointers of its dependencies."""
    lists: dict[str, list[Any]] = {}
    needed = {need.pointer: need for need in dependencies(document.placed)}
    for field in ("dependsOn", "healthChecks"):
        kept = lists[field] = []
        for index, entry in enumerate(items(inside(obj, "spec"), field)):
            pointer = f"/spec/{field}/{index}"
            if pointer in new:
                if (place := new[pointer]) is None:
                    continue
                namespace = {"namespace": place[0]} if place[0] != needed[pointer].namespace else {}
                entry = {**entry, "name": place[1], **namespace}  # noqa: PLW2901
            if entry not in kept:
                kept.append(entry)
    return driver_objects.with_lists(obj, lists)


def _in_line(values: Object) -> str:
    return msgspec.json.encode(values).decode()
