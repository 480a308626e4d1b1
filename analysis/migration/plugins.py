"""Finds the releases and objects of a tree that run device plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from analysis.migration.charts import PLUGIN_KINDS, PLUGINS, SWITCHES
from dra.raw import inside
from webhook.translate import group_kind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from analysis.gitops import Release
    from cluster.manifests import Document


class InstalledPlugin(NamedTuple):
    """What runs the device plugin of a driver: a release, or an object of an operator."""

    number: int  # of its document
    driver: str
    chart: str = ""
    version: str = ""
    # The operator stays, and only its values or its object change.
    stays: bool = False


def installed_plugins(
    documents: Sequence[Document], included: Collection[int], all_releases: Sequence[Release]
) -> Iterator[InstalledPlugin]:
    """Yield the plugins that run; an operator whose plugin is switched off runs none."""
    for release in all_releases:
        if driver := PLUGINS.get(release.chart):
            switch = SWITCHES.get(release.chart, ())
            if not switch or inside(release.values, *switch[:-1]).get(switch[-1]) is not False:
                yield InstalledPlugin(release.number, driver, release.chart, release.version, bool(switch))
    for number in included:
        obj = documents[number].object
        if driver := PLUGIN_KINDS.get(group_kind(obj)):
            stays = obj.get("kind") != "GpuDevicePlugin"
            part = inside(obj, "spec", "devicePlugin")
            if not stays or False not in (part.get("enabled"), part.get("enableDevicePlugin")):
                yield InstalledPlugin(number, driver, stays=stays)
