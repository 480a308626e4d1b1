"""Finds what depends on a device plugin: dependencies and health checks, selectors of its node labels, exporters, and counts of its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from analysis.migration.charts import DISCOVERY, DRIVERS, EXPORTERS
from dra.pointer import member
from dra.raw import Object, inside, items, text
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Release, Tree
    from analysis.migration.plugins import InstalledPlugin
    from cluster.manifests import Document

_RELEASE: Final = ("helm.toolkit.fluxcd.io", "HelmRelease")
_FLUX: Final = ("kustomize.toolkit.fluxcd.io", "Kustomization")
_MAX: Final = 100_000  # the most values of an object that are read


class Follower(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A place that has to change together with the plugin."""

    object: str
    file: str
    line: int
    place: str
    what: str


def followers(
    documents: Sequence[Document],
    included: Sequence[int],
    tree: Tree,
    all_releases: Sequence[Release],
    plugins: Sequence[InstalledPlugin],
) -> Iterator[Follower]:
    """Yield the followers of these plugins among the included documents."""
    drivers = {plugin.driver for plugin in plugins}
    # An operator that stays keeps the labels of its discovery.
    discovered = drivers - {plugin.driver for plugin in plugins if plugin.stays}
    of_plugins = {plugin.number for plugin in plugins}
    leaving = {plugin.number for plugin in plugins if not plugin.stays}
    gone = {(text(documents[number].object.get("kind")), *_place(documents[number].placed)) for number in leaving}
    # A Kustomization of Flux goes if all that it builds with a release or an object of a plugin is of plugins.
    released = {release.number for release in all_releases} | of_plugins
    for number in included:
        built = tree.built_by(number) & released
        if group_kind(documents[number].object) == _FLUX and built and built <= leaving:
            gone.add(("Kustomization", *_place(documents[number].placed)))
    for number in included:
        document = documents[number]
        if number not in of_plugins and (document.object.get("kind"), *_place(document.placed)) not in gone:
            yield from _in_object(document, gone, discovered)
    for release in all_releases:
        driver = EXPORTERS.get(release.chart, "")
        if driver in drivers and (needs := DRIVERS[driver].exporter):
            yield _follower(documents[release.number], "/spec", f"it exports metrics of devices: {needs}")


def _in_object(
    document: Document, gone: Collection[tuple[str, str, str]], drivers: Collection[str]
) -> Iterator[Follower]:
    obj = document.placed
    kind, spec = group_kind(obj), inside(obj, "spec")
    namespace, _ = _place(obj)
    if kind in (_RELEASE, _FLUX):
        for field in ("dependsOn", "healthChecks"):
            for index, needed in enumerate(items(spec, field)):
                place = text(needed.get("namespace")) or namespace, text(needed.get("name"))
                if (needed.get("kind") or kind[1], *place) in gone:
                    pointer = f"/spec/{field}/{index}"
                    yield _follower(document, pointer, f"{field} names {'/'.join(place)}, which goes with the plugin")
    prefixes = {prefix: driver for driver in drivers for prefix in DISCOVERY.get(driver, ())}
    for pointer, label in _labels(obj) if prefixes else ():
        driver = next((driver for prefix, driver in prefixes.items() if label.startswith(prefix)), "")
        if driver:
            yield _follower(
                document, pointer, f"it selects nodes by {label}, a label that goes with the plugin's discovery"
            )


def _labels(obj: Object) -> Iterator[tuple[str, str]]:
    """Yield the labels in selectors of nodes, with their pointers: keys of a nodeSelector, and `key` of an expression."""
    waiting: list[tuple[str, object, bool]] = [("/spec", obj.get("spec"), False)]
    for _ in range(_MAX):
        if not waiting:
            return
        pointer, value, selects = waiting.pop()
        if isinstance(value, dict):
            for name, below in value.items():
                if selects and isinstance(below, str):
                    yield member(pointer, name), name
                elif name == "key" and isinstance(below, str) and "operator" in value:
                    yield member(pointer, name), below
                waiting.append((member(pointer, name), below, name in ("nodeSelector", "matchLabels")))
        elif isinstance(value, list):
            waiting += [(f"{pointer}/{index}", below, False) for index, below in enumerate(value)]


def _follower(document: Document, pointer: str, what: str) -> Follower:
    obj = document.placed
    name = "/".join((str(obj.get("kind")), *_place(obj)))
    return Follower(object=name, file=document.file, line=document.line_of(pointer), place=pointer, what=what)


def _place(obj: Object) -> tuple[str, str]:
    metadata = inside(obj, "metadata")
    return text(metadata.get("namespace")) or "default", text(metadata.get("name"))
