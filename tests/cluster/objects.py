"""Small objects for the tests of this room."""

from typing import Any


def config_map(name: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": name} if name else {"generateName": "thing-"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta | more.pop("metadata", {}), **more}


def claim(name: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": name} if name else {"generateName": "claim-"}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta | more.pop("metadata", {}),
        "spec": {"devices": {"requests": [request]}},
        **more,
    }


def template(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"metadata": metadata, "spec": claim("x")["spec"]},
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that no scheduler of a real cluster takes."""
    meta = {"name": name} | spec.pop("metadata", {})
    containers = [{"name": "main", "image": "none.example.com/none"}]
    body = {"containers": containers, "schedulerName": "no-such-scheduler", "terminationGracePeriodSeconds": 0} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


def allocation(node: str = "") -> dict[str, Any]:
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "gpu-0"}
    chosen: dict[str, Any] = {"devices": {"results": [result]}, "allocationTimestamp": "2026-01-01T00:00:00Z"}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        chosen["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return chosen


def owned_by(owner: Any, **more: Any) -> dict[str, Any]:
    """Metadata of something that a typed object owns."""
    reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.metadata.name}
    return {"ownerReferences": [reference | {"uid": owner.metadata.uid} | more]}
