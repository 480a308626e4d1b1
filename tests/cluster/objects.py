"""Small objects for the tests of cluster/ and runtime/."""

from typing import Any

from dra.objects.claim import ResourceClaim
from dra.wire import convert

FINALIZER = "resource.kubernetes.io/delete-protection"


def config_map(name: str = "", **fields: Any) -> dict[str, Any]:
    meta = {"name": name} if name else {"generateName": "thing-"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta | fields.pop("metadata", {}), **fields}


def claim(name: str = "", **fields: Any) -> dict[str, Any]:
    meta = {"name": name} if name else {"generateName": "claim-"}
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta | fields.pop("metadata", {}),
        "spec": {"devices": {"requests": [request]}},
        **fields,
    }


def versioned_claim(name: str, version: int) -> ResourceClaim:
    """Return a typed claim with this resourceVersion, and a different uid for each version."""
    meta = {"namespace": "ns", "resourceVersion": str(version), "uid": f"{name}-{version}"}
    return convert(claim(name, metadata=meta), ResourceClaim)


def encoded_item(name: str, spec: bytes = b"{}", version: str = "5") -> bytes:
    """Return the JSON of an object as an API server sends it. The spec may be any bytes."""
    meta = f'{{"name":"{name}","namespace":"default","resourceVersion":"{version}"}}'.encode()
    return b'{"apiVersion":"v1","metadata":' + meta + b',"spec":' + spec + b"}"


def template(name: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"metadata": metadata, "spec": claim("x")["spec"]},
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    """Return a pod that no scheduler of a real cluster binds."""
    meta = {"name": name} | spec.pop("metadata", {})
    containers = [{"name": "main", "image": "none.example.com/none"}]
    body = {"containers": containers, "schedulerName": "no-such-scheduler", "terminationGracePeriodSeconds": 0} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


def pod_with_claim(name: str, entry: str = "gpu", source: str = "t", **spec: Any) -> dict[str, Any]:
    """Return a pod whose container uses a claim from a ResourceClaimTemplate."""
    claims = [{"name": entry, "resourceClaimTemplateName": source}]
    containers = [{"name": "main", "image": "i", "resources": {"claims": [{"name": entry}]}}]
    return pod(name, resourceClaims=claims, containers=containers, **spec)


def allocation(node: str = "") -> dict[str, Any]:
    device = {"request": "gpu", "driver": "gpu.example.com", "pool": "p", "device": "gpu-0"}
    claim_allocation: dict[str, Any] = {"devices": {"results": [device]}, "allocationTimestamp": "2026-01-01T00:00:00Z"}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        claim_allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return claim_allocation


def owned_by(owner: Any, **reference_fields: Any) -> dict[str, Any]:
    """Return metadata with an ownerReference to this typed object."""
    reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.metadata.name}
    return {"ownerReferences": [reference | {"uid": owner.metadata.uid} | reference_fields]}
