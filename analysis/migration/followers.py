"""Finds what depends on a device plugin: dependencies and health checks, selectors of its node labels, exporters, and counts of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from analysis.gitops import FLUX, dependencies, place_of
from analysis.migration.charts import DISCOVERY, DRIVERS, EXPORTERS
from analysis.migration.plugins import images_in
from dra.pointer import mappings_in, member
from dra.raw import Object, inside, text
from webhook.translate import group_kind, name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from analysis.gitops import Release, Tree
    from analysis.migration.plugins import InstalledPlugin
    from cluster.manifests import Document

# Maps of node labels; `nodeLabels` is of a ResourceFlavor of Kueue.
_SELECTORS: Final = ("nodeSelector", "matchLabels", "nodeLabels")


class Follower(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A place that has to change together with the plugin."""

    object: str
    file: str
    line: int
    place: str
    what: str
    drivers: tuple[str, ...] = ()  # whose plugins it depends on


def followers(
    documents: Sequence[Document],
    included: Sequence[int],
    tree: Tree,
    all_releases: Sequence[Release],
    plugins: Sequence[InstalledPlugin],
    *,
    labels: Collection[tuple[str, int]],
) -> Iterator[Follower]:
    """Yield the included documents that depend on these plugins. `labels` are the node labels that documents set."""
    drivers = {plugin.number: plugin.runner.driver for plugin in plugins}
    # An operator that stays keeps the labels of its discovery.
    discovered = {*drivers.values()} - {plugin.runner.driver for plugin in plugins if plugin.stays}
    prefixes = {prefix: driver for driver in sorted(discovered) for prefix in DISCOVERY.get(driver, ())}
    leaving = {plugin.number for plugin in plugins if not plugin.stays}
    # By kind, namespace and name: the driver whose plugin is removed.
    gone = {
        (text(documents[number].object.get("kind")), *place_of(documents[number].placed)): drivers[number]
        for number in leaving
    }
    # A Flux Kustomization is removed if it builds a plugin and nothing else.
    released = {release.number for release in all_releases} | drivers.keys()
    for number in included:
        built = tree.built_by(number) & released
        if group_kind(documents[number].object) == FLUX and built and built <= leaving:
            of_build = [drivers[other] for other in sorted(built) if other in drivers]
            if of_build:
                gone["Kustomization", *place_of(documents[number].placed)] = of_build[0]
            leaving |= tree.built_by(number)
    kept = {label for label, number in labels if number not in leaving}
    for number in included:
        document = documents[number]
        if number not in drivers and (text(document.object.get("kind")), *place_of(document.placed)) not in gone:
            yield from _in_object(document, gone, prefixes, kept)


class InstalledExporter(NamedTuple):
    """An exporter of device metrics."""

    number: int  # of its document
    driver: str
    follower: Follower


def exporters(
    documents: Sequence[Document],
    included: Sequence[int],
    all_releases: Sequence[Release],
    plugins: Sequence[InstalledPlugin],
) -> Iterator[InstalledExporter]:
    """Yield the exporters that a chart, an operator of a plugin or a pod template runs."""
    drivers = {name: exporter.driver for name, exporter in EXPORTERS.items()}
    exporting = {release.number: drivers[release.chart] for release in all_releases if release.chart in drivers}
    for plugin in plugins:
        for field in [entry.field for entry in EXPORTERS.values() if entry.driver == plugin.runner.driver]:
            if plugin.stays and inside(plugin.settings, field).get("enabled") is not False:
                exporting[plugin.number] = plugin.runner.driver
    for number in included:
        if number not in exporting and any(name in documents[number].text for name in drivers):
            names = (image.rpartition("/")[2] for image in images_in(documents[number].object))
            if driver := next(filter(None, map(drivers.get, names)), ""):
                exporting[number] = driver
    names_of_plugins = {plugin.number: plugin.name for plugin in plugins}
    for number, driver in sorted(exporting.items()):
        what = f"it exports metrics of devices: {DRIVERS[driver].exporter}"
        follower = follower_at(documents[number], "/spec", what, [driver])
        named = msgspec.structs.replace(follower, object=names_of_plugins.get(number, follower.object))
        yield InstalledExporter(number, driver, named)


def _in_object(
    document: Document, gone: Mapping[tuple[str, str, str], str], prefixes: Mapping[str, str], kept: Collection[str]
) -> Iterator[Follower]:
    obj = document.placed
    for needed in dependencies(obj):
        if driver := gone.get((needed.kind, needed.namespace, needed.name)):
            what = f"{needed.field} names {needed.namespace}/{needed.name}, which goes with the plugin"
            yield follower_at(document, needed.pointer, what, [driver])
    for pointer, label in _labels(obj) if prefixes else ():
        of_label = [driver for prefix, driver in prefixes.items() if label.startswith(prefix)]
        if of_label and label not in kept:
            what = f"it selects nodes by {label}, a label that goes with the plugin's discovery"
            yield follower_at(document, pointer, what, of_label)


def _labels(obj: Object) -> Iterator[tuple[str, str]]:
    """Yield the labels in selectors of nodes, with their pointers: keys of a nodeSelector, and `key` of an expression."""
    for pointer, part in mappings_in(obj.get("spec"), "/spec"):
        selects = pointer.rpartition("/")[2] in _SELECTORS
        for name, value in part.items():
            if selects and isinstance(value, str):
                yield member(pointer, name), name
            elif name == "key" and isinstance(value, str) and "operator" in part:
                yield member(pointer, name), value


def follower_at(document: Document, pointer: str, what: str, drivers: Iterable[str]) -> Follower:
    """Return the follower at a pointer of a document; it depends on the plugins of these drivers."""
    line, name = document.line_of(pointer), name_of(document.placed)
    return Follower(
        object=name, file=document.file, line=line, place=pointer, what=what, drivers=tuple(sorted(drivers))
    )
