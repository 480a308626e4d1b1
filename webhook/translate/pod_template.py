"""Finds the pod templates of an object."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dra.objects import template_site
from dra.pointer import escape, split
from dra.raw import inside, mapping
from webhook.translate.workload_kind import group_kind, kind_of, right_kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.wire import Json

# Fields of an object that never have pod templates.
_ABOUT = frozenset(("apiVersion", "kind", "metadata", "status"))
# API groups of Kubernetes and of drawbridge. Their kinds request no devices, unless the table KINDS has the kind.
OWN_GROUP = re.compile(r"[a-z]*|.*\.k8s\.io|drawbridge\.dev")
# Kinds with copies of pod templates, from which no controller creates pods. Kueue copies the templates of a Job, with amounts that it adds.
COPIES = frozenset((("kueue.x-k8s.io", "Workload"),))
# By kind of workload: the kind of the controller between the workload and its pods.
_BETWEEN: Mapping[str, str] = {"Deployment": "ReplicaSet", "CronJob": "Job"}


def controller_kind(kind: str) -> str:
    return _BETWEEN.get(kind, kind)


def name_of(obj: Mapping[str, Json]) -> str:
    """Return the name of an object in reports: Kind/namespace/name."""
    metadata = mapping(obj.get("metadata"))
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    return f"{obj.get('kind', '')}/{metadata.get('namespace') or 'default'}/{name}"


def paths(obj: Mapping[str, Json]) -> list[str]:
    """Return the pointers to the pod templates of an object; none for a misspelt kind, and for copies."""
    site = template_site(obj)
    if site is not None:
        return [site.path] if _is_pod(resolve_pointer(obj, site.path)) else []
    if (
        right_kind(obj)
        or group_kind(obj) in COPIES
        or (kind_of(obj) is None and OWN_GROUP.fullmatch(group_kind(obj)[0]))
    ):
        return []
    return [pointer for name in sorted(bodies(obj)) for pointer in _search(obj[name], f"/{escape(name)}")]


def is_unknown_kind(obj: Mapping[str, Json]) -> bool:
    """Return whether an object's kind is neither one of Kubernetes with pods nor in the table KINDS."""
    return template_site(obj) is None and kind_of(obj) is None


def pods_in(obj: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Return the pod templates of an object; for a pod, the pod."""
    return list(pods_by_template(obj).values())


def pods_by_template(obj: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """Return the pod templates of an object by their pointers; a single one by "", as `Decision.template` names it."""
    templates = {path: mapping(resolve_pointer(obj, path)) for path in paths(obj)}
    return templates if len(templates) > 1 else dict(zip([""], templates.values(), strict=False))


def bodies(obj: Mapping[str, Json]) -> list[str]:
    """List the fields of an object that may have pod templates: mostly `spec`; objects of KAITO have others."""
    return [name for name in obj if name not in _ABOUT]


def resolve_pointer(obj: Json, path: str) -> Json:
    """Return the value at a JSON pointer; None if the object has no value there."""
    for part in split(path):
        if isinstance(obj, list):
            obj = obj[int(part)] if part.isdecimal() and int(part) < len(obj) else None
        else:
            obj = mapping(obj).get(part)
    return obj


def lost_claims(obj: Json, pruned: Json, path: str) -> str:
    """Name the field of the pod template at `path` in which claims are lost when the API server prunes an object to `pruned`; "" if none are."""
    entries, kept = (resolve_pointer(version, f"{path}/spec/resourceClaims") for version in (obj, pruned))
    if entries != kept:
        # Before Kubernetes 1.31 an entry had the name of its template under `source`.
        return "resourceClaims[].resourceClaimTemplateName" if kept else "spec.resourceClaims"
    for part in ("containers", "initContainers"):
        containers = resolve_pointer(obj, f"{path}/spec/{part}")
        for index in range(len(containers) if isinstance(containers, list) else 0):
            claims = f"{path}/spec/{part}/{index}/resources/claims"
            if resolve_pointer(obj, claims) != resolve_pointer(pruned, claims):
                return f"{part}.resources.claims"
    return ""


def _is_pod(value: Json) -> bool:
    return isinstance(inside(value, "spec").get("containers"), list)


def _search(value: Json, path: str) -> list[str]:
    """Find every value with `spec.containers`: the pod templates of RayCluster, Volcano Job, JobSet and others."""
    pointers: list[str] = []
    unvisited = [(path, value)]
    while unvisited:
        pointer, current = unvisited.pop()
        if _is_pod(current):
            pointers.append(pointer)
            continue
        below: list[tuple[str, Json]] = []
        if isinstance(current, list):
            below = [(f"{pointer}/{index}", item) for index, item in enumerate(current) if _has_members(item)]
        elif isinstance(current, dict):
            # An API server stores the members in another order than a file has them.
            below = [(f"{pointer}/{escape(k)}", current[k]) for k in sorted(current) if _has_members(current[k])]
        unvisited += reversed(below)
    return pointers


def _has_members(value: Json) -> bool:
    return bool(value) and isinstance(value, dict | list)


# The fields with the namespace into which Flux and Argo CD render a chart.
_TARGETS = {
    "HelmRelease": ("spec",),
    "Application": ("spec", "destination"),
    "ApplicationSet": ("spec", "template", "spec", "destination"),
}


def namespace_of(obj: Mapping[str, Json]) -> str:
    """Return the namespace of an object's pods."""
    kind = str(obj.get("kind"))
    parent = inside(obj, *_TARGETS[kind]) if kind in _TARGETS else {}
    target = parent.get("targetNamespace" if kind == "HelmRelease" else "namespace")
    return str(target or inside(obj, "metadata").get("namespace") or "default")
