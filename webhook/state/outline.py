"""Reduces the objects of device plugins and autoscalers to the fields that are read, because the other fields may be secret."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dra.raw import items, mapping, members
from webhook.state.device_plugins import is_configuration, strategies_in
from webhook.state.network_pools import PREFIX_VARIABLE, is_pools, outline_of

if TYPE_CHECKING:
    from dra.raw import Object

_FLAGS = frozenset(
    ("config-file", "enable-dynamic-resource-allocation", "ignore-dra-requests", "resource-prefix", "shared-dev-num")
)
_VARIABLES = frozenset(
    ("CONFIG_FILE", "DEFAULT_CONFIG", "FALLBACK_STRATEGIES", "IGNORE_DRA_REQUESTS", "NODE_LABEL", PREFIX_VARIABLE)
)
_MAX_TEXT = 253  # characters


def _scalar(value: Any) -> Any:
    too_long = isinstance(value, str) and len(value) > _MAX_TEXT
    return None if too_long or isinstance(value, dict | list) else value


def _scalars(value: Any) -> list[Any]:
    return [item for item in map(_scalar, members(value)) if item is not None]


def _labels(value: Any) -> Object:
    return {key: _scalar(member) for key, member in mapping(value).items()}


def _arguments(value: Any) -> list[str]:
    """Keep the flags that are read, and a number that follows such a flag."""
    relevant: list[str] = []
    for before, argument in pairwise(["", *map(str, _scalars(value))]):
        is_flag = argument.startswith("-") and argument.lstrip("-").partition("=")[0] in _FLAGS
        if is_flag or (relevant[-1:] == [before] and argument.isdecimal()):
            relevant.append(argument)
    return relevant


def _variables(value: Any) -> list[Object]:
    return [
        {"name": item["name"], "value": _scalar(item.get("value"))}
        for item in items({"": value}, "")
        if str(item.get("name")) in _VARIABLES
    ]


def _configurations(value: Any) -> Object:
    """Keep the parsed entries of a ConfigMap (`cluster.manifests.unfold`) that have a known form."""
    outlines: Object = {}
    for name, content in mapping(value).items():
        if not isinstance(content, dict):
            continue
        if is_pools(content):
            outlines[name] = outline_of(content)
        elif is_configuration(content) or "nodeGroups" in content:
            outlines[name] = _keep(content, _CONFIGURATION if is_configuration(content) else _STATUS)
    return outlines


def _sharing(value: Any) -> Object:
    return {name: _keep(strategy, _STRATEGY) for name, strategy in strategies_in(mapping(value)).items()}


# A shape: a dict names the fields to keep, a list holds the shape of each item, and a function reduces a value.
_NAMED = {"name": _scalar}
_STRATEGY = {
    "renameByDefault": _scalar,
    "failRequestsGreaterThanOne": _scalar,
    "resources": [{"name": _scalar, "rename": _scalar, "replicas": _scalar}],
}
_CONFIGURATION = {
    "version": _scalar,
    "flags": {"migStrategy": _scalar},
    "sharing": _sharing,
    "imex": {"channelIDs": _scalars},
    "resources": {"gpus": [_NAMED], "mig": [_NAMED], "migs": [_NAMED]},
}
_STATUS = {"nodeGroups": [{"name": _scalar, "health": {"cloudProviderTarget": _scalar, "maxSize": _scalar}}]}
_CONTAINER = {**_NAMED, "image": _scalar, "command": _arguments, "args": _arguments, "env": _variables}
_POD = {
    "nodeSelector": _labels,
    "initContainers": [_CONTAINER],
    "containers": [_CONTAINER],
    "volumes": [{**_NAMED, "configMap": _NAMED}],
}
_WORKLOAD = {"template": {"spec": _POD}}
_REQUIREMENTS = [{"key": _scalar, "operator": _scalar, "values": _scalars}]
_NODES = {
    "requirements": _REQUIREMENTS,
    "taints": [{"key": _scalar, "value": _scalar, "effect": _scalar}],
}
_SCHEDULING = {
    "nodeSelector": _labels,
    "tolerations": [
        {"key": _scalar, "operator": _scalar, "value": _scalar, "effect": _scalar, "tolerationSeconds": _scalar}
    ],
}
_SPECS: dict[str, Any] = {
    "ClusterPolicy": {"devicePlugin": {"enabled": _scalar, "config": {"name": _scalar, "default": _scalar}}},
    "DaemonSet": _WORKLOAD,
    "DeviceConfig": {"devicePlugin": {"enableDevicePlugin": _scalar}, "draDriver": {"enable": _scalar}},
    "Deployment": _WORKLOAD,
    "GpuDevicePlugin": {"sharedDevNum": _scalar, "nodeSelector": _labels},
    "NicClusterPolicy": {"sriovDevicePlugin": {}},
    "NodeOverlay": {"requirements": _REQUIREMENTS, "capacity": _labels},
    "NodePool": {"template": {"metadata": {"labels": _labels}, "spec": _NODES}},
    "SriovOperatorConfig": {"featureGates": {"dynamicResourceAllocation": _scalar}},
}


def outline(obj: Object) -> Object:
    head: dict[str, Any] = {"apiVersion": _scalar, "kind": _scalar, "metadata": {"namespace": _scalar, "name": _scalar}}
    if obj.get("kind") == "RuntimeClass":  # its fields are in no spec
        head |= {"handler": _scalar, "scheduling": _SCHEDULING}
    if obj.get("kind") == "GPUCluster":
        head |= {"status": {"state": _scalar}}
    outlined: Object = _keep(obj, {**head, "data": _configurations, "spec": _SPECS.get(str(obj.get("kind")), {})})
    return outlined


def _keep(value: Any, shape: Any) -> Any:
    if isinstance(shape, dict):
        obj = mapping(value)
        return {name: _keep(obj[name], part) for name, part in shape.items() if name in obj}
    if isinstance(shape, list):
        return [_keep(item, shape[0]) for item in items({"": value}, "")]
    return shape(value)
