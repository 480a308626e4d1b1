"""Finds the releases and objects of a tree that run device plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from analysis.migration.charts import PLUGIN_KINDS, PLUGINS
from dra.raw import Object, inside
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Release
    from analysis.migration.charts import PluginRunner
    from cluster.manifests import Document


class InstalledPlugin(NamedTuple):
    """A release or an object of a tree that runs a device plugin."""

    number: int  # of its document
    runner: PluginRunner
    chart: str = ""
    version: str = ""

    @property
    def stays(self) -> bool:
        """Whether it is an operator, of which only the switch changes."""
        return bool(self.runner.switch)


def installed_plugins(
    documents: Sequence[Document], included: Collection[int], all_releases: Sequence[Release]
) -> Iterator[InstalledPlugin]:
    """Yield the plugins that run; an operator whose plugin is switched off runs none."""
    for release in all_releases:
        runner = PLUGINS.get(release.chart)
        if runner is not None and _is_on(runner, release.values):
            yield InstalledPlugin(release.number, runner, release.chart, release.version)
    for number in included:
        obj = documents[number].object
        runner = PLUGIN_KINDS.get(group_kind(obj))
        if runner is not None and _is_on(runner, inside(obj, "spec")):
            yield InstalledPlugin(number, runner)


def _is_on(runner: PluginRunner, settings: Object) -> bool:
    if not runner.switch:
        return True
    *path, switch = runner.switch
    return inside(settings, *path).get(switch) is not False
