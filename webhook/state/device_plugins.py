"""How device plugins are set up, as far as it says that a unit of a name is less than a whole device. Pure.

Read are the ConfigMap of the NVIDIA plugin, the DaemonSet or ClusterPolicy that names it, and the sharing of Intel's plugin. What the
NVIDIA plugin does not do with its own file is not done here either: `sharing.mps` counts before `timeSlicing`, two replicas are the
fewest, and `resources` and names under `rename` are read and ignored. Which configuration a node runs is its label's, else the
default's, else that of the fallbacks (`config-manager`). Follows NVIDIA/k8s-device-plugin v0.20: api/config/v1, cmd/config-manager;
NVIDIA/gpu-operator v26.7: api/nvidia/v1; intel/intel-device-plugins-for-kubernetes: cmd/gpu_plugin.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from dra.raw import inside, items, strings, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.raw import Object

LABEL = "nvidia.com/device-plugin.config"
_PREFIX = "nvidia.com/"
_STRATEGIES = {"mps": "MPS", "timeSlicing": "time-sliced"}
_PARTS = ("version", "flags", "sharing", "resources", "imex")
_NAMED, _SINGLE, _EMPTY = "named", "single", "empty"
_CHARTS_OWN = (_NAMED, _SINGLE)
_INTEL = ("gpu.intel.com/i915", "gpu.intel.com/xe")
_INTEL_ARGUMENT = "shared-dev-num"
_MOST = 64  # configurations of one ConfigMap, and resources of a configuration


class Replicas(msgspec.Struct, frozen=True, gc=False):
    """So many replicas that a plugin makes of each device."""

    replicas: int
    strategy: str
    # Whether the kubelet is told to fail a pod that asks for more than one.
    fails_above_one: bool = False

    def __str__(self) -> str:
        fails = ", and fails pods that ask for two" if self.fails_above_one else ""
        return f"makes {self.replicas} {self.strategy} replicas of each{fails}"


class Replicated(msgspec.Struct, frozen=True, gc=False):
    """What says that a unit of a name is a replica: the object, and how many it makes."""

    where: str
    sharing: Replicas

    def __str__(self) -> str:
        return f"{self.where} {self.sharing}"


class PluginConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration, where it stands, and the names of which a unit is a replica."""

    where: str
    shared: Mapping[str, Replicas] = {}
    # What is written under `rename` and `resources`, which the plugin ignores.
    ignored: tuple[str, ...] = ()

    def find(self, key: str) -> Replicated | None:
        """Say what makes a unit of a name a replica, if anything does."""
        sharing = self.shared.get(key)
        return None if sharing is None else Replicated(self.where, sharing)


class DevicePlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin: its configurations by name, and which one a node without the label runs."""

    configurations: Mapping[str, PluginConfiguration]
    default: str | None = None
    # Labels of the nodes that it runs on.
    nodes: Mapping[str, str] = {}

    def on(self, labels: Mapping[str, str]) -> PluginConfiguration | None:
        """Find the configuration of a node by its labels."""
        if not self.nodes.items() <= labels.items():
            return None
        chosen = labels.get(LABEL) or self.default
        return None if chosen is None else self.configurations.get(chosen)


class _Set(msgspec.Struct, frozen=True):
    """What a DaemonSet or a ClusterPolicy says of a ConfigMap; "" where it does not know the namespace."""

    name: str
    namespace: str = ""
    default: str = ""
    fallbacks: tuple[str, ...] = _CHARTS_OWN
    nodes: Mapping[str, str] = {}


def device_plugins(objects: Iterable[Object]) -> tuple[DevicePlugin, ...]:
    """Read how the plugins among some objects are set up."""
    sets: list[_Set] = []
    maps: list[Object] = []
    found: list[DevicePlugin] = []
    for one in objects:
        sets += _sets_of(one)
        match one.get("kind"):
            case "ConfigMap":
                maps.append(one)
            case "DaemonSet":
                found += _intel(one, _shared_argument(one))
            case "GpuDevicePlugin":
                found += _intel(one, inside(one, "spec").get("sharedDevNum"))
    for one in maps:
        metadata = inside(one, "metadata")
        name, namespace = text(metadata.get("name")), text(metadata.get("namespace")) or "default"
        configurations = dict(_configurations(one, f"ConfigMap {namespace}/{name}"))
        told = [each for each in sets if each.name == name and each.namespace in ("", namespace)]
        for each in (told or [_Set(name)]) if configurations else ():
            default = _default(each, configurations)
            found.append(DevicePlugin(configurations=configurations, default=default, nodes=each.nodes))
    return tuple(found)


def _default(told: _Set, configurations: Mapping[str, PluginConfiguration]) -> str | None:
    """Choose what a node without the label runs; None for nothing."""
    if told.default:
        return told.default
    for fallback in told.fallbacks:
        if fallback == _EMPTY:
            return None
        if fallback == _NAMED and "default" in configurations:
            return "default"
        if fallback == _SINGLE and len(configurations) == 1:
            return next(iter(configurations))
    return None


def config_maps_of(obj: Object) -> list[tuple[str, str]]:
    """Name the ConfigMaps that an object gives the NVIDIA plugin, by namespace and name; "" is the namespace of the operator."""
    return [(one.namespace, one.name) for one in _sets_of(obj)]


def _sets_of(obj: Object) -> Iterator[_Set]:
    if obj.get("kind") == "ClusterPolicy":
        config = inside(obj, "spec", "devicePlugin", "config")
        if name := text(config.get("name")):
            yield _Set(name, default=text(config.get("default")), fallbacks=(_EMPTY,))
    elif obj.get("kind") == "DaemonSet":
        yield from _sets_of_daemon_set(obj)


def _sets_of_daemon_set(daemon_set: Object) -> Iterator[_Set]:
    """Read which ConfigMap the NVIDIA plugin of a DaemonSet is given, and how it chooses in it."""
    pod = inside(daemon_set, "spec", "template", "spec")
    containers = [*items(pod, "initContainers"), *items(pod, "containers")]
    variables: dict[str, str] = {}
    for container in containers:
        for one in items(container, "env"):
            variables[text(one.get("name"))] = text(one.get("value"))
    files = [variables.get("CONFIG_FILE", "")]
    is_nvidias = False
    for container in containers:
        is_nvidias = is_nvidias or "nvidia" in text(container.get("image"))
        words = strings(container, "command", "args")
        files += [word.partition("=")[2] for word in words if word.startswith("--config-file=")]
    if not any(files) or not is_nvidias:
        return
    chosen = variables.get("DEFAULT_CONFIG", "")
    if variables.get("NODE_LABEL") is None and not chosen:  # one file, mounted where it is read
        chosen = next(filter(None, files)).rpartition("/")[2]
    strategies = variables.get("FALLBACK_STRATEGIES", ",".join(_CHARTS_OWN))
    said = tuple(filter(None, strategies.split(",")))
    namespace = text(inside(daemon_set, "metadata").get("namespace")) or "default"
    nodes = {key: value for key, value in inside(pod, "nodeSelector").items() if isinstance(value, str)}
    for volume in items(pod, "volumes"):
        if name := text(inside(volume, "configMap").get("name")):
            yield _Set(name, namespace, chosen, said, nodes)


def _configurations(config_map: Object, where: str) -> Iterator[tuple[str, PluginConfiguration]]:
    """Read those entries of a ConfigMap that are configurations of the NVIDIA plugin."""
    for name, value in list(inside(config_map, "data").items())[:_MOST]:
        if not isinstance(value, dict):
            continue  # with a text that is not YAML the plugin does not start either
        if is_configuration(value):
            yield name, _configuration(value, f"{where} ({name})")


def is_configuration(value: Object) -> bool:
    """Say whether an object has the form of a configuration of the NVIDIA plugin."""
    known = set(value) <= set(_PARTS) and ("version" in value or "sharing" in value)
    return known and value.get("version", "v1") in ("v1", "")


def _configuration(value: Object, where: str) -> PluginConfiguration:
    ignored = [
        text(one.get("name"))
        for kind in ("gpus", "mig", "migs")
        for one in items(inside(value, "resources"), kind)[:_MOST]
    ]
    sharing = inside(value, "sharing")
    strategy = "mps" if sharing.get("mps") is not None else "timeSlicing"
    of_strategy = inside(sharing, strategy)
    renames = of_strategy.get("renameByDefault") is True
    fails = of_strategy.get("failRequestsGreaterThanOne")
    shared: dict[str, Replicas] = {}
    for one in items(of_strategy, "resources")[:_MOST]:
        name, replicas = text(one.get("name")), one.get("replicas")
        if not name or type(replicas) is not int or replicas < 2:
            continue  # the plugin does not start with it
        key = name if name.startswith(_PREFIX) else _PREFIX + name
        if rename := text(one.get("rename")):
            ignored.append(rename)
        fails_above_one = fails is True or (strategy == "mps" and fails is None)
        shared[f"{key}.shared" if renames else key] = Replicas(replicas, _STRATEGIES[strategy], fails_above_one)
    named = [name if name.startswith(_PREFIX) else _PREFIX + name for name in ignored if name]
    return PluginConfiguration(where=where, shared=shared, ignored=tuple(named))


def _intel(obj: Object, number: object) -> Iterator[DevicePlugin]:
    """Read how many containers share a GPU of Intel's plugin."""
    if type(number) is not int or number < 2:
        return
    metadata = inside(obj, "metadata")
    namespace = text(metadata.get("namespace"))
    name = f"{namespace}/{text(metadata.get('name'))}" if namespace else text(metadata.get("name"))
    shared = dict.fromkeys(_INTEL, Replicas(number, "unlimited"))
    spec = inside(obj, "spec")
    selector = inside(spec, "template", "spec", "nodeSelector") or inside(spec, "nodeSelector")
    nodes = {key: value for key, value in selector.items() if isinstance(value, str)}
    where = f"{text(obj.get('kind'))} {name}"
    yield DevicePlugin(configurations={"": PluginConfiguration(where=where, shared=shared)}, default="", nodes=nodes)


def _shared_argument(daemon_set: Object) -> int | None:
    for container in items(inside(daemon_set, "spec", "template", "spec"), "containers"):
        words = strings(container, "command", "args")
        for word, following in pairwise([*words, ""]):
            name, _, value = word.lstrip("-").partition("=")
            if name == _INTEL_ARGUMENT:
                number = value or following
                return int(number) if number.isascii() and number.isdecimal() and len(number) < 9 else None
    return None
