"""What a server is and can do, as a value: version, API groups served, and the gates that matter to us.

A gate is not published where ordinary rights can read it, but a field behind a closed gate is dropped from what is
created. So the server is asked to create small objects in a dry run, and the answer shows what survived. None means
that this could not be found out (no right to create, say).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = Any


class Features(msgspec.Struct, frozen=True):
    """The gates of resource.k8s.io that change what may be written."""

    consumable_capacity: bool | None = None  # DRAConsumableCapacity, KEP-5075
    derived_attributes: bool | None = None  # DRADerivedAttributes
    binding_conditions: bool | None = None  # DRADeviceBindingConditions, KEP-5007
    partitionable_devices: bool | None = None  # DRAPartitionableDevices, KEP-4815
    compatibility_groups: bool | None = None  # DRADeviceCompatibilityGroups, KEP-5963
    list_attributes: bool | None = None  # DRAListTypeAttributes
    device_taints: bool | None = None  # DRADeviceTaints, KEP-5055
    extended_resources: bool | None = None  # DRAExtendedResource, KEP-5004
    node_allocatable: bool | None = None  # DRANodeAllocatableResources, KEP-5517


class Server(msgspec.Struct, frozen=True):
    """An API server at one moment."""

    version: str
    minor: int
    served: frozenset[str]
    features: Features = Features()

    def serves(self, api_version: str) -> bool:
        """Say whether an API version such as resource.k8s.io/v1 is served."""
        return api_version in self.served


class Probe(msgspec.Struct, frozen=True):
    """One gated field: the object that carries it, and where to look for it in the answer."""

    feature: str
    object: dict[str, Json]
    pointer: tuple[str | int, ...]


_NAME = {"generateName": "drawbridge-probe-"}
_DRIVER = "probe.drawbridge.dev"


# A named node would have to exist, and to have declared the feature.
_NOWHERE = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "drawbridge.dev/probe", "operator": "Exists"}]}],
}


def _claim(exactly: dict[str, Json], *constraints: dict[str, Json]) -> dict[str, Json]:
    devices: dict[str, Json] = {"requests": [{"name": "r", "exactly": {"deviceClassName": _DRIVER} | exactly}]}
    if constraints:
        devices["constraints"] = list(constraints)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {**_NAME, "namespace": "default"},
        "spec": {"devices": devices},
    }


def _slice(device: dict[str, Json] | None, **more: Json) -> dict[str, Json]:
    spec: dict[str, Json] = {
        "driver": _DRIVER,
        "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
        "nodeSelector": _NOWHERE,
    }
    spec |= more
    if device is not None:
        spec["devices"] = [{"name": "d", **device}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": _NAME,
        "spec": spec,
    }


_CLAIM = ("spec", "devices", "requests", 0, "exactly")
_DEVICE = ("spec", "devices", 0)
_ATTRIBUTE = "probe.drawbridge.dev/a"
_COUNTERS: dict[str, Json] = {"counters": {"c": {"value": "1"}}}
PROBES = (
    Probe("consumable_capacity", _claim({"capacity": {"requests": {"m": "1"}}}), (*_CLAIM, "capacity")),
    Probe(
        "derived_attributes",
        _claim(
            {"derivedAttributes": [{"name": _ATTRIBUTE, "expression": '"x"'}]},
            {"requests": ["r"], "matchAttribute": _ATTRIBUTE},
        ),
        (*_CLAIM, "derivedAttributes"),
    ),
    Probe(
        "binding_conditions",
        _slice({"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}),
        (*_DEVICE, "bindingConditions"),
    ),
    Probe(
        "partitionable_devices",
        _slice(None, sharedCounters=[{"name": "s"} | _COUNTERS]),
        ("spec", "sharedCounters"),
    ),
    Probe(
        "compatibility_groups",
        _slice({"consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["g"]} | _COUNTERS]}),
        (*_DEVICE, "consumesCounters", 0, "compatibilityGroups"),
    ),
    Probe("list_attributes", _slice({"attributes": {"a": {"ints": [1]}}}), (*_DEVICE, "attributes", "a", "ints")),
    Probe("device_taints", _slice({"taints": [{"key": "k", "effect": "NoSchedule"}]}), (*_DEVICE, "taints")),
    Probe(
        "node_allocatable",
        _slice({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}}}),
        (*_DEVICE, "nodeAllocatableResources"),
    ),
    Probe(
        "extended_resources",
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": _NAME,
            "spec": {"extendedResourceName": "probe.drawbridge.dev/device"},
        },
        ("spec", "extendedResourceName"),
    ),
)


def survives(probe: Probe, answer: Json) -> bool:
    """Say whether the gated field of a probe is still in the server's answer."""
    for token in probe.pointer:
        if isinstance(token, int):
            answer = answer[token] if isinstance(answer, list) and len(answer) > token else None
        else:
            answer = answer.get(token) if isinstance(answer, dict) else None
    return answer is not None


def features(answers: Mapping[str, bool | None]) -> Features:
    """The features that a round of probes found."""
    return msgspec.convert(dict(answers), Features)
