"""Reads the pools of network devices from the configurations of device plugins.

A pool is a resource name with selectors for its devices. The SR-IOV plugin and the shared RDMA plugin each read a ConfigMap. That of the SR-IOV
plugin has one configuration, or one for each node if the SR-IOV network operator wrote it. The NVIDIA network operator writes both ConfigMaps
from its policies, so policies among the objects are read, too. As in Go, the case of JSON member names does not matter. A plugin with a mistake
in its configuration does not start: the mistake is reported, and the other pools are used.
Follows k8snetworkplumbingwg/sriov-network-device-plugin: pkg/types, pkg/factory, cmd/sriovdp; k8snetworkplumbingwg/
sriov-network-operator: controllers, bindata; Mellanox/k8s-rdma-shared-dev-plugin: pkg/types, pkg/resources; Mellanox/
network-operator: manifests.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from dra.raw import Object, containers_of, inside, items, mapping, strings, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Matches a value of a ConfigMap that is a configuration of one of these plugins.
IS_TEXT = re.compile(r"\"(?:resourceList|configList)\"\s*:", re.IGNORECASE).search
_IMAGES = ("sriov-network-device-plugin", "rdma-shared-dev-plugin")
# Policies of the NVIDIA network operator, and their fields that contain a plugin's configuration.
POLICIES = ("NicClusterPolicy", "NicNodePolicy")
_POLICY_PLUGINS = ("rdmaSharedDevicePlugin", "sriovDevicePlugin")
_LONGEST_TEXT = 256 << 10
_OPERATOR = "sriov-network-operator"
_IS_DOMAIN = re.compile(r"[a-z0-9.-]{1,253}").fullmatch
PREFIX_VARIABLE = "RESOURCE_PREFIX"
_SRIOV_POLICY = "SriovNetworkNodePolicy"
# Of the NVIDIA network operator.
_HOST_DEVICES, _HOST_DEVICES_DOMAIN = "HostDeviceNetwork", "nvidia.com"
_PREFIX_FLAG = "resource-prefix"
_OPERATOR_CONFIG_MAP = "device-plugin-config"  # the ConfigMap of the SR-IOV network operator
_NAMES = {
    "resourcelist": re.compile(r"[a-zA-Z0-9_-]{1,63}").fullmatch,
    "configlist": re.compile(r"[a-zA-Z0-9_]{1,63}").fullmatch,
}
# Members of selectors that choose the devices of a pool.
_LISTS = (
    *("vendors", "devices", "deviceIDs", "drivers", "pciAddresses", "pfNames", "rootDevices", "ifNames", "linkTypes"),
    *("acpiIndexes", "ddpProfiles", "pKeys", "auxTypes"),
)
_SCALARS = ("resourceName", "resourcePrefix", "deviceType", "isRdma", "vdpaType")
_READ_FIELDS = frozenset(name.lower() for name in (*_NAMES, *_SCALARS, "selectors", *_LISTS))
_MAX_ENTRIES = 4_096  # of a ConfigMap
_MAX = 256  # maximum number of pools, alternatives of a pool, and values of a selector
_LONGEST = 63  # maximum length of a value
_SHOWN = 3  # maximum number of selectors, and of values of a selector, in a description

Selectors = Mapping[str, tuple[str, ...]]


class NetworkPool(msgspec.Struct, frozen=True, kw_only=True):
    """A resource name, and the selectors of its devices: each device of the pool matches one of the alternatives."""

    name: str
    # The object that configures the pool, and the entry in it.
    where: str
    alternatives: tuple[Selectors, ...]
    # Whether a container with one unit of the resource gets all devices of the pool.
    is_shared: bool = False

    def __str__(self) -> str:
        first = self.alternatives[0]
        parts = []
        for name, values in list(first.items())[:_SHOWN]:
            shown = ",".join(values[:_SHOWN]) + ("…" if len(values) > _SHOWN else "")
            parts.append(f"{name}={shown}" if shown else name)
        more = "…" if len(first) > _SHOWN or len(self.alternatives) > 1 else ""
        return f"{' '.join(parts)}{more} in {self.where}"


class Misconfigured(msgspec.Struct, frozen=True):
    where: str
    problem: str


class NetworkPools(msgspec.Struct, frozen=True):
    pools: Mapping[str, NetworkPool] = {}
    mistakes: tuple[Misconfigured, ...] = ()
    # The domain of the SR-IOV network operator's resource names.
    prefix: str = ""
    # By resource name: the operator's object that defines the pool.
    made: Mapping[str, str] = {}

    def maker_of(self, key: str) -> str:
        """Return the object that configures the pool of a resource name; "" if there is none."""
        return self.pools[key].where if key in self.pools else self.made.get(key, "")


def network_pools(objects: Sequence[Object], workloads: Sequence[Object] = ()) -> NetworkPools:
    """Read the pools of plugins and operators. `workloads` may show the domain of the SR-IOV network operator's resource names."""
    prefixes = {(namespace, name): prefix for obj in objects for namespace, name, prefix in _uses(obj)}
    pools: dict[str, NetworkPool] = {}
    mistakes: dict[Misconfigured, None] = {}
    for where, value, prefix in [entry for obj in objects for entry in _entries(obj, prefixes)]:
        if isinstance(value, str) and IS_TEXT(value):
            mistakes[Misconfigured(where, "is not valid JSON, or longer than 256 KiB")] = None
        for pool in _read(value, where, prefix):
            if isinstance(pool, Misconfigured):
                mistakes[pool] = None
            elif len(pools) == _MAX and pool.name not in pools:
                mistakes[Misconfigured(where, f"has more than {_MAX} pools")] = None
            else:
                pools[pool.name] = _join(pools[pool.name], pool) if pool.name in pools else pool
    prefix = next(filter(None, map(_prefix_of_operator, objects)), "") or _prefix_of_requests(workloads)
    return NetworkPools(pools, tuple(mistakes)[:_MAX], prefix, dict(_made(workloads, prefix)))


def _made(objects: Sequence[Object], prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the objects from which operators define resources, with the resource names."""
    domains = {_SRIOV_POLICY: prefix, _HOST_DEVICES: _HOST_DEVICES_DOMAIN}
    for obj in objects:
        kind, pool = text(obj.get("kind")), text(inside(obj, "spec").get("resourceName"))
        if pool and (domain := domains.get(kind)):
            yield f"{domain}/{pool}", f"{kind} {text(inside(obj, 'metadata').get('name'))}"


def _prefix_of_operator(obj: Object) -> str:
    if obj.get("kind") != "Deployment":
        return ""
    for container in containers_of(inside(obj, "spec", "template", "spec")):
        for variable in items(container, "env") if _OPERATOR in text(container.get("image")) else ():
            if variable.get("name") == PREFIX_VARIABLE and _IS_DOMAIN(value := text(variable.get("value"))):
                return value
    return ""


def _prefix_of_requests(objects: Sequence[Object]) -> str:
    """Return the domain with which containers request pools of the SR-IOV network operator; "" if there is none, or more than one."""
    pools = {inside(obj, "spec").get("resourceName") for obj in objects if obj.get("kind") == _SRIOV_POLICY}
    domains: set[str] = set()
    unvisited: list[object] = list(objects) if pools else []
    while unvisited:
        value = unvisited.pop()
        unvisited += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for key in mapping(mapping(value).get("limits")):
            domain, _, pool = key.partition("/")
            if pool in pools:
                domains.add(domain)
    return domains.pop() if len(domains) == 1 else ""


def _entries(obj: Object, prefixes: Mapping[tuple[str, str], str]) -> Iterator[tuple[str, object, str]]:
    """Yield the configurations in an object: the position, the content, and the prefix of the resource names."""
    metadata = inside(obj, "metadata")
    name, namespace = text(metadata.get("name")), text(metadata.get("namespace")) or "default"
    default_prefix = "openshift.io" if name == _OPERATOR_CONFIG_MAP else "intel.com"
    if obj.get("kind") == "ConfigMap":
        for entry, value in list(inside(obj, "data").items())[:_MAX_ENTRIES]:
            yield (
                f"ConfigMap {namespace}/{name} ({entry})",
                value,
                prefixes.get((namespace, name), "") or default_prefix,
            )
    for plugin in _POLICY_PLUGINS if obj.get("kind") in POLICIES else ():
        content = text(inside(obj, "spec", plugin).get("config"))
        if content:
            yield f"{obj.get('kind')} {name} ({plugin})", _parsed(content), default_prefix


def _parsed(content: str) -> object:
    """Parse a configuration in a policy. Those in ConfigMaps are parsed before (`cluster.manifests.unfold`). A text that is not JSON is not changed."""
    if len(content) > _LONGEST_TEXT:
        return content
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return content


def uses_of(obj: Object) -> list[tuple[str, str]]:
    """Return the ConfigMaps that an object passes to a network device plugin: namespace and name."""
    return [(namespace, name) for namespace, name, _ in _uses(obj)]


def is_pools(value: Object) -> bool:
    """Return whether an object has the form of a configuration of a network device plugin."""
    return not _NAMES.keys().isdisjoint(_lower(value))


def outline_of(value: object) -> object:
    """Return a configuration, or a part of one, with only the members that are read."""
    if isinstance(value, dict):
        return {name: outline_of(inner) for name, inner in value.items() if str(name).lower() in _READ_FIELDS}
    if isinstance(value, list):
        return [outline_of(item) for item in value]
    return value[: _LONGEST + 1] if isinstance(value, str) else value if isinstance(value, bool) else None


def _uses(obj: Object) -> Iterator[tuple[str, str, str]]:
    """Yield the ConfigMaps that the DaemonSet of a network device plugin mounts, with the prefix of the plugin's resource names."""
    pod = inside(obj, "spec", "template", "spec") if obj.get("kind") == "DaemonSet" else {}
    prefix, is_plugin = "", False
    for container in items(pod, "containers"):
        is_plugin = is_plugin or any(image in text(container.get("image")) for image in _IMAGES)
        prefix = next(reversed(flag_values(container, _PREFIX_FLAG)), prefix)
    if is_plugin:
        namespace = text(inside(obj, "metadata").get("namespace")) or "default"
        for name in mounted_config_maps(pod):
            yield namespace, name, prefix


def flag_values(container: Object, flag: str) -> list[str]:
    """List the values of a flag in a container's arguments, as `--flag=value` or `--flag value`."""
    arguments = pairwise([*strings(container, "command", "args"), ""])
    parts = [(*argument.lstrip("-").partition("="), following) for argument, following in arguments]
    return [value or following for name, _, value, following in parts if name == flag]


def mounted_config_maps(pod: Object) -> list[str]:
    volumes = [text(inside(volume, "configMap").get("name")) for volume in items(pod, "volumes")]
    return [name for name in volumes if name]


def _read(value: object, where: str, prefix: str) -> Iterator[NetworkPool | Misconfigured]:
    """Yield the pools of one configuration, and the mistakes that keep the plugin from starting."""
    pool_names: set[str] = set()
    for list_name, listed in _lower(value).items():
        if list_name not in _NAMES:
            continue
        is_shared = list_name == "configlist"
        for entry in map(_lower, items({"": listed}, "")[: _MAX + 1]):
            short_name = text(entry.get("resourcename"))
            name = f"{text(entry.get('resourceprefix')) or ('rdma' if is_shared else prefix)}/{short_name}"
            if not _NAMES[list_name](short_name):
                yield Misconfigured(where, f"has a pool {short_name[:_LONGEST]!r}, a name that the plugin refuses")
            elif name in pool_names:
                yield Misconfigured(where, f"has the pool {name} twice")
            else:
                pool_names.add(name)
                alternatives = _alternatives(entry, is_shared=is_shared)
                if alternatives:
                    yield NetworkPool(name=name, where=where, alternatives=alternatives, is_shared=is_shared)
                else:
                    yield Misconfigured(where, f"has no selectors that can be read for the pool {name}")


def _alternatives(pool: Object, *, is_shared: bool) -> tuple[Selectors, ...]:
    """Return the selectors of a pool; for the SR-IOV plugin they are an object or a list of objects."""
    selectors_field = pool.get("selectors")
    all_selectors = [selectors_field] if isinstance(selectors_field, dict) else items({"": selectors_field}, "")
    if is_shared and pool.get("devices"):
        all_selectors = [*all_selectors, {"ifNames": pool.get("devices")}]
    device_type = text(pool.get("devicetype"))
    kind = {"deviceType": (device_type,)} if device_type not in ("", "netDevice") else {}
    alternatives: list[Selectors] = []
    for alternative in map(_lower, all_selectors[:_MAX]):
        selectors: dict[str, tuple[str, ...]] = dict(kind)
        for name in _LISTS:
            listed = strings(alternative, name.lower())
            if len(listed) > _MAX or any(len(value) > _LONGEST for value in listed):
                return ()
            if listed:
                selectors[name] = tuple(listed)
        if alternative.get("isrdma") is True:
            selectors["isRdma"] = ()
        if vdpa := text(alternative.get("vdpatype")):
            selectors["vdpaType"] = (vdpa,)
        if selectors and selectors not in alternatives:
            alternatives.append(selectors)
    return tuple(alternatives)


def _join(pool: NetworkPool, other: NetworkPool) -> NetworkPool:
    """Combine two pools of the same name, which different nodes may have."""
    more = tuple([selectors for selectors in other.alternatives if selectors not in pool.alternatives])
    if not more or len(pool.alternatives) + len(more) > _MAX:
        return pool
    return msgspec.structs.replace(pool, alternatives=(*pool.alternatives, *more))


def _lower(value: object) -> Object:
    return {str(name).lower(): inner for name, inner in mapping(value).items()}
