"""The version, served API groups and feature gates of an API server.

The server's metrics list all of its feature gates. Without the permission to read metrics, gates are probed: the server drops a field
whose gate is off, so a small object is created in a dry run, and the response shows whether the field survived. A gate that
could be neither read nor probed is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dra import server as gates

Json = Any
METRICS: Final = "/metrics"
_GATE = re.compile(rb'kubernetes_feature_enabled\{name="([A-Za-z0-9]{1,80})",stage="[A-Z]{0,16}"\} ([01])').fullmatch


class ServerInfo(msgspec.Struct, frozen=True):
    """An API server at one moment, with the known feature gates for devices."""

    version: str
    minor: int
    served: frozenset[str]
    gates: Mapping[str, bool] = {}

    def serves(self, api_version: str) -> bool:
        return api_version in self.served


def parse_gate(line: bytes) -> tuple[str, bool] | None:
    """Parse the metrics line of a feature gate; None for other lines, and for gates that do not concern devices."""
    parsed = _GATE(line)
    if parsed is None:
        return None
    name = parsed[1].decode("ascii")
    return (name, parsed[2] == b"1") if name in gates.GATES else None


class Probe(msgspec.Struct, frozen=True):
    """A field behind a feature gate: the object that carries it, and its path in the response."""

    gate: str
    object: dict[str, Json]
    pointer: tuple[str | int, ...]


_NAME = {"generateName": "drawbridge-probe-"}
_DRIVER = "probe.drawbridge.dev"


# Selects no node. A named node would have to exist, and to have declared the feature.
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
    Probe(gates.CAPACITY, _claim({"capacity": {"requests": {"m": "1"}}}), (*_CLAIM, "capacity")),
    Probe(
        gates.DERIVED,
        _claim(
            {"derivedAttributes": [{"name": _ATTRIBUTE, "expression": '"x"'}]},
            {"requests": ["r"], "matchAttribute": _ATTRIBUTE},
        ),
        (*_CLAIM, "derivedAttributes"),
    ),
    Probe(
        gates.BINDING,
        _slice({"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}),
        (*_DEVICE, "bindingConditions"),
    ),
    Probe(
        gates.COUNTERS,
        _slice(None, sharedCounters=[{"name": "s"} | _COUNTERS]),
        ("spec", "sharedCounters"),
    ),
    Probe(
        gates.GROUPS,
        _slice({"consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["g"]} | _COUNTERS]}),
        (*_DEVICE, "consumesCounters", 0, "compatibilityGroups"),
    ),
    Probe(gates.LISTS, _slice({"attributes": {"a": {"ints": [1]}}}), (*_DEVICE, "attributes", "a", "ints")),
    Probe(gates.TAINTS, _slice({"taints": [{"key": "k", "effect": "NoSchedule"}]}), (*_DEVICE, "taints")),
    Probe(
        gates.NODE_RESOURCES,
        _slice({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}}}),
        (*_DEVICE, "nodeAllocatableResources"),
    ),
    Probe(
        gates.EXTENDED,
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
    """Whether the gated field of a probe is still in the server's response."""
    for token in probe.pointer:
        if isinstance(token, int):
            answer = answer[token] if isinstance(answer, list) and len(answer) > token else None
        else:
            answer = answer.get(token) if isinstance(answer, dict) else None
    return answer is not None
