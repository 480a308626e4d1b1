"""Malformed objects that must not stop a process: deeply nested, huge, or with a value of a wrong type in a field."""

import copy
from collections.abc import Iterator
from typing import Any

from tests.cluster.objects import claim, config_map, pod

DEEP_JSON_LIST = "[" * 100_000 + "]" * 100_000


def nested(levels: int) -> Any:
    """Return an object that contains an object, and so on for that many levels."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def deep_json(levels: int) -> bytes:
    """Return the JSON text of `nested(levels)`, for any depth."""
    return b'{"a":' * levels + b"1" + b"}" * levels


def malformed_objects() -> dict[str, dict[str, Any]]:
    """Return malformed objects, each under a description of its defect. The embedded store accepts them as they are."""
    many_annotations = {f"k{number}": "v" for number in range(5000)}
    return {
        "record of deep lists": pod("p", metadata={"annotations": {"drawbridge.dev/original": DEEP_JSON_LIST}}),
        "5000 annotations": pod("p", metadata={"annotations": many_annotations}),
        "GPU count of 4001 digits": pod("p", containers=[_gpu_container("9" * 4001)]),
        "GPU count with exponent 4000": pod("p", containers=[_gpu_container("9e4000")]),
        "GPU count that is no quantity": pod("p", containers=[_gpu_container("x" * 100_000)]),
        "999 claims": pod("p", resourceClaims=[{"name": f"drawbridge-main-gpu-{n}"} for n in range(999)]),
        "claims that are a number": pod("p", resourceClaims=7),
        "containers that are a string": pod("p", containers="none"),
        "spec of 400 levels": pod("p", nested=nested(400)),
        "owner without a name": pod("p", metadata={"ownerReferences": [{"controller": True}]}),
        "requests that are a string": claim("p", spec={"devices": {"requests": "none"}}),
        "parameters of 400 levels": claim("p", spec={"devices": {"config": [{"opaque": {"parameters": nested(400)}}]}}),
        "300 consumers without a name": claim("p", status={"reservedFor": [{"resource": "pods"}] * 300}),
        "data that is a list": config_map("p", data=["x"]),
    }


def _gpu_container(count: str) -> dict[str, Any]:
    return {"name": "main", "image": "i", "resources": {"limits": {"nvidia.com/gpu": count}}}


# Values of every JSON type. People and generators of manifests write them in fields of other types.
ODD_VALUES: tuple[Any, ...] = (None, [], [1], "text", 7, {"a": 1}, True)
_FIELD_PATHS: tuple[tuple[Any, ...], ...] = (
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
    """Yield manifests with an odd value: in each field of `_FIELD_PATHS` of a pod, and in metadata, spec and status of other kinds."""
    valid_pod = pod("p", containers=[_gpu_container("1")])
    for value in ODD_VALUES:
        for path in _FIELD_PATHS:
            yield _with_value(valid_pod, path, value)
        for version, kind in (("apps/v1", "Deployment"), ("batch/v1", "CronJob"), ("v1", "Node")):
            type_meta = {"apiVersion": version, "kind": kind}
            template = {"metadata": value, "spec": valid_pod["spec"]}
            yield {**type_meta, "metadata": value, "spec": {"template": valid_pod}}
            yield {**type_meta, "metadata": {"name": "w"}, "spec": {"template": template}}
            yield {**type_meta, "metadata": {"name": "w"}, "spec": value, "status": value}
        for kind in ("ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass"):
            type_meta = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
            yield {**type_meta, "metadata": {"name": "r"}, "spec": value, "status": value}
            yield {**type_meta, "metadata": value}


def _with_value(obj: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed_object = copy.deepcopy(obj)
    *steps, last = path
    inner: Any = changed_object
    for step in steps:
        inner = inner[step]
    inner[last] = value
    return changed_object
