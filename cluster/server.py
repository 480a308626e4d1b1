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


_ATTRIBUTE = "probe.drawbridge.dev/a"
_COUNTERS: dict[str, Json] = {"counters": {"c": {"value": "1"}}}
# By feature gate, an object of which the server keeps all fields only if the gate is on.
PROBES: Mapping[str, dict[str, Json]] = {
    gates.CAPACITY: _claim({"capacity": {"requests": {"m": "1"}}}),
    gates.DERIVED: _claim(
        {"derivedAttributes": [{"name": _ATTRIBUTE, "expression": '"x"'}]},
        {"requests": ["r"], "matchAttribute": _ATTRIBUTE},
    ),
    gates.BINDING: _slice({"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}),
    gates.COUNTERS: _slice(None, sharedCounters=[{"name": "s"} | _COUNTERS]),
    gates.GROUPS: _slice({"consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["g"]} | _COUNTERS]}),
    gates.LISTS: _slice({"attributes": {"a": {"ints": [1]}}}),
    gates.TAINTS: _slice({"taints": [{"key": "k", "effect": "NoSchedule"}]}),
    gates.NODE_RESOURCES: _slice({"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}}}}),
    gates.EXTENDED: {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": _NAME,
        "spec": {"extendedResourceName": "probe.drawbridge.dev/device"},
    },
}
