"""The rules of single resources on the way into storage: defaults (pkg/apis/*/v1/defaults.go), and what the server fills in, what of
core's kinds never changes, what needs a right (pkg/registry/<group>/<resource>/strategy.go).

Pure, on plain JSON. What holds for every resource is in `cluster.embedded.registry`; the fields of resource.k8s.io, and
what of them may not change, are `dra.validation`'s.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any

from cluster.errors import Cause
from cluster.patch import same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from cluster.resources import Raw

Json = Any
CLAIMS = "resourceclaims.resource.k8s.io"
TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"
TAINT_RULES = "devicetaintrules.resource.k8s.io"
ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
_RESULTS = ("status", "allocation", "devices", "results")
_POD_MUTABLE = ("activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates")
_POD_FROZEN = (
    "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
    "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing "
    "tolerations), `spec.terminationGracePeriodSeconds`"
)
_NO_ADMIN = f"Forbidden: admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"


def prepare(resource: str, new: Raw, old: Raw | None, now: str) -> Raw:
    """Fill in, or drop, what the server does by itself."""
    prepare = _PREPARE.get(resource)
    return prepare(new, old, now) if prepare else new


def check(resource: str, new: Raw, old: Raw | None, namespace_labels: Mapping[str, str]) -> Iterator[Cause]:
    if old is not None:
        yield from _immutable(resource, new, old)
    if resource in (CLAIMS, TEMPLATES) and namespace_labels.get(ADMIN_ACCESS) != "true":
        yield from _admin_access(resource, new, old)


def _slice(new: Raw, old: Raw | None, now: str) -> Raw:
    del old
    spec = new.get("spec") or {}
    if not isinstance(spec.get("devices"), list):
        return new
    devices: list[Json] = []
    for device in spec["devices"]:
        taints = _at(device, ("taints",))
        if isinstance(taints, list):
            timed = [{"timeAdded": now, **one} if isinstance(one, dict) else one for one in taints]
            devices.append({**device, "taints": timed})
        else:
            devices.append(device)
    return {**new, "spec": {**spec, "devices": devices}}


def _rule(new: Raw, old: Raw | None, now: str) -> Raw:
    """A taint's time is when its effect began, unless the writer gives another."""
    taint = _at(new, ("spec", "taint"))
    if not isinstance(taint, dict):
        return new
    before = _at(old, ("spec", "taint")) or {}
    dated = {"timeAdded": now, **taint}
    changed = old is not None and taint.get("effect") != before.get("effect")
    if changed and taint.get("timeAdded") == before.get("timeAdded"):
        dated["timeAdded"] = now
    return {**new, "spec": {**new["spec"], "taint": dated}}


def _claim(new: Raw, old: Raw | None, now: str) -> Raw:
    """Statuses of devices that are no longer allocated go; one that never was is left for validation to find."""
    del now
    status = new.get("status") or {}
    gone = _ids(_at(old, _RESULTS)) - _ids(_at(new, _RESULTS))
    devices = [one for one in status.get("devices") or () if _ids([one]).isdisjoint(gone)]
    status = {**status, "devices": devices}
    # An empty member is not kept: an empty reservedFor is not a change.
    full = {name: value for name, value in status.items() if value not in (None, [], {})}
    if not full and "status" not in new:
        return new
    return {**new, "status": full}


def _ids(devices: Json) -> set[tuple[str, ...]]:
    names = ("driver", "pool", "device", "shareID")
    return {tuple(one.get(name) or "" for name in names) for one in devices or ()}


_PREPARE: Mapping[str, Callable[[Raw, Raw | None, str], Raw]] = {CLAIMS: _claim, SLICES: _slice, TAINT_RULES: _rule}


def _immutable(resource: str, new: Raw, old: Raw) -> Iterator[Cause]:
    # A pod is bound by its binding only; the API server's own write of the node's name does not come by here.
    if resource == "pods" and not same(_frozen_pod(old), _frozen_pod(new)):
        yield Cause("spec", _POD_FROZEN)
    if resource == "secrets" and old.get("immutable") and not same(old.get("data"), new.get("data")):
        yield Cause("data", "Forbidden: field is immutable when `immutable` is set")


def _frozen_pod(pod: Raw) -> Raw:
    spec: Raw = {name: value for name, value in (pod.get("spec") or {}).items() if name not in _POD_MUTABLE}
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind)
        if isinstance(containers, list):
            spec[kind] = [{**one, "image": ""} if isinstance(one, dict) else one for one in containers]
    return spec


def _admin_access(resource: str, new: Raw, old: Raw | None) -> Iterator[Cause]:
    """Administrative access, requested or allocated, needs a namespace that is labelled for it."""
    if old is None:
        path: tuple[str, ...] = ("spec", "devices", "requests")
        if resource == TEMPLATES:
            path = ("spec", *path)
        requests = _at(new, path) or ()
        where = ".".join(path)
        for index, request in enumerate(requests):
            if _at(request, ("exactly", "adminAccess")):
                yield Cause(f"{where}[{index}].adminAccess", _NO_ADMIN)
    results = _at(new, _RESULTS)
    if same(_at(old, _RESULTS), results):
        return
    where = ".".join(_RESULTS)
    for index, result in enumerate(results or ()):
        if _at(result, ("adminAccess",)):
            yield Cause(f"{where}[{index}].adminAccess", _NO_ADMIN)


def _at(value: Json, path: tuple[str, ...]) -> Json:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def fill_in_defaults(resource: str, obj: Raw, *, created: bool) -> Raw:
    fill = _DEFAULTS.get(resource)
    return fill(obj, created) if fill else obj


def _default_claim(obj: Raw, created: bool) -> Raw:
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
    requests: list[Json] = []
    for request in devices["requests"]:
        full = dict(request) if isinstance(request, dict) else request
        if isinstance(full, dict) and isinstance(full.get("exactly"), dict):
            full["exactly"] = _device_request(full["exactly"])
        if isinstance(full, dict) and isinstance(full.get("firstAvailable"), list):
            full["firstAvailable"] = [
                _device_request(one) if isinstance(one, dict) else one for one in full["firstAvailable"]
            ]
        requests.append(full)
    return {**spec, "devices": {**devices, "requests": requests}}


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
    spec: Raw = {"restartPolicy": "Always", "schedulerName": "default-scheduler"} | (obj.get("spec") or {})
    for kind in ("containers", "initContainers"):
        if not isinstance(spec.get(kind), list):
            continue
        containers: list[Json] = []
        for one in spec[kind]:
            limits = _at(one, ("resources", "limits"))
            if isinstance(limits, dict):
                resources = one["resources"]
                requests = {**limits, **(resources.get("requests") or {})}
                containers.append({**one, "resources": {**resources, "requests": requests}})
            else:
                containers.append(one)
        spec[kind] = containers
    pod = {**obj, "spec": spec}
    if created:
        pod["status"] = {"phase": "Pending"}
    return pod


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
    encoded = {name: b64encode(value.encode()).decode() for name, value in plain.items()}
    return {**obj, "data": {**(obj.get("data") or {}), **encoded}}


_DEFAULTS: dict[str, Callable[[Raw, bool], Raw]] = {
    CLAIMS: _default_claim,
    TEMPLATES: _template,
    "pods": _pod,
    "configmaps": _config_map,
    "namespaces": _namespace,
    "secrets": _secret,
}
