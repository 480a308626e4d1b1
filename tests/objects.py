"""Kubernetes objects for tests: a function for each kind, which returns the object as plain JSON.

Keyword arguments have the API's names. Those in METADATA are fields of metadata, `status` is the status, all others are fields of spec.
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from cluster.objects import LimitRange, Namespace, ResourceQuota
from dra import wire
from dra.objects import (
    DeviceClass,
    DeviceQuota,
    Node,
    Pod,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)

Object = dict[str, Any]
Fields = Mapping[str, Any] | None

RESOURCE_API = "resource.k8s.io/v1"
TYPES = {
    kind.__name__: kind
    for kind in (
        *(Pod, Node, Namespace, ResourceQuota, LimitRange, DeviceQuota),
        *(DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice),
    )
}
METADATA = {
    *("namespace", "generateName", "uid", "resourceVersion", "generation", "labels", "annotations", "ownerReferences"),
    *("finalizers", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"),
}


def obj(kind: str, name: str, apiVersion: str = "v1", *, status: Fields = None, **fields: Any) -> Object:
    """An object of any kind, with these fields."""
    meta = {"name": name} | {key: value for key, value in fields.items() if key in METADATA and value}
    spec = {key: value for key, value in fields.items() if key not in METADATA}
    body: Object = {"apiVersion": apiVersion, "kind": kind, "metadata": meta}
    return body | ({"spec": spec} if spec else {}) | ({"status": status} if status else {})


def owner(kind: str, name: str, apiVersion: str = "v1", uid: str = "") -> Object:
    """An entry of `ownerReferences` for the controller of an object."""
    return {"apiVersion": apiVersion, "kind": kind, "name": name, "uid": uid or name, "controller": True}


def typed(value: Object) -> Any:
    """Return the object decoded as the type of its kind."""
    return wire.convert(value, TYPES[value["kind"]])


# ---- Pods and workloads


def container(
    name: str = "main", limits: Fields = None, requests: Fields = None, *, claims: Iterable[str] = (), **fields: Any
) -> Object:
    """A container; `claims` are names of the pod's `resourceClaims`."""
    resources: Object = {
        key: dict(amounts) for key, amounts in (("limits", limits), ("requests", requests)) if amounts is not None
    }
    if claim_names := [{"name": claim} for claim in claims]:
        resources["claims"] = claim_names
    return {"name": name, "image": "example", "resources": resources, **fields}


def claim_entries(*names: str) -> list[Object]:
    """The `resourceClaims` of a pod that uses these ResourceClaims."""
    return [{"name": name, "resourceClaimName": name} for name in names]


def template_entries(*names: str) -> list[Object]:
    """The `resourceClaims` of a pod that gets claims of these ResourceClaimTemplates."""
    return [{"name": name, "resourceClaimTemplateName": name} for name in names]


def pod(
    name: str = "p",
    *claims: str,
    namespace: str = "default",
    limits: Fields = None,
    requests: Fields = None,
    phase: str = "",
    status: Fields = None,
    **fields: Any,
) -> Object:
    """A pod that uses these ResourceClaims. `limits` and `requests` are those of its only container."""
    spec = {"containers": [container(limits=limits, requests=requests)]}
    if claims:
        spec["resourceClaims"] = claim_entries(*claims)
    state = ({"phase": phase} if phase else {}) | dict(status or {})
    return obj("Pod", name, namespace=namespace, status=state, **spec | fields)


def workload(kind: str, name: str, pod_spec: Object, apiVersion: str = "apps/v1", *, labels: Fields = None, **fields: Any) -> Object:  # fmt: skip
    """A workload whose pods have these labels and this spec."""
    template = {"metadata": {"labels": dict(labels)} if labels else {}, "spec": pod_spec}
    selector = {"selector": {"matchLabels": dict(labels)}} if labels else {}
    return obj(kind, name, apiVersion, **{"namespace": "default", **selector, "template": template} | fields)


# ---- Claims and devices


def exactly(
    deviceClassName: str = "gpu", *, name: str = "r", count: int = 1, memory: str = "", selector: str = "", **fields: Any
) -> Object:  # fmt: skip
    """A request for this number of devices, each with this much memory."""
    body = {"deviceClassName": deviceClassName, "allocationMode": "ExactCount", "count": count, **fields}
    if memory:
        body["capacity"] = {"requests": {"memory": memory}}
    if selector:
        body["selectors"] = [{"cel": {"expression": selector}}]
    return {"name": name, "exactly": body}


def result(device: str, *, driver: str = "gpu.example.com", pool: str = "p", request: str = "r", **fields: Any) -> Object:  # fmt: skip
    """A device in an allocation."""
    return {"request": request, "driver": driver, "pool": pool, "device": device, **fields}


def allocated(*results: Object, pods: Iterable[str] = (), node: str = "") -> Object:
    """The status of a claim with these devices, on this node, that is reserved for pods."""
    allocation: Object = {"devices": {"results": list(results)}}
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    reserved = [{"resource": "pods", "name": pod, "uid": f"pod-{pod}"} for pod in pods]
    return {"allocation": allocation} | ({"reservedFor": reserved} if reserved else {})


def claim(name: str, *requests: Object, namespace: str = "default", **fields: Any) -> Object:
    return obj("ResourceClaim", name, RESOURCE_API, namespace=namespace, **with_devices(requests, fields))


def claim_template(name: str, *requests: Object, namespace: str = "default", **fields: Any) -> Object:
    claim_body = claim(name, *requests, namespace=namespace, **fields)
    return claim_body | {"kind": "ResourceClaimTemplate", "spec": {"spec": claim_body["spec"]}}


def with_devices(requests: Iterable[Object], fields: Mapping[str, Any]) -> Object:
    """Return the spec of a claim: its requests, constraints and config under `devices`, and other fields."""
    lists = {key: list(fields[key]) for key in ("constraints", "config") if fields.get(key)}
    other_fields = {key: value for key, value in fields.items() if key not in ("constraints", "config")}
    return {"devices": {"requests": list(requests)} | lists} | other_fields


def device_class(name: str = "gpu", *expressions: str, **fields: Any) -> Object:
    """A class of the devices that match these CEL expressions."""
    selectors = {"selectors": [{"cel": {"expression": text}} for text in expressions]} if expressions else {}
    return obj("DeviceClass", name, RESOURCE_API, **selectors | fields)


def resource_slice(
    name: str,
    *devices: str | Object,
    driver: str = "gpu.example.com",
    pool: str = "p",
    generation: int = 1,
    resourceSliceCount: int = 1,
    **fields: Any,
) -> Object:
    """A slice with devices; a device that is given as a string has only this name."""
    device_list = [{"name": device} if isinstance(device, str) else device for device in devices]
    spec: Object = {"driver": driver, "pool": {"name": pool, "generation": generation, "resourceSliceCount": resourceSliceCount}}  # fmt: skip
    return obj("ResourceSlice", name, RESOURCE_API, **spec | ({"devices": device_list} if device_list else {}) | fields)


# ---- Nodes, namespaces, settings and quotas


def node(name: str = "n0", *, allocatable: Fields = None, capacity: Fields = None, status: Fields = None, **fields: Any) -> Object:  # fmt: skip
    amounts = {"allocatable": allocatable, "capacity": capacity}
    state = {key: dict(amount) for key, amount in amounts.items() if amount is not None} | dict(status or {})
    return obj("Node", name, status=state, **fields)


def namespace(name: str = "default", **metadata: Any) -> Object:
    return obj("Namespace", name, **metadata)


def config_map(name: str, namespace: str = "default", **data: str) -> Object:
    return obj("ConfigMap", name, namespace=namespace) | {"data": data}


def resource_quota(name: str, hard: Fields, namespace: str = "default", **fields: Any) -> Object:
    return obj("ResourceQuota", name, namespace=namespace, hard=dict(hard or {}), **fields)


def device_quota(name: str, hard: Fields, namespace: str = "default", **fields: Any) -> Object:
    return obj("DeviceQuota", name, "drawbridge.dev/v1alpha1", namespace=namespace, hard=dict(hard or {}), **fields)


# ---- Requests of the API server to a webhook


def admission_review(value: Any, *, operation: str = "CREATE", oldObject: Any = None, **request: Any) -> Object:
    """The review of an object. The object may be malformed, so `kind` and the other fields of the request are arguments of their own."""
    body = {"uid": str(uuid.uuid4()), "operation": operation, "object": value, "oldObject": oldObject, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}
