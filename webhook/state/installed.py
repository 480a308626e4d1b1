"""What is installed in a cluster that says more about a pod's devices than nodes and slices: device plugins, autoscalers, RuntimeClasses. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from webhook.state.autoscalers import Autoscaler, autoscalers, placed
from webhook.state.device_plugins import LABEL, DevicePlugin, PluginConfiguration, Replicated, device_plugins
from webhook.state.runtime_classes import RuntimeClass, runtime_classes

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from dra.raw import Object
    from webhook.dialects import Selected

# Kinds that are read here, and nothing else of them than what this and its two neighbours look at.
KINDS = frozenset(
    ("ClusterPolicy", "ConfigMap", "DaemonSet", "Deployment", "GpuDevicePlugin", "NodePool", "RuntimeClass")
)
# Texts of ConfigMaps that have to be read as YAML before (`cluster.manifests.unfold`).
IN_CONFIG_MAPS = re.compile(r"(?:sharing|migStrategy|resources|nodeGroups)[\"']?[ \t]*:").search


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """How device plugins are set up, which autoscalers there are, and which RuntimeClasses by name."""

    plugins: tuple[DevicePlugin, ...] = ()
    autoscalers: tuple[Autoscaler, ...] = ()
    runtimes: Mapping[str, RuntimeClass] = {}

    def shared_on(self, labels: Mapping[str, str]) -> dict[str, Replicated]:
        """Say of which names a unit is a replica on a node with these labels."""
        running = [plugin.on(labels) for plugin in self.plugins]
        return {key: Replicated(one.where, sharing) for one in running if one for key, sharing in one.shared.items()}

    def usually(self, key: str) -> Replicated | None:
        """Say what a unit is on a node that nothing more is known of: by the default, or by any where there is none."""
        for plugin in self.plugins:
            default = plugin.configurations.get(plugin.default) if plugin.default is not None else None
            every = [default] if default else list(plugin.configurations.values()) if plugin.default is None else []
            for configuration in every:
                if shared := configuration.find(key):
                    return shared
        return None

    def chosen_by(self, selected: Selected) -> PluginConfiguration | None:
        """Find the configuration that a pod chooses by the label of its nodes, if it chooses one."""
        for key, operator, values in selected.always:
            if key == LABEL and operator == "In" and len(values) == 1:
                for plugin in self.plugins:
                    if values[0] in plugin.configurations:
                        return plugin.configurations[values[0]]
        return None

    def neglects(self, selected: Selected, spec: Mapping[str, Any]) -> str:
        """Say what becomes of a pod with claims whose node has to be made, and what to do; "" if its claims are considered."""
        pod = placed(spec)
        for one in self.autoscalers:
            if told := one.neglects(selected, pod):
                return f"{told}; {one.remedy}, or `extendedResources: {{autoscaled: leave}}`"
        return ""

    def ignores(self, key: str) -> str:
        """Name the configuration that gives devices this name, which the plugin does not do; "" if none does."""
        for plugin in self.plugins:
            for one in plugin.configurations.values():
                if key in one.ignored:
                    return one.where
        return ""


NONE = Installed()


def installed(objects: Iterable[Object]) -> Installed:
    """Read what is installed among some objects."""
    telling = [one for one in objects if str(one.get("kind")) in KINDS]
    if not telling:
        return NONE
    return Installed(
        plugins=device_plugins(telling), autoscalers=autoscalers(telling), runtimes=runtime_classes(telling)
    )
