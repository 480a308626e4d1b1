"""Reads the components of a cluster that affect decisions: device plugins, autoscalers, the GPU operator and RuntimeClasses."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dra.raw import Object, inside, items, mapping, text
from webhook.state.autoscalers import Autoscaler, autoscalers, pod_with_tolerations
from webhook.state.device_plugins import LABEL, DevicePlugin, PluginConfiguration, Replicated, device_plugins
from webhook.state.network_pools import POLICIES, NetworkPools, network_pools

if TYPE_CHECKING:
    from collections.abc import Iterable

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


class GpuOperator(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of NVIDIA's GPU operator by name: it installs the device plugin (ClusterPolicy) or the DRA driver (GPUCluster).

    While objects of both kinds exist, the operator reconciles neither. A GPUCluster runs no device plugin and no GPU feature discovery, so their
    labels and ConfigMaps may be stale. Follows NVIDIA/gpu-operator v26.7: api/nvidia/v1, api/nvidia/v1alpha1, controllers.
    """

    policies: tuple[str, ...] = ()
    # The policies with which the operator runs the device plugin. A policy enables the plugin by default.
    plugins: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    # Clusters that are not ready, with their `status.state`.
    unready: tuple[tuple[str, str], ...] = ()

    @property
    def runs_driver_alone(self) -> bool:
        """Return whether the operator runs the DRA driver and no device plugin."""
        return bool(self.clusters) and not self.policies


class RuntimeClass(msgspec.Struct, frozen=True, kw_only=True):
    """A RuntimeClass, with the node selector and tolerations that the API server merges into its pods.

    Follows Kubernetes' plugin/pkg/admission/runtimeclass.
    """

    handler: str
    node_selector: Mapping[str, Any] = {}
    tolerations: tuple[Object, ...] = ()

    def schedule(self, spec: Object) -> tuple[Object, str]:
        """Return the changed fields of a pod's spec, or the label on which the pod and the class disagree."""
        selector, tolerations = mapping(spec.get("nodeSelector")), items(spec, "tolerations")
        for key, value in self.node_selector.items():
            if selector.get(key, value) != value:
                return {}, key
        added = [toleration for toleration in self.tolerations if toleration not in tolerations]
        changed: Object = {}
        if not self.node_selector.keys() <= selector.keys():
            changed["nodeSelector"] = {**self.node_selector, **selector}
        if added:
            changed["tolerations"] = [*tolerations, *added]
        return changed, ""


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
        """Return the replicas of a resource under the default configuration of a device plugin; None if no plugin replicates it.

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


def gpu_operator(objects: Iterable[Object]) -> GpuOperator:
    policies: list[str] = []
    plugins: list[str] = []
    clusters: list[str] = []
    unready: list[tuple[str, str]] = []
    for obj in objects:
        name = text(inside(obj, "metadata").get("name"))
        if obj.get("kind") == "ClusterPolicy":
            policies.append(name)
            if inside(obj, "spec", "devicePlugin").get("enabled") is not False:
                plugins.append(name)
        elif obj.get("kind") == "GPUCluster":
            clusters.append(name)
            state = text(inside(obj, "status").get("state"))
            if state not in ("", "ready"):
                unready.append((name, state))
    return GpuOperator(
        policies=tuple(policies), plugins=tuple(plugins), clusters=tuple(clusters), unready=tuple(unready)
    )


def runtime_classes(objects: Iterable[Object]) -> dict[str, RuntimeClass]:
    classes: dict[str, RuntimeClass] = {}
    for obj in objects:
        name = text(inside(obj, "metadata").get("name"))
        if obj.get("kind") == "RuntimeClass" and name:
            scheduling = inside(obj, "scheduling")
            classes[name] = RuntimeClass(
                handler=text(obj.get("handler")),
                node_selector=inside(scheduling, "nodeSelector"),
                tolerations=tuple(items(scheduling, "tolerations")),
            )
    return classes


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
