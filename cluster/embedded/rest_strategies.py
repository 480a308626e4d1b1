"""The rules of single resources before they are stored: defaults (pkg/apis/*/v1/defaults.go), fields set by the server, and fields
that need a permission (pkg/registry/<group>/<resource>/strategy.go).

Objects are plain JSON. The rules for every resource are in `cluster.embedded.registry`; the validation of resource.k8s.io, with its
immutable fields, is in `dra.validation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster.errors import StatusCause
from cluster.patch import equal_json
from dra.pointer import field_path, look_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cluster.resources import Raw

Json = Any
CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
TAINT_RULES = "devicetaintrules.resource.k8s.io"
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
_RESULTS = "/status/allocation/devices/results"
_NO_ADMIN = f"Forbidden: admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"


def prepare(resource: str, new: Raw, old: Raw | None, now: str) -> Raw:
    """Set and drop fields as the server does."""
    prepare = _PREPARE.get(resource)
    return prepare(new, old, now) if prepare else new


def check(resource: str, new: Raw, old: Raw | None, namespace_labels: Mapping[str, str]) -> Iterator[StatusCause]:
    if resource not in (CLAIMS, TEMPLATES) or namespace_labels.get(ADMIN_ACCESS) == "true":
        return
    # Admin access, requested or allocated, needs a namespace with the label for it.
    if old is None:
        path = "/spec/spec/devices/requests" if resource == TEMPLATES else "/spec/devices/requests"
        for index, request in enumerate(look_up(new, path) or ()):
            if look_up(request, "/exactly/adminAccess"):
                yield StatusCause(field_path(f"{path}/{index}/adminAccess"), _NO_ADMIN)
    results = look_up(new, _RESULTS)
    if equal_json(look_up(old, _RESULTS), results):
        return
    for index, result in enumerate(results or ()):
        if look_up(result, "/adminAccess"):
            yield StatusCause(field_path(f"{_RESULTS}/{index}/adminAccess"), _NO_ADMIN)


def _slice(new: Raw, old: Raw | None, now: str) -> Raw:
    del old
    return _rewritten(new, "spec.devices*.taints*", lambda taint: {"timeAdded": now, **taint})


def _rule(new: Raw, old: Raw | None, now: str) -> Raw:
    """Set timeAdded of a new taint, or of a taint whose effect changes, unless the client sets it."""
    before = look_up(old, "/spec/taint") or {}

    def date(taint: Raw) -> Raw:
        changed = old is not None and taint.get("effect") != before.get("effect")
        if changed and taint.get("timeAdded") == before.get("timeAdded"):
            return {**taint, "timeAdded": now}
        return {"timeAdded": now, **taint}

    return _rewritten(new, "spec.taint", date)


def _claim(new: Raw, old: Raw | None, now: str) -> Raw:
    """Drop the statuses of devices that are no longer allocated; validation refuses those of devices that were never allocated."""
    del now
    status = new.get("status") or {}
    removed = _ids(look_up(old, _RESULTS)) - _ids(look_up(new, _RESULTS))
    devices = [device for device in status.get("devices") or () if _ids([device]).isdisjoint(removed)]
    status = {**status, "devices": devices}
    # An empty member is not kept: an empty reservedFor is not a change.
    full = {name: value for name, value in status.items() if value not in (None, [], {})}
    if not full and "status" not in new:
        return new
    return {**new, "status": full}


def _ids(devices: Json) -> set[tuple[str, ...]]:
    names = ("driver", "pool", "device", "shareID")
    return {tuple(device.get(name) or "" for name in names) for device in devices or ()}


_PREPARE: Mapping[str, Callable[[Raw, Raw | None, str], Raw]] = {CLAIMS: _claim, SLICES: _slice, TAINT_RULES: _rule}


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


_DEFAULTS: Mapping[str, Callable[[Raw], Raw]] = {
    CLAIMS: lambda obj: _default_requests({"spec": {}, **obj}, "spec"),
    TEMPLATES: _template,
    "pods": _pod,
    "namespaces": _namespace,
    "secrets": lambda obj: {"type": "Opaque", **obj},
}
_FIRST_STATUS: Mapping[str, Raw] = {CLAIMS: {}, "pods": {"phase": "Pending"}, "namespaces": {"phase": "Active"}}
