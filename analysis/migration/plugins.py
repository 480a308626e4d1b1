"""Finds the releases and objects in a tree that run device plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from analysis.migration.values_files import name_of_release
from dra.pointer import mappings_in
from dra.raw import Object, inside, mapping, text
from webhook.reading import PLUGIN_IMAGES, PLUGIN_KINDS, PLUGINS
from webhook.translate import group_kind, name_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Release
    from cluster.manifests import Document
    from webhook.reading import PluginRunner


_OF_INTEL: Final = "intel-device-plugins-"
_OPERATOR: Final = "intel-device-plugins-operator"


class InstalledPlugin(NamedTuple):
    """A release or an object in a tree that runs a device plugin."""

    number: int  # of its document
    name: str
    runner: PluginRunner
    chart: str = ""
    version: str = ""
    settings: Object = {}  # the values of the chart, or the spec of the object

    @property
    def stays(self) -> bool:
        """Whether the object is an operator, which stays with its device plugin switched off."""
        return bool(self.runner.switch)


def installed_plugins(
    documents: Sequence[Document], included: Collection[int], all_releases: Sequence[Release]
) -> Iterator[InstalledPlugin]:
    """Yield the running plugins. An operator with a disabled plugin is not yielded."""
    charts = {release.chart for release in all_releases}
    # Intel's operator also runs plugins of devices without a driver.
    others = any(chart.startswith(_OF_INTEL) and chart not in PLUGINS for chart in charts)
    for release in all_releases:
        runner = PLUGINS.get(release.chart)
        if runner is not None and _is_on(runner, release.values) and not (others and release.chart == _OPERATOR):
            name = object_of(release, documents[release.number])
            yield InstalledPlugin(release.number, name, runner, release.chart, release.version, release.values)
    charted = {release.number for release in all_releases if release.chart in PLUGINS}
    for number in included:
        obj = documents[number].object
        runner = PLUGIN_KINDS.get(group_kind(obj))
        if runner is not None and _is_on(runner, inside(obj, "spec")):
            yield InstalledPlugin(number, name_of(documents[number].placed), runner, settings=inside(obj, "spec"))
        elif number not in charted and "-plugin" in documents[number].text:
            runners = [PLUGIN_IMAGES.get("/".join(image.split("/")[-2:])) for image in images_in(obj)]
            if runner := next(filter(None, runners), None):
                yield InstalledPlugin(number, name_of(documents[number].placed), runner)


def object_of(release: Release, document: Document) -> str:
    """Return the plan's name of a release: its object's name, or the chart's name if a kustomization or chart contains several charts."""
    return name_of_release(release) if release.kind in ("Kustomization", "Chart") else name_of(document.placed)


def images_in(obj: Object) -> Iterator[str]:
    """Yield the images in pod templates and chart values, without tag and digest."""
    for _, part in mappings_in(obj.get("spec"), "/spec"):
        image = part.get("image")
        if name := text(image) or text(mapping(image).get("repository")):
            yield name.partition("@")[0].partition(":")[0]


def _is_on(runner: PluginRunner, settings: Object) -> bool:
    if not runner.switch:
        return True
    *path, switch = runner.switch
    return inside(settings, *path).get(switch) is not False
