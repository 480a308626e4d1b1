"""Reads the components of a cluster that affect decisions: device plugins, autoscalers, the GPU operator and RuntimeClasses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dra.raw import text
from webhook.state.autoscalers import Autoscaler, autoscalers, pod_with_tolerations
from webhook.state.device_plugins import LABEL, DevicePlugin, PluginConfiguration, Replicated, device_plugins
from webhook.state.gpu_operator import GpuOperator, gpu_operator
from webhook.state.network_pools import POLICIES, NetworkPools, network_pools
from webhook.state.runtime_classes import RuntimeClass, runtime_classes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from dra.raw import Object
    from webhook.dialects import Selected

# The kinds that are read, with their groups, because Kyverno, Gaudi and HyperShift also have a ClusterPolicy or a NodePool.
_KINDS = {
    "ClusterPolicy": "nvidia.com",
    "ConfigMap": "",
    "DaemonSet": "apps",
    "Deployment": "apps",
    "GPUCluster": "nvidia.com",
    "GpuDevicePlugin": "deviceplugin.intel.com",
    "NodeOverlay": "karpenter.sh",
    "NodePool": "karpenter.sh",
    "RuntimeClass": "node.k8s.io",
    **dict.fromkeys(POLICIES, "mellanox.com"),
}
# Matches values in ConfigMaps that must be parsed as YAML before `installed` reads them (`cluster.manifests.unfold`).
IN_CONFIG_MAPS = re.compile(
    r"(?:sharing|imex|migStrategy|resources|nodeGroups|(?i:resourceList|configList))[\"']?[ \t]*:"
).search


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """Device plugins, the GPU operator, autoscalers, RuntimeClasses by name, and pools of network devices."""

    plugins: tuple[DevicePlugin, ...] = ()
    gpu_operator: GpuOperator = GpuOperator()
    autoscalers: tuple[Autoscaler, ...] = ()
    runtimes: Mapping[str, RuntimeClass] = {}
    network: NetworkPools = NetworkPools()

    def shared_on(self, labels: Mapping[str, str]) -> dict[str, Replicated]:
        """Find the resources whose units are replicas on a node with these labels."""
        running = [plugin.configuration_for(labels) for plugin in self.plugins]
        return {
            key: Replicated(configuration.where, sharing)
            for configuration in running
            if configuration
            for key, sharing in configuration.shared.items()
        }

    def usually(self, key: str) -> Replicated | None:
        """Return the replicas of a resource that the default configuration of a device plugin makes; None if no plugin makes any.

        If a plugin has no default, all of its configurations count.
        """
        for plugin in self.plugins:
            if plugin.default is None:
                candidates = list(plugin.configurations.values())
            else:
                candidates = [
                    configuration for name, configuration in plugin.configurations.items() if name == plugin.default
                ]
            for configuration in candidates:
                if shared := configuration.replicated(key):
                    return shared
        return None

    def chosen_by(self, selected: Selected) -> PluginConfiguration | None:
        for key, operator, values in selected.always:
            if key == LABEL and operator == "In" and len(values) == 1:
                for plugin in self.plugins:
                    if values[0] in plugin.configurations:
                        return plugin.configurations[values[0]]
        return None

    def neglects(self, selected: Selected, spec: Mapping[str, Any]) -> str:
        """Return why an autoscaler would not create a suitable node for a pending pod with claims, and the remedy; "" if none is known to fail."""
        pod = pod_with_tolerations(spec)
        for autoscaler in self.autoscalers:
            if why := autoscaler.neglects(selected, pod):
                return f"{why}; {autoscaler.remedy}, or `extendedResources: {{autoscaled: leave}}`"
        return ""

    def ignores(self, key: str) -> str:
        """Return the configuration in which this is a new name for devices, which the plugin ignores; "" if there is none."""
        for plugin in self.plugins:
            for configuration in plugin.configurations.values():
                if key in configuration.ignored:
                    return configuration.where
        return ""


NONE = Installed()


def is_component(obj: Object) -> bool:
    """Return whether an object is of a kind that `installed` reads."""
    return _KINDS.get(text(obj.get("kind"))) == text(obj.get("apiVersion")).rpartition("/")[0]


def installed(objects: Iterable[Object]) -> Installed:
    objects = list(objects)
    relevant = [obj for obj in objects if is_component(obj)]
    operator = gpu_operator(relevant)
    return Installed(
        plugins=device_plugins(relevant, named_maps_only=operator.runs_driver_alone),
        gpu_operator=operator,
        autoscalers=autoscalers(relevant),
        runtimes=runtime_classes(relevant),
        network=network_pools(relevant, objects),
    )
