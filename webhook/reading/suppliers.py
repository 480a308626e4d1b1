"""What supplies devices: charts, kinds and images of device plugins, drivers and operators, and exporters that watch devices.

What stands in their values or settings requests nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dra.raw import inside, items, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json

_INSTALLERS: Final = ("HelmRelease", "HelmChart", "Application", "ApplicationSet")


class PluginRunner(NamedTuple):
    """What runs the device plugin of a driver. It goes, or it is an operator that stays, with a switch for the plugin."""

    driver: str
    switch: tuple[str, ...] = ()  # the path in the values or the spec; false: no plugin runs


# By the name of a chart.
PLUGINS: Final = {
    "intel-device-plugins-gpu": PluginRunner("gpu.intel.com"),
    "intel-device-plugins-operator": PluginRunner("gpu.intel.com"),
    "nvidia-device-plugin": PluginRunner("gpu.nvidia.com"),
    "gpu-operator": PluginRunner("gpu.nvidia.com", ("devicePlugin", "enabled")),
    "gpu-feature-discovery": PluginRunner("gpu.nvidia.com"),
    "amd-gpu": PluginRunner("gpu.amd.com"),
    "amd-gpu-device-plugin": PluginRunner("gpu.amd.com"),
    "gpu-operator-charts": PluginRunner("gpu.amd.com", ("deviceConfig", "spec", "devicePlugin", "enableDevicePlugin")),
}
# By the group and kind of an operator's object.
PLUGIN_KINDS: Final = {
    ("deviceplugin.intel.com", "GpuDevicePlugin"): PluginRunner("gpu.intel.com"),
    ("nvidia.com", "ClusterPolicy"): PluginRunner("gpu.nvidia.com", ("devicePlugin", "enabled")),
    ("amd.com", "DeviceConfig"): PluginRunner("gpu.amd.com", ("devicePlugin", "enableDevicePlugin")),
}
# Images of device plugins that run without a chart of theirs: the last two parts of the name.
PLUGIN_IMAGES: Final = {
    "intel/intel-gpu-plugin": PluginRunner("gpu.intel.com"),
    "nvidia/k8s-device-plugin": PluginRunner("gpu.nvidia.com"),
    "rocm/k8s-device-plugin": PluginRunner("gpu.amd.com"),
}
# Further charts: plugins of other devices, DRA drivers, and what watches devices or labels nodes.
OTHER_CHARTS: Final = frozenset((
    *("hami", "generic-device-plugin", "network-operator", "sriov-network-operator", "node-feature-discovery"),
    *("intel-gpu-resource-driver", "intel-gpu-resource-driver-chart", "dra-driver-nvidia-gpu", "nvidia-dra-driver-gpu"),
    *("k8s-gpu-dra-driver", "dranet", "dcgm-exporter", "nvidia-gpu-exporter", "device-metrics-exporter-charts"),
))  # fmt: skip


def is_supplying_release(obj: Mapping[str, Json]) -> bool:
    """Return whether an object of Flux, Argo CD or K3s installs only charts that supply or watch devices."""
    if obj.get("kind") not in _INSTALLERS:
        return False
    spec = inside(obj, "spec", "template", "spec") or inside(obj, "spec")
    sources = (spec, inside(spec, "chart", "spec"), inside(spec, "source"), *items(spec, "sources"))
    names = [text(source.get("chart")) for source in sources] + [text(inside(spec, "chartRef").get("name"))]
    charts = {name.rpartition("/")[2] for name in names if name}
    return bool(charts) and charts <= PLUGINS.keys() | OTHER_CHARTS
