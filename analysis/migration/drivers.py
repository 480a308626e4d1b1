"""Removes a tree's device plugins, installs the drivers, and edits dependent objects. Consumers are edited elsewhere."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from posixpath import basename
from typing import TYPE_CHECKING, get_args

import msgspec
from msgspec.structs import replace

from analysis.gitops import dependencies, is_kustomization, place_of
from analysis.migration import driver_objects
from analysis.migration.charts import EXPORTERS
from analysis.migration.driver_release import KEPT, NAMED, Installation, Place, model_of
from analysis.migration.layout import SOURCES, Changes, TreeLayout
from analysis.migration.pull_request import Step, StepName
from analysis.printable import code_span
from cluster.manifests import CannotEdit
from dra.raw import Object, inside, text
from webhook.reading import PLUGIN_KINDS, PLUGINS
from webhook.translate import group_kind, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from analysis.gitops import Tree
    from analysis.migration.plan import DeviceSharing, Family, InstalledRelease, MigrationPlan, Replacement
    from cluster.manifests import Document


def driver_steps(
    documents: Sequence[Document], tree: Tree, plan: MigrationPlan
) -> Callable[[StepName, Sequence[Document]], Step]:
    """Return a function that makes the step of a name from the documents before this step. It removes plugins or installs drivers of a plan.

    `documents` are the documents of the tree.
    """
    layout = TreeLayout(documents, tree)
    changes: dict[StepName, Changes] = {name: Changes(layout) for name in get_args(StepName)}
    move = _DriverMove(layout, changes)
    for family in plan.families:
        move.replace(family)
    move.follow(plan)
    return lambda name, current: changes[name].step(name, current)


class _DriverMove:
    """Collects the steps of a move."""

    def __init__(self, layout: TreeLayout, changes: dict[StepName, Changes]) -> None:
        self._layout = layout
        self._documents = layout.documents
        self._changes = changes
        self._switch = changes["switch"]
        # By kind and place of a removed release or builder: the place of the driver's one.
        self._places: dict[tuple[str, Place], Place | None] = {}

    def replace(self, family: Family) -> None:
        """Replace the plugins of a family with its driver."""
        new, sharing = family.replacement, family.sharing
        if new is None:
            why = "drawbridge knows no chart of this driver"
            self._switch.notes.append(f"{family.driver}: the device plugin stays, because {why}")
            return
        in_charts = [plugin for plugin in family.plugins if basename(plugin.file) == "Chart.yaml"]
        for plugin in in_charts:
            self._note_by_hand(f"{plugin.object} in {plugin.file}: {plugin.how}")
        if sharing is not None and sharing.decision == "shares":
            new = self._with_shares(new, sharing)
        plugins = {self._number_of(plugin): plugin for plugin in family.plugins if plugin not in in_charts}
        staying = {number for number, plugin in plugins.items() if self._switch_off(number, plugin)}
        leaving = plugins.keys() - staying
        places: dict[str, Place] = {}
        if new.installed is not None:
            places = self._places_of(new.installed)
        elif model := model_of(self._layout, leaving) or model_of(self._layout, staying):
            new = self._on_same_nodes(new, plugins)
            installation = Installation(self._layout, self._changes, new, model, leaving)
            places = installation.add(leaving if model.number in leaving else staying)
            self._switch.notes += [f"{new.chart}: {note}" for note in new.notes]
        else:
            self._switch.notes.append(
                f"by hand, before the merge: install chart {new.chart} {new.version} from {new.url} with the values {_in_line(new.values)}; no chart of its own runs the device plugin of {family.driver}"
            )
        self._remove(leaving, places)

    def _note_by_hand(self, note: str) -> None:
        self._switch.notes.append(f"by hand, in the same commit: {note}")

    def _with_shares(self, new: Replacement, sharing: DeviceSharing) -> Replacement:
        """Return a driver's chart with the values that make the driver share devices among claims."""
        self._switch.notes.append(f"{new.chart}: {sharing.choices['shares']}")
        values = sharing.values_for_shares
        charts = (new.chart, driver_objects.chart_name(new))
        in_tree = [release.values for release in self._layout.releases if release.chart in charts]
        if new.installed is not None and not any(values.keys() <= of_release.keys() for of_release in in_tree):
            self._note_by_hand(
                f"{new.installed.object} in {new.installed.file} needs chart {new.chart} {new.version} or newer, with the values {_in_line(values)}"
            )
        return replace(new, values={**new.values, **values})

    def _number_of(self, plugin: InstalledRelease) -> int:
        """Return the document of a plugin. A release in `helmCharts` has its chart's name, and its document is the kustomization."""
        number = self._layout.by_name.get((plugin.file, plugin.object))
        if number is not None:
            return number
        return next(other for other in self._layout.at(plugin.file) if is_kustomization(self._documents[other]))

    def _switch_off(self, number: int, plugin: InstalledRelease) -> bool:
        """Switch off the plugin that an operator runs. Return False if the plugin has no operator that stays."""
        runner = PLUGINS[plugin.chart] if plugin.chart else PLUGIN_KINDS.get(group_kind(self._documents[number].object))
        if runner is None or not runner.switch:
            return False
        if not self._set(number, plugin.chart, runner.switch, value=False):
            switch = ".".join(runner.switch)
            self._note_by_hand(f"`{switch}: false` in the values of {plugin.object}, which are not in {plugin.file}")
        return True

    def _set(self, number: int, chart: str, path: tuple[str, ...], *, value: bool) -> bool:
        """Change a setting of a chart or an object. Return False if the document has no such values or they cannot be edited."""
        try:
            wanted = driver_objects.with_setting(self._switch.now(number), chart, path, value=value)
        except CannotEdit:
            return False
        if wanted is not None:
            self._switch.edits[number] = wanted
        return wanted is not None

    def _on_same_nodes(self, new: Replacement, plugins: Collection[int]) -> Replacement:
        """Return a driver's chart with the tolerations of the plugin's pods."""
        settings = [release.values for release in self._layout.releases if release.number in plugins]
        settings += [inside(self._documents[number].object, "spec") for number in plugins]
        settings += [inside(of_plugin, "daemonsets") for of_plugin in settings]  # of the GPU operator
        for of_plugin in settings:
            if tolerations := of_plugin.get("tolerations"):
                pods = {**inside(new.values, "kubeletPlugin"), "tolerations": tolerations}
                new = replace(new, values={**new.values, "kubeletPlugin": pods})
            for name in ("nodeSelector", "affinity"):
                if of_plugin.get(name):
                    self._switch.notes.append(
                        f"the {name} of the device plugin is not that of {new.chart}, which runs on all nodes with its devices: see `kubeletPlugin.{name}`"
                    )
        return new

    def _places_of(self, installed: InstalledRelease) -> dict[str, Place]:
        """Return the places of a driver's release and of its builder."""
        number = self._layout.by_name.get((installed.file, installed.object))
        if number is None:  # of `helmCharts` or another chart: nothing waits for it
            return {}
        places = {text(self._documents[number].object.get("kind")): place_of(self._documents[number].placed)}
        builder = self._layout.builder_of(number, self._layout.builders([number]))
        if builder is not None:
            places["Kustomization"] = place_of(self._documents[builder].placed)
        return places

    # Removed objects

    def _remove(self, leaving: Collection[int], places: dict[str, Place]) -> None:
        """Remove plugins, the builders that build only plugins, and the sources of their charts."""
        edits, documents = self._switch.edits, self._documents
        going = set(leaving)
        for number in leaving:
            if folder := self._layout.folder(number, leaving):
                going.update(self._going_with(folder))
        going -= edits.keys()
        removed = {*going, *filter(self._switch.removes, edits)}
        builders = [
            number for number in self._layout.builders(leaving) if self._layout.tree.built_by(number) <= removed
        ]
        for number in (*going, *builders):
            edits.setdefault(number, None)
        for number in (*leaving, *builders):
            kind = text(documents[number].object.get("kind"))
            self._places[kind, place_of(documents[number].placed)] = places.get(kind)
        for document in [documents[number] for number in sorted(going - {*leaving, *builders})]:
            if not (is_kustomization(document) or document.object.get("kind") in (None, *SOURCES, *KEPT)):
                self._switch.notes.append(f"{name_of(document.placed)} goes with the plugin ({document.file})")
        self._tidy(leaving, places)

    def _going_with(self, folder: str) -> list[int]:
        """Return the documents to remove from a plugin's folder. Objects that workloads name stay if the driver has no folder for them."""
        below, documents = self._layout.below(folder), self._documents
        named = [number for number in below if documents[number].object.get("kind") in NAMED]
        if all(map(self._switch.copies, named)):
            return below
        return [
            number
            for number in below
            if not is_kustomization(documents[number]) and documents[number].object.get("kind") not in KEPT
        ]

    def _tidy(self, leaving: Collection[int], places: dict[str, Place]) -> None:
        """Remove unused sources and namespaces."""
        layout, edits = self._layout, self._changes["tidy"].edits
        of_leaving = [release for release in layout.releases if release.number in leaving]
        for source in {layout.source_of[number] for number in leaving if number in layout.source_of}:
            if source not in self._switch.edits and set(leaving).issuperset(layout.users(source)):
                edits[source] = None
        gone = {number for changes in self._changes.values() for number in changes.edits if changes.removes(number)}
        left = {
            place_of(document.placed)[0]
            for number, document in enumerate(self._documents)
            if number not in gone and not is_kustomization(document)
        }
        unused = {release.namespace for release in of_leaving} - {place for place, _ in places.values()} - left
        for number, document in enumerate(self._documents):
            if document.object.get("kind") == "Namespace" and layout.name(number) in unused and number not in gone:
                edits[number] = None

    # Dependent objects

    def follow(self, plan: MigrationPlan) -> None:
        """Edit the objects that depend on removed plugins."""
        if not self._places and not self._switch.edits:
            return
        charts = {release.number: release.chart for release in self._layout.releases if release.chart in EXPORTERS}
        moved: defaultdict[int, dict[str, Object | None]] = defaultdict(dict)  # fields of entries, by their pointers
        for follower in plan.follow:
            number = self._layout.by_name.get((follower.file, follower.object), -1)
            needs = dependencies(self._documents[number].placed) if number >= 0 else ()
            needed = next((need for need in needs if need.pointer == follower.place), None)
            if needed is not None and (old := (needed.kind, (needed.namespace, needed.name))) in self._places:
                namespace, name = self._places[old] or ("", "")
                fields = {"name": name} | ({"namespace": namespace} if namespace != needed.namespace else {})
                moved[number][follower.place] = fields if name else None
            elif number in charts and self._set(number, charts[number], EXPORTERS[charts[number]].switch, value=True):
                exporter = EXPORTERS[charts[number]]
                self._switch.notes.append(
                    f"chart {charts[number]} reads `{'.'.join(exporter.switch)}` since {exporter.since}"
                )
            else:
                self._switch.notes.append(
                    f"by hand: {follower.file}:{follower.line}: {follower.object}: {follower.what}"
                )
        for number, of_entries in moved.items():
            if not self._switch.removes(number):
                now = self._switch.now(number)
                self._switch.edits[number] = driver_objects.waiting(now, partial(_with_fields, of_entries))


def _with_fields(of_entries: Mapping[str, Object | None], pointer: str, entry: Object) -> Object | None:
    fields = of_entries.get(pointer, {})
    return None if fields is None else {**entry, **fields}


def _in_line(values: Object) -> str:
    return code_span(msgspec.json.encode(values).decode())
