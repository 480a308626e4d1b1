"""The defaults that the API server fills in before it stores an object (pkg/apis/*/v1/defaults.go). Objects are plain JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cluster.resources import Raw

CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"


def fill_in_defaults(resource: str, obj: Raw, *, created: bool) -> Raw:
    fill = _DEFAULTS.get(resource)
    obj = fill(obj) if fill else obj
    return {**obj, "status": _FIRST_STATUS[resource]} if created and resource in _FIRST_STATUS else obj


def _template(obj: Raw) -> Raw:
    return _default_requests({**obj, "spec": {"spec": {}, **(obj.get("spec") or {})}}, "spec.spec")


def _default_requests(obj: Raw, spec: str) -> Raw:
    def device_request(request: Raw) -> Raw:
        request = {"allocationMode": "ExactCount", **request}
        if request["allocationMode"] == "ExactCount":
            request = {"count": 1, **request}
        return _rewritten(request, "tolerations*", lambda toleration: {"operator": "Equal", **toleration})

    for part in ("exactly", "firstAvailable*"):
        obj = _rewritten(obj, f"{spec}.devices.requests*.{part}", device_request)
    return obj


def _pod(obj: Raw) -> Raw:
    spec: Raw = {"restartPolicy": "Always", "schedulerName": "default-scheduler"} | (obj.get("spec") or {})

    def request_limits(resources: Raw) -> Raw:
        limits = resources.get("limits")
        if not isinstance(limits, dict):
            return resources
        return {**resources, "requests": {**limits, **(resources.get("requests") or {})}}

    for kind in ("containers", "initContainers"):
        spec = _rewritten(spec, f"{kind}*.resources", request_limits)
    return {**obj, "spec": spec}


def _namespace(obj: Raw) -> Raw:
    meta = obj["metadata"]
    labels = {**(meta.get("labels") or {}), "kubernetes.io/metadata.name": meta["name"]}
    return {**obj, "metadata": {**meta, "labels": labels}}


def _rewritten(value: Raw, path: str, change: Callable[[Raw], Raw]) -> Raw:
    """Change the objects at a path. `name*` in the path stands for each item of a list. Values of another shape are left unchanged."""
    if not path:
        return change(value)
    step, _, rest = path.partition(".")
    name = step.removesuffix("*")
    inner = value.get(name)
    if step != name and isinstance(inner, list):
        return {
            **value,
            name: [_rewritten(member, rest, change) if isinstance(member, dict) else member for member in inner],
        }
    if step == name and isinstance(inner, dict):
        return {**value, name: _rewritten(inner, rest, change)}
    return value


_DEFAULTS: Mapping[str, Callable[[Raw], Raw]] = {
    CLAIMS: lambda obj: _default_requests({"spec": {}, **obj}, "spec"),
    TEMPLATES: _template,
    "pods": _pod,
    "namespaces": _namespace,
    "secrets": lambda obj: {"type": "Opaque", **obj},
}
_FIRST_STATUS: Mapping[str, Raw] = {CLAIMS: {}, "pods": {"phase": "Pending"}, "namespaces": {"phase": "Active"}}
