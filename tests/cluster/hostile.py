"""Objects that must not stop a process: deep, absurd and odd in every field that a user may write."""

import copy
from collections.abc import Iterator
from typing import Any

from tests.cluster.objects import claim, config_map, pod

DEEP = "[" * 100_000 + "]" * 100_000


def nested(levels: int) -> Any:
    """A JSON value of that many levels."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def deep_json(levels: int) -> bytes:
    """Return the JSON text of `nested(levels)`, for any depth."""
    return b'{"a":' * levels + b"1" + b"}" * levels


def stored() -> dict[str, dict[str, Any]]:
    """Return malformed objects, by their defect. Each can be stored as it is."""
    wide = {f"k{number}": "v" for number in range(5000)}
    return {
        "deep record": pod("p", metadata={"annotations": {"drawbridge.dev/original": DEEP}}),
        "many annotations": pod("p", metadata={"annotations": wide}),
        "number of 4001 digits": pod("p", containers=[_container("9" * 4001)]),
        "exponent of 4000": pod("p", containers=[_container("9e4000")]),
        "not a quantity": pod("p", containers=[_container("x" * 100_000)]),
        "999 claims": pod("p", resourceClaims=[{"name": f"drawbridge-main-gpu-{n}"} for n in range(999)]),
        "claims that are a number": pod("p", resourceClaims=7),
        "containers that are a text": pod("p", containers="none"),
        "nested spec": pod("p", nested=nested(400)),
        "owner without a name": pod("p", metadata={"ownerReferences": [{"controller": True}]}),
        "requests that are a text": claim("p", spec={"devices": {"requests": "none"}}),
        "parameters of 400 levels": claim("p", spec={"devices": {"config": [{"opaque": {"parameters": nested(400)}}]}}),
        "invalid consumers": claim("p", status={"reservedFor": [{"resource": "pods"}] * 300}),
        "data that is a list": config_map("p", data=["x"]),
    }


def _container(amount: str) -> dict[str, Any]:
    return {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": amount}}}


# Values of a wrong type, as people and generators write them.
ODD: tuple[Any, ...] = (None, [], [1], "text", 7, {"a": 1}, True)
_PLACES: tuple[tuple[Any, ...], ...] = (
    ("apiVersion",),
    ("kind",),
    ("metadata",),
    *(("metadata", name) for name in ("name", "namespace", "labels", "annotations", "generateName", "ownerReferences")),
    ("spec",),
    *(("spec", name) for name in ("containers", "initContainers", "resourceClaims", "nodeSelector", "tolerations", "affinity")),
    *(("spec", name) for name in ("schedulerName", "nodeName", "resources")),
    ("spec", "containers", 0),
    *(("spec", "containers", 0, name) for name in ("name", "resources", "env", "ports")),
    ("spec", "containers", 0, "resources", "limits"),
    ("spec", "containers", 0, "resources", "limits", "nvidia.com/gpu"),
)  # fmt: skip


def odd_objects() -> Iterator[dict[str, Any]]:
    """Manifests with a value of the wrong type in one place, each place and each value once."""
    whole = pod("p", containers=[_container("1")])
    for value in ODD:
        for place in _PLACES:
            yield _with(whole, place, value)
        for version, kind in (("apps/v1", "Deployment"), ("batch/v1", "CronJob"), ("v1", "Node")):
            head = {"apiVersion": version, "kind": kind}
            template = {"metadata": value, "spec": whole["spec"]}
            yield {**head, "metadata": value, "spec": {"template": whole}}
            yield {**head, "metadata": {"name": "w"}, "spec": {"template": template}}
            yield {**head, "metadata": {"name": "w"}, "spec": value, "status": value}
        for kind in ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"):
            head = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
            yield {**head, "metadata": {"name": "r"}, "spec": value, "status": value}
            yield {**head, "metadata": value}


def _with(obj: dict[str, Any], place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(obj)
    *steps, last = place
    inner: Any = changed
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return changed
