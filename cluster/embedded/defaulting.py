"""Defaults that an API server fills in, for the kinds we know (pkg/apis/*/v1/defaults.go), on plain JSON.

Only those that somebody downstream can see: counts and modes of requests, requests from limits, operators of
tolerations, phases.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.resources import Raw

Json = Any


def fill_in_defaults(resource: str, obj: Raw, *, created: bool) -> Raw:
    """The object with its defaults filled in."""
    fill = _BY_RESOURCE.get(resource)
    return fill(obj, created) if fill else obj


def _claim(obj: Raw, created: bool) -> Raw:
    obj = {**obj, "spec": _claim_spec(obj.get("spec") or {})}
    return {**obj, "status": {}} if created else obj


def _template(obj: Raw, created: bool) -> Raw:
    del created
    outer = obj.get("spec") or {}
    return {**obj, "spec": {**outer, "spec": _claim_spec(outer.get("spec") or {})}}


def _claim_spec(spec: Raw) -> Raw:
    devices = spec.get("devices") or {}
    if not isinstance(devices.get("requests"), list):
        return spec
    return {**spec, "devices": {**devices, "requests": [_request(request) for request in devices["requests"]]}}


def _request(request: Json) -> Json:
    if not isinstance(request, dict):
        return request
    if isinstance(request.get("exactly"), dict):
        request = {**request, "exactly": _device_request(request["exactly"])}
    if isinstance(request.get("firstAvailable"), list):
        alternatives = [_device_request(one) if isinstance(one, dict) else one for one in request["firstAvailable"]]
        request = {**request, "firstAvailable": alternatives}
    return request


def _device_request(wanted: Raw) -> Raw:
    wanted = {"allocationMode": "ExactCount", **wanted}
    if wanted["allocationMode"] == "ExactCount":
        wanted = {"count": 1, **wanted}
    if isinstance(wanted.get("tolerations"), list):
        wanted["tolerations"] = [
            {"operator": "Equal"} | one if isinstance(one, dict) else one for one in wanted["tolerations"]
        ]
    return wanted


def _pod(obj: Raw, created: bool) -> Raw:
    spec: Raw = {
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
    }
    spec |= obj.get("spec") or {}
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind)
        if isinstance(containers, list):
            spec[kind] = [_container(one) if isinstance(one, dict) else one for one in containers]
    pod = {**obj, "spec": spec}
    if created:
        pod["status"] = {"phase": "Pending"}
    return pod


def _container(container: Raw) -> Raw:
    resources = container.get("resources")
    if not isinstance(resources, dict):
        return container
    limits = resources.get("limits")
    if not isinstance(limits, dict):
        return container
    asked = resources.get("requests") or {}
    requests = {**limits, **asked}
    full = {**resources, "requests": requests}
    return {**container, "resources": full}


def _namespace(obj: Raw, created: bool) -> Raw:
    if not created:
        return obj
    meta = obj["metadata"]
    labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
    return {**obj, "metadata": {**meta, "labels": labels}, "status": {"phase": "Active"}}


def _config_map(obj: Raw, created: bool) -> Raw:
    del created
    return {name: value for name, value in obj.items() if name not in ("data", "binaryData") or value}


def _secret(obj: Raw, created: bool) -> Raw:
    del created
    obj = {"type": "Opaque", **obj}
    plain: Raw = obj.pop("stringData", None) or {}
    if not plain:
        return obj
    data = dict(obj.get("data") or {})
    for name, value in plain.items():
        data[name] = b64encode(value.encode()).decode()
    return {**obj, "data": data}


_BY_RESOURCE: dict[str, Callable[[Raw, bool], Raw]] = {
    "resourceclaims.resource.k8s.io": _claim,
    "resourceclaimtemplates.resource.k8s.io": _template,
    "pods": _pod,
    "configmaps": _config_map,
    "namespaces": _namespace,
    "secrets": _secret,
}
