"""What single resources have of their own on the way into storage (kubernetes pkg/registry/<group>/<resource>/strategy.go):
what the server fills in, what of core's kinds never changes, what needs a right.

Pure, on plain JSON. What holds for every resource is in `cluster.embedded.registry`; the fields of resource.k8s.io, and
what of them may not change, are `dra.validation`'s.
"""

from __future__ import annotations

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
    """The object with what the server fills in or drops by itself."""
    prepare = _PREPARE.get(resource)
    return prepare(new, old, now) if prepare else new


def check(resource: str, new: Raw, old: Raw | None, namespace_labels: Mapping[str, str]) -> Iterator[Cause]:
    """Find what a write may not do."""
    if old is not None:
        yield from _immutable(resource, new, old)
    if resource in (CLAIMS, TEMPLATES):
        allowed = namespace_labels.get(ADMIN_ACCESS) == "true"
        if not allowed:
            yield from _admin_access(resource, new, old)


def _slice(new: Raw, old: Raw | None, now: str) -> Raw:
    del old
    spec = new.get("spec") or {}
    if not isinstance(spec.get("devices"), list):
        return new
    return {**new, "spec": {**spec, "devices": [_with_times(device, now) for device in spec["devices"]]}}


def _with_times(device: Json, now: str) -> Json:
    if not isinstance(device, dict) or not isinstance(device.get("taints"), list):
        return device
    return {
        **device,
        "taints": [{"timeAdded": now, **one} if isinstance(one, dict) else one for one in device["taints"]],
    }


def _rule(new: Raw, old: Raw | None, now: str) -> Raw:
    """A taint's time is when its effect began, unless somebody says another."""
    taint = _at(new, ("spec", "taint"))
    if not isinstance(taint, dict):
        return new
    before = _at(old, ("spec", "taint")) or {}
    dated = {"timeAdded": now, **taint}
    changed = old is not None and taint.get("effect") != before.get("effect")
    same_time = taint.get("timeAdded") == before.get("timeAdded")
    if changed and same_time:
        dated["timeAdded"] = now
    spec = dict(new["spec"])
    spec["taint"] = dated
    return {**new, "spec": spec}


def _claim(new: Raw, old: Raw | None, now: str) -> Raw:
    """Statuses of devices that are no longer allocated go; one that never was is left for validation to find."""
    del now
    status = new.get("status") or {}
    allocated_before = _ids(_at(old, _RESULTS))
    allocated_now = _ids(_at(new, _RESULTS))
    gone = allocated_before - allocated_now
    devices: list[Any] = []
    for device in status.get("devices") or ():
        ids = _ids([device])
        if ids.isdisjoint(gone):
            devices.append(device)
    status = {**status, "devices": devices}
    # What is empty is not kept: reserving for nobody is not a change.
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
    if resource == "pods":
        was = _frozen_pod(old)
        now = _frozen_pod(new)
        if not same(was, now):
            yield Cause("spec", _POD_FROZEN)
    if resource == "secrets" and old.get("immutable"):
        had = old.get("data")
        has = new.get("data")
        if not same(had, has):
            yield Cause("data", "Forbidden: field is immutable when `immutable` is set")


def _frozen_pod(pod: Raw) -> Raw:
    spec: Raw = {}
    for name, value in (pod.get("spec") or {}).items():
        if name not in _POD_MUTABLE:
            spec[name] = value
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind)
        if isinstance(containers, list):
            spec[kind] = [{**one, "image": ""} if isinstance(one, dict) else one for one in containers]
    return spec


def _admin_access(resource: str, new: Raw, old: Raw | None) -> Iterator[Cause]:
    """Administrative access is for namespaces that were marked for it: when it is asked for, and when it is given."""
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
