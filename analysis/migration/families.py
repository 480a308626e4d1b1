"""Groups the requests of a tree by driver: the plugins that serve them now, the chart that replaces the plugins, and whether they move now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.migration.chart_versions import minor_version
from analysis.migration.charts import DRIVERS
from analysis.migration.first_step import first_step_of
from analysis.migration.plan import Family, InstalledRelease, Replacement
from analysis.migration.platform import FIRST_MINOR
from analysis.migration.plugins import object_of
from analysis.migration.sharing import sharing_of
from dra.raw import inside, text
from dra.texts import count_of, list_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from analysis.gitops import Release
    from analysis.migration.charts import DriverChart
    from analysis.migration.followers import Follower
    from analysis.migration.plan import DeviceSharing, FirstStep
    from analysis.migration.platform import Platform
    from analysis.migration.plugins import InstalledPlugin
    from analysis.migration.sharing import ReadTree
    from cluster.manifests import Document
    from dra.raw import Object

_NAMED: Final = 4
_DRIVER_FOLDER: Final = (
    "/run/nvidia/driver"  # the default of NVIDIA's GPU operator (values.yaml: hostPaths.driverInstallDir)
)
# By driver and name of the hardware: the version from which the driver serves it.
_NVIDIA: Final = "gpu.nvidia.com"
_MIG: Final = "nvidia.com/mig.config"  # the label of nodes with MIG
_UNSERVED: Final = {(_NVIDIA, name): "never" for name in ("jetson", "tegra", "l4t-")} | {(_NVIDIA, "gb10"): "0.4"}


def families(read: ReadTree, drivers_of: Callable[[Iterable[str]], frozenset[str]]) -> Iterator[Family]:
    """Yield the families of a tree; `drivers_of` returns the drivers of DeviceClasses."""
    keys: dict[str, dict[str, set[str]]] = {}  # classes by driver and key
    for request in read.requests:
        for device_class in request.classes:
            for driver in drivers_of([device_class]):
                keys.setdefault(driver, {}).setdefault(request.consumer.key, set()).add(device_class)
    for plugin in read.plugins:  # a plugin without consumers is replaced, too
        keys.setdefault(plugin.runner.driver, {})
    for driver, of_driver in sorted(keys.items()):
        sharing = sharing_of(driver, of_driver, read)
        installed = release_of(driver, read.releases)
        first_step = first_step_of(driver, sharing, read, installed)
        reasons = tuple(_reasons_to_stay(driver, sharing, first_step, read))
        yield Family(
            driver=driver,
            decision="stay" if reasons else "move",
            reasons=reasons,
            keys=tuple(sorted(of_driver)),
            device_classes=tuple(sorted(set().union(*of_driver.values()))),
            plugins=tuple(
                _plugin(plugin, read.documents[plugin.number])
                for plugin in read.plugins
                if plugin.runner.driver == driver
            ),
            replacement=_replacement(driver, read),
            sharing=sharing,
            first_step=first_step,
        )


def _reasons_to_stay(
    driver: str, sharing: DeviceSharing | None, first_step: FirstStep | None, read: ReadTree
) -> Iterator[str]:
    """Yield why a driver's plugin should stay for now: consumers that would lose their devices, and unmet requirements of the driver."""
    requests = [request for request in read.requests if driver in request.consumer.drivers]
    consumers = [
        request.consumer
        for request in requests
        if not request.is_free and not (first_step and first_step.serves(request.consumer))
    ]
    minor, present = read.platform.minor, read.fleet.devices_of(driver)
    if 0 < minor < FIRST_MINOR:
        yield f"Kubernetes {read.platform.version} ({read.platform.where}) has no claims: update it to 1.34 or newer"
    if driver not in DRIVERS:
        yield "drawbridge knows no chart of this driver"
    release = release_of(driver, read.releases)
    for name, place in {**read.platform.hardware, **read.fleet.hardware}.items():
        since = _UNSERVED.get((driver, name.lower()))
        if since == "never":
            yield f"{place} names {name}, whose GPU the driver does not serve"
        elif since and release and minor_version(release.version) < minor_version(since):
            yield f"{place} names {name}, which the driver serves from {since} on, and the tree installs {release.version}"
    for plugin in read.plugins:
        if driver == _NVIDIA == plugin.runner.driver and _counts_parts(plugin.settings, read.platform):
            yield f"{plugin.name} has the MIG strategy `single`: {driver} gives a claim a whole GPU where the plugin gave a MIG device"
    for verdict, what in (("by hand", "a person has to edit"), ("cannot", "no claim can replace")):
        objects = list(dict.fromkeys(consumer.object for consumer in consumers if consumer.verdict == verdict))
        if objects:
            yield f"{count_of(len(objects), 'consumer')} would lose {'its' if len(objects) == 1 else 'their'} devices, because {what} the request: {list_first(objects, _NAMED)}"
    if not requests:
        yield "no object of the tree uses its devices, so the tree does not show what would lose them"
    if sharing is None:
        return
    if sharing.decision == "shares" and (why := read.platform.why_no_sharing()):
        yield why
    if sharing.decision == "undecided":
        yield f"`sharing.decision` is open: {sharing.because}"
    if sharing.decision == "exclusive" and sharing.devices > max(1, present):
        nodes = f"the nodes have {present}" if present else "no file shows how many the nodes have"
        yield f"{sharing.devices} consumers share devices now, and would need {count_of(sharing.devices, 'device')}: {nodes}"


def _counts_parts(settings: Object, platform: Platform) -> bool:
    """Return whether the key of whole GPUs counts MIG devices: by the plugin's own setting, or by the operator's, which is its default, on nodes with MIG."""
    has_mig = bool(inside(settings, "migManager", "config")) or any(label == _MIG for label, _ in platform.labels)
    return settings.get("migStrategy") == "single" or (has_mig and inside(settings, "mig").get("strategy") == "single")


def stops(of_drivers: Iterable[Family]) -> Iterator[str]:
    """Yield how to stop the consumers of removed plugins, so that plugin and driver do not allocate the same device."""
    for family in of_drivers:
        keys = list_first(family.keys, _NAMED)
        if family.plugins and keys and family.decision == "move":
            yield f"before the switch: suspend Flux or Argo CD for the consumers of {keys}, scale them to 0, and wait until no pod holds a device"
            yield (
                f"after the switch, before the consumers start: wait until `kubectl get node -o yaml` shows 0 allocatable {keys}; "
                "the kubelet keeps the key with 0 until it restarts, so do not wait for its absence"
            )


def lost(of_drivers: Iterable[Family], follow: Sequence[Follower]) -> Iterator[str]:
    """Yield functions of the removed plugins that their drivers lack."""
    for family in of_drivers:
        if family.decision == "stay":
            continue
        if family.sharing is not None and family.sharing.decision != "shares":
            yield f"{family.driver}: sharing ({family.sharing.now}); see the decision about sharing"
        needs = DRIVERS[family.driver].exporter if family.driver in DRIVERS else ""
        if needs and any(needs in follower.what for follower in follow):
            yield f"{family.driver}: the pod of a device in metrics, until the exporter is changed: {needs}"
        if family.keys:
            yield f"{family.driver}: `kubectl describe node` counts no {list_first(family.keys, _NAMED)}; `drawbridge free` counts the devices"


def _plugin(plugin: InstalledPlugin, document: Document) -> InstalledRelease:
    return InstalledRelease(
        object=plugin.name,
        file=document.file,
        line=document.line,
        chart=plugin.chart,
        version=plugin.version,
        how=f"with the move, it stops running the plugin (`{'.'.join(plugin.runner.switch)}: false`)"
        if plugin.stays
        else "it goes with the move",
    )


def _replacement(driver: str, read: ReadTree) -> Replacement | None:
    chart = DRIVERS.get(driver)
    if chart is None:
        return None
    installed = release_of(driver, read.releases)
    return Replacement(
        chart=chart.name,
        url=chart.url,
        version=chart.version,
        values={
            **chart.values,
            **(chart.values_on_talos if read.platform.is_talos else {}),
            **_cdi(chart, read.platform),
            **_driver_root(driver, read),
        },
        notes=chart.notes,
        installed=None if installed is None else _installed(installed, read.documents[installed.number]),
    )


def release_of(driver: str, releases: Iterable[Release]) -> Release | None:
    """Return the release of the tree that installs a driver."""
    chart = DRIVERS.get(driver)
    names = (chart.name, chart.url.rpartition("/")[2]) if chart else ()
    return next((release for release in releases if release.chart in names), None)


def _cdi(chart: DriverChart, platform: Platform) -> Object:
    """Return values with the CDI folders if containerd does not read the default folders."""
    folders = [folder for folder in platform.cdi_folders if not (platform.is_talos and folder.startswith("/etc/"))]
    names = inside(chart.values_on_talos, "cdi") if folders else {}
    return {"cdi": {name: folders[0 if name == "staticPath" else -1] for name in names}} if names else {}


def _installed(release: Release, document: Document) -> InstalledRelease:
    return InstalledRelease(object=object_of(release, document), file=document.file, line=document.line)


def _driver_root(driver: str, read: ReadTree) -> Object:
    """Return the value with the GPU driver's folder, from the GPU operator's settings. If the operator runs no driver container, its default is ignored."""
    for plugin in read.plugins:
        if driver == _NVIDIA == plugin.runner.driver and plugin.stays:
            folder = text(inside(plugin.settings, "hostPaths").get("driverInstallDir")) or _DRIVER_FOLDER
            is_on_host = inside(plugin.settings, "driver").get("enabled") is False
            if read.platform.is_talos and is_on_host:
                continue  # its system extension has the libraries in another folder, such as /usr/local/glibc/usr/lib, than the root
            if folder != _DRIVER_FOLDER or not is_on_host:
                return {"nvidiaDriverRoot": folder}
    return {}
