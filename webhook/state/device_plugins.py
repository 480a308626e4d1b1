"""Reads the configurations of device plugins with which a unit of a resource is less than a whole device.

Reads the ConfigMap of NVIDIA's plugin with the DaemonSet or ClusterPolicy that names it, the sharing of Intel's plugin, the counts of the
generic device plugin, and the capacity in Karpenter's NodeOverlays. Karpenter itself knows how many devices an instance has, so more units are replicas.
As in NVIDIA's plugin, `sharing.mps` wins over `timeSlicing`, fewer than two replicas are invalid, and `resources` and
`rename` are ignored. A node runs the configuration that its label names, else the default, else a fallback (`config-manager`).
Follows NVIDIA/k8s-device-plugin v0.20: api/config/v1, cmd/config-manager; NVIDIA/gpu-operator v26.7: api/nvidia/v1;
intel/intel-device-plugins-for-kubernetes: cmd/gpu_plugin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from dra.raw import containers_of, inside, items, strings, text
from webhook.state.network_pools import flag_values, mounted_config_maps, uses_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.raw import Object

LABEL = "nvidia.com/device-plugin.config"
_PREFIX = "nvidia.com/"
_REPLICAS = ".replicas"
_STRATEGIES = {"mps": "MPS", "timeSlicing": "time-sliced"}
_TOP_FIELDS = ("version", "flags", "sharing", "resources", "imex")
# Fallback strategies of config-manager, and those that the chart sets.
_NAMED, _SINGLE, _EMPTY = "named", "single", "empty"
_CHART_FALLBACKS = (_NAMED, _SINGLE)
_INTEL = ("gpu.intel.com/i915", "gpu.intel.com/xe")
_INTEL_ARGUMENT = "shared-dev-num"
# squat/generic-device-plugin, whose option --device is a YAML string.
_GENERIC, _GENERIC_DOMAIN = "generic-device-plugin", "squat.ai"
_GENERIC_NAME = re.compile(r"""\bname["']?:[ \t]*["']?([\w.-]+)""")
_GENERIC_COUNT = re.compile(r"""\bcount["']?:[ \t]*([0-9]{1,8})\b""")
_SEVERAL = re.compile(r"[2-9]|[1-9][0-9]{1,7}").fullmatch
_MAX = 64  # maximum numbers that are read: configurations of a ConfigMap, resources of a configuration


class Replicas(msgspec.Struct, frozen=True, gc=False):
    replicas: int
    strategy: str  # "" if it is not known, and whether they are replicas is not certain
    # Whether the plugin rejects pods that request more than one replica.
    fails_above_one: bool = False

    def __str__(self) -> str:
        if not self.strategy:
            return f"announces {self.replicas} units for a node, which can be replicas of one device"
        fails = ", and rejects pods that request two replicas" if self.fails_above_one else ""
        return f"makes {self.replicas} {self.strategy} replicas of each device{fails}"


class Replicated(msgspec.Struct, frozen=True, gc=False):
    """Replicas of a resource, and the object that configures them."""

    where: str
    sharing: Replicas

    def __str__(self) -> str:
        return f"{self.where} {self.sharing}"


class PluginConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of a plugin: the object that contains it, and the resources of which it makes replicas."""

    where: str
    shared: Mapping[str, Replicas] = {}
    # Whether each container with a GPU also gets IMEX channel 0.
    imex: bool = False
    # Names under `rename` and `resources`, which the plugin ignores.
    ignored: tuple[str, ...] = ()

    def replicated(self, key: str) -> Replicated | None:
        sharing = self.shared.get(key)
        return None if sharing is None else Replicated(self.where, sharing)


class DevicePlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin: its configurations by name, and the one that a node without the label runs."""

    configurations: Mapping[str, PluginConfiguration]
    default: str | None = None
    # Labels of the nodes that it runs on.
    nodes: Mapping[str, str] = {}

    def configuration_for(self, labels: Mapping[str, str]) -> PluginConfiguration | None:
        if not self.nodes.items() <= labels.items():
            return None
        chosen = labels.get(LABEL) or self.default
        return None if chosen is None else self.configurations.get(chosen)


class _MapUse(msgspec.Struct, frozen=True):
    """A ConfigMap that a DaemonSet or a ClusterPolicy passes to the NVIDIA plugin. A ClusterPolicy does not name the ConfigMap's namespace."""

    name: str
    namespace: str = ""
    default: str = ""
    fallbacks: tuple[str, ...] = _CHART_FALLBACKS
    nodes: Mapping[str, str] = {}

    def choose(self, configurations: Mapping[str, PluginConfiguration]) -> str | None:
        """Choose the configuration of a node without the label."""
        if self.default:
            return self.default
        for fallback in self.fallbacks:
            if fallback == _EMPTY:
                return None
            if fallback == _NAMED and "default" in configurations:
                return "default"
            if fallback == _SINGLE and len(configurations) == 1:
                return next(iter(configurations))
        return None


def shared_by_labels(labels: Mapping[str, str]) -> dict[str, Replicated]:
    """Return the resources whose units are replicas, according to a node's labels from GPU Feature Discovery."""
    shared: dict[str, Replicated] = {}
    for label, number in labels.items():
        key = label.removesuffix(_REPLICAS)
        if (
            key == label
            or not label.startswith(_PREFIX)
            or not (number.isdecimal() and len(number) < 10 and int(number) > 1)
        ):
            continue
        strategy = "mps" if labels.get(f"{key}.sharing-strategy") == "mps" else "timeSlicing"
        sharing = Replicas(int(number), _STRATEGIES[strategy], fails_above_one=strategy == "mps")
        shared[key] = shared[f"{key}.shared"] = Replicated(f"the plugin (label {label})", sharing)
    return shared


def device_plugins(objects: Iterable[Object], *, named_maps_only: bool = False) -> tuple[DevicePlugin, ...]:
    """Read the device plugins among some objects; `named_maps_only` skips ConfigMaps that no object names."""
    uses: list[_MapUse] = []
    maps: list[Object] = []
    plugins: list[DevicePlugin] = []
    for obj in objects:
        uses += _map_uses(obj)
        match obj.get("kind"):
            case "ConfigMap":
                maps.append(obj)
            case "DaemonSet":
                plugins += _intel(obj, _shared_argument(obj))
                plugins += _generic(obj)
            case "GpuDevicePlugin":
                plugins += _intel(obj, inside(obj, "spec").get("sharedDevNum"))
            case "NodeOverlay":
                plugins += _overlay(obj)
    for map_ in maps:
        metadata = inside(map_, "metadata")
        name, namespace = text(metadata.get("name")), text(metadata.get("namespace")) or "default"
        configurations: dict[str, PluginConfiguration] = {}
        for entry, value in list(inside(map_, "data").items())[:_MAX]:
            # A value that is not valid YAML is still a string here. The plugin does not start with such a value.
            if isinstance(value, dict) and is_configuration(value):
                configurations[entry] = _configuration(value, f"ConfigMap {namespace}/{name} ({entry})")
        if not configurations:
            continue
        own = [use for use in uses if use.name == name and use.namespace in ("", namespace)]
        if not own and not named_maps_only:
            own = [_MapUse(name)]
        for use in own:
            default = use.choose(configurations)
            plugins.append(DevicePlugin(configurations=configurations, default=default, nodes=use.nodes))
    return tuple(plugins)


def config_maps_of(obj: Object) -> list[tuple[str, str]]:
    """List the ConfigMaps that an object passes to a device plugin: namespace ("" is that of NVIDIA's operator) and name."""
    return [*[(use.namespace, use.name) for use in _map_uses(obj)], *uses_of(obj)]


def _map_uses(obj: Object) -> Iterator[_MapUse]:
    if obj.get("kind") == "ClusterPolicy":
        config = inside(obj, "spec", "devicePlugin", "config")
        if name := text(config.get("name")):
            yield _MapUse(name, default=text(config.get("default")), fallbacks=(_EMPTY,))
    if obj.get("kind") != "DaemonSet":
        return
    pod = inside(obj, "spec", "template", "spec")
    containers = containers_of(pod)
    variables: dict[str, str] = {}
    for container in containers:
        for variable in items(container, "env"):
            variables[text(variable.get("name"))] = text(variable.get("value"))
    files = [variables.get("CONFIG_FILE", "")]
    is_nvidia_plugin = False
    for container in containers:
        is_nvidia_plugin = is_nvidia_plugin or "nvidia" in text(container.get("image"))
        arguments = strings(container, "command", "args")
        files += [argument.partition("=")[2] for argument in arguments if argument.startswith("--config-file=")]
    if not any(files) or not is_nvidia_plugin:
        return
    default = variables.get("DEFAULT_CONFIG", "")
    if variables.get("NODE_LABEL") is None and not default:  # no config-manager: the plugin reads the file itself
        default = next(filter(None, files)).rpartition("/")[2]
    strategies = variables.get("FALLBACK_STRATEGIES", ",".join(_CHART_FALLBACKS))
    fallbacks = tuple(filter(None, strategies.split(",")))
    namespace = text(inside(obj, "metadata").get("namespace")) or "default"
    nodes = _labels(inside(pod, "nodeSelector"))
    for name in mounted_config_maps(pod):
        yield _MapUse(name, namespace, default, fallbacks, nodes)


def is_configuration(value: Object) -> bool:
    """Return whether an object has the form of a configuration of the NVIDIA plugin."""
    has_known_fields = set(value) <= set(_TOP_FIELDS) and ("version" in value or "sharing" in value)
    return has_known_fields and value.get("version", "v1") in ("v1", "")


def strategies_in(sharing: Object) -> Object:
    """Return the strategies of a configuration. NVIDIA's plugin reads their names without regard to case (encoding/json of Go)."""
    names = {name.lower(): name for name in _STRATEGIES}
    return {names[name.lower()]: strategy for name, strategy in sharing.items() if name.lower() in names}


def _configuration(value: Object, where: str) -> PluginConfiguration:
    ignored = [
        text(item.get("name"))
        for kind in ("gpus", "mig", "migs")
        for item in items(inside(value, "resources"), kind)[:_MAX]
    ]
    sharing = strategies_in(inside(value, "sharing"))
    strategy = "mps" if sharing.get("mps") is not None else "timeSlicing"
    of_strategy = inside(sharing, strategy)
    renames = of_strategy.get("renameByDefault") is True
    fails_setting = of_strategy.get("failRequestsGreaterThanOne")
    shared: dict[str, Replicas] = {}
    for item in items(of_strategy, "resources")[:_MAX]:
        name, replicas = text(item.get("name")), item.get("replicas")
        if not name or type(replicas) is not int or replicas < 2:
            continue  # the plugin does not start with it
        key = name if name.startswith(_PREFIX) else _PREFIX + name
        if rename := text(item.get("rename")):
            ignored.append(rename)
        fails_above_one = fails_setting is True or (strategy == "mps" and fails_setting is None)
        shared[f"{key}.shared" if renames else key] = Replicas(replicas, _STRATEGIES[strategy], fails_above_one)
    ignored_keys = [name if name.startswith(_PREFIX) else _PREFIX + name for name in ignored if name]
    imex = inside(value, "imex").get("channelIDs") == [0]  # the only channel that the plugin takes
    return PluginConfiguration(where=where, shared=shared, imex=imex, ignored=tuple(ignored_keys))


def _intel(obj: Object, number: object) -> Iterator[DevicePlugin]:
    """Yield the device plugin of an object if it lets several containers share an Intel GPU."""
    if type(number) is not int or number < 2:
        return
    spec = inside(obj, "spec")
    selector = inside(spec, "template", "spec", "nodeSelector") or inside(spec, "nodeSelector")
    yield _plugin(obj, dict.fromkeys(_INTEL, Replicas(number, "shared")), selector)


def _plugin(obj: Object, shared: Mapping[str, Replicas], selector: Object) -> DevicePlugin:
    """Return a plugin with one configuration, on the nodes that a selector of labels chooses."""
    metadata = inside(obj, "metadata")
    name = "/".join(filter(None, (text(metadata.get("namespace")), text(metadata.get("name")))))
    configuration = PluginConfiguration(where=f"{text(obj.get('kind'))} {name}", shared=shared)
    return DevicePlugin(configurations={"": configuration}, default="", nodes=_labels(selector))


def _labels(selector: Object) -> dict[str, str]:
    return {key: value for key, value in selector.items() if isinstance(value, str)}


def _generic(daemon_set: Object) -> Iterator[DevicePlugin]:
    """Yield the generic device plugin if several containers get one group of device files."""
    pod = inside(daemon_set, "spec", "template", "spec")
    shared: dict[str, Replicas] = {}
    for container in items(pod, "containers"):
        if _GENERIC not in text(container.get("image")):
            continue
        domain = next(iter(flag_values(container, "domain")), _GENERIC_DOMAIN)
        for device in flag_values(container, "device")[:_MAX]:
            name = _GENERIC_NAME.search(device)
            counts = [int(count) for count in _GENERIC_COUNT.findall(device)]
            if name and max(counts, default=1) > 1:
                shared[f"{domain}/{name[1]}"] = Replicas(max(counts), "shared")
    if shared:
        yield _plugin(daemon_set, shared, inside(pod, "nodeSelector"))


def _overlay(obj: Object) -> Iterator[DevicePlugin]:
    """Yield a device plugin for each node label that a NodeOverlay with several units of a resource requires."""
    spec = inside(obj, "spec")
    shared = {
        key: Replicas(int(amount), "")
        for key, amount in ((key, str(value)) for key, value in inside(spec, "capacity").items())
        if "/" in key and _SEVERAL(amount)
    }
    if not shared:
        return
    chosen = next((need for need in items(spec, "requirements") if need.get("operator") == "In"), {})
    labels: list[Object] = [{text(chosen.get("key")): value} for value in strings(chosen, "values")[:_MAX]]
    for nodes in labels or [{}]:
        yield _plugin(obj, shared, nodes)


def _shared_argument(daemon_set: Object) -> int | None:
    for container in items(inside(daemon_set, "spec", "template", "spec"), "containers"):
        for number in flag_values(container, _INTEL_ARGUMENT)[:1]:
            return int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else None
    return None
