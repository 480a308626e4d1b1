"""Judges one object as the API server does, which decodes it, drops fields of disabled gates, and validates it (pkg/registry/resource).

Callers pass untyped JSON of any API version. The paths of findings are pointers into that JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from dra.finding import Finding, Findings, finding_at
from dra.objects import (
    DeviceClass,
    DeviceCompatibility,
    DeviceQuota,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    versions,
)
from dra.pointer import look_up
from dra.server import CURRENT, Server
from dra.validation.fields import gates as feature_gates
from dra.validation.fields import shape
from dra.validation.fields.metadata import annotation_map, label_map, managed_fields, metadata
from dra.validation.objects.added_rules import SINCE, added_rules
from dra.validation.objects.allocation import status
from dra.validation.objects.claims import device_claim
from dra.validation.objects.classes import device_class
from dra.validation.objects.own_kind_rules import device_compatibility, device_quota
from dra.validation.objects.slices import resource_slice
from dra.validation.objects.taints import taint_rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.validation.fields.gates import Gates

TYPES: Final[dict[str, type]] = {
    "DeviceClass": DeviceClass,
    "DeviceCompatibility": DeviceCompatibility,
    "DeviceQuota": DeviceQuota,
    "DeviceTaintRule": DeviceTaintRule,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
    "ResourceSlice": ResourceSlice,
}
NAMESPACED: Final = frozenset({"DeviceQuota", "ResourceClaim", "ResourceClaimTemplate"})
# The kinds of versions that only servers with classic DRA served.
_CLASSIC: Final = {
    f"{versions.GROUP}/v1alpha1": {"PodScheduling", "ResourceClaim", "ResourceClaimTemplate", "ResourceClass"},
    f"{versions.GROUP}/v1alpha2": {
        *("PodSchedulingContext", "ResourceClaim", "ResourceClaimParameters", "ResourceClaimTemplate"),
        *("ResourceClass", "ResourceClassParameters", "ResourceSlice"),
    },
    versions.ALPHA_3: {"PodSchedulingContext"},
}
OUR_GROUP: Final = "drawbridge.dev"
OURS: Final = f"{OUR_GROUP}/v1alpha1"
# DrawbridgeConfigurations, DeviceInventories and Workloads are files; the packages that read these files judge them.
_OUR_KINDS: Final = frozenset(
    {"DeviceCompatibility", "DeviceInventory", "DeviceQuota", "DrawbridgeConfiguration", "Workload"}
)


def is_ours(value: dict[str, Any]) -> bool:
    """Return whether an object is of an API group that this module judges."""
    group = str(value.get("apiVersion")).partition("/")[0]
    return group in (versions.GROUP, OUR_GROUP)


class Judged(NamedTuple):
    """The problems of an object, and the object as its wire type; `typed` is None if the object cannot be decoded."""

    problems: list[Finding]
    typed: Any


def problems(value: dict[str, Any], gates: Gates = feature_gates.DEFAULT, minor: int = CURRENT) -> list[Finding]:
    """Return the problems of one object of resource.k8s.io or drawbridge.dev."""
    return validate_object(value, gates, minor).problems


def findings(problems: Iterable[Finding], reference: str) -> list[Finding]:
    """Return the problems with the reference as their object."""
    return [replace(problem, object=reference) for problem in problems]


def errors(value: dict[str, Any], enabled: Gates = feature_gates.DEFAULT) -> list[Finding]:
    """Return the findings because of which the API server would refuse an object; [] if it would accept the object."""
    return [problem for problem in problems(value, enabled) if problem.refuses]


def validate_object(value: dict[str, Any], gates: Gates = feature_gates.DEFAULT, minor: int = CURRENT) -> Judged:
    """Judge one object of resource.k8s.io or drawbridge.dev, and decode it."""
    kind = str(value.get("kind"))
    version = str(value.get("apiVersion"))
    problems = list(_version(kind, version, minor))
    if kind not in TYPES:
        return Judged(problems, None)
    current, unknown = versions.upgrade(value)
    for pointer in unknown:
        message = f"{version} has no field {pointer.rpartition('/')[2]!r} here"
        problems.append(finding_at("D002", pointer, message, f"write apiVersion: {versions.CURRENT}"))
    type_ = TYPES[kind]
    own_problems = shape.check(current, type_)
    typed: Any = None
    if all(problem.code != "D001" for problem in own_problems):
        stored, dropped = feature_gates.drop(kind, current, feature_gates.with_locked(gates, minor))
        by_message: dict[str, Finding] = {}
        for problem in dropped:  # each field is reported once, however many devices have it
            by_message.setdefault(problem.message, problem)
        own_problems += by_message.values()
        typed = shape.convert_checked(stored, type_)
        own_problems += _rules(typed, stored, Server(minor, gates))
        if minor >= SINCE:
            own_problems += added_rules(typed)
        if dropped:
            typed = shape.convert_checked(current, type_)
    return Judged(problems + [with_written_path(problem, value) for problem in own_problems], typed)


def read_object(value: dict[str, Any]) -> Any:
    """Convert an object of these groups, in any version, to its wire type; None if it cannot be decoded."""
    type_ = TYPES.get(str(value.get("kind")))
    if type_ is None or not is_ours(value):
        return None
    current = versions.upgrade(value).value
    if any(problem.code == "D001" for problem in shape.check(current, type_)):
        return None
    return shape.convert_checked(current, type_)


def with_written_path(problem: Finding, value: dict[str, Any]) -> Finding:
    """Convert the path of a problem of the v1 object to the path in the original object."""
    kind, version = str(value.get("kind")), str(value.get("apiVersion"))
    return replace(problem, path=versions.written_pointer(problem.path, version, kind))


def _version(kind: str, version: str, minor: int) -> Findings:
    """Report a version or kind that is outdated, or that no supported API server knows."""
    group = version.partition("/")[0]
    if group == OUR_GROUP:
        if version != OURS:
            yield finding_at("D004", "/apiVersion", f"{version} is not known", f"write {OURS}")
        elif kind not in _OUR_KINDS:
            yield finding_at("D004", "/kind", f"{OURS} has no kind {kind}", f"use {', '.join(sorted(_OUR_KINDS))}")
    elif kind in _CLASSIC.get(version, ()):
        message = f"{kind} of {version} belongs to classic DRA, which Kubernetes 1.32 removed"
        hint = "write a DeviceClass and a ResourceClaim of resource.k8s.io/v1, with selectors in CEL"
        yield finding_at("D004", "/apiVersion", message, hint)
    elif kind not in versions.SERVED.get(version, ()):
        newer = f"write apiVersion: {versions.CURRENT}" if kind in versions.SERVED[versions.CURRENT] else ""
        yield finding_at("D004", "/apiVersion", f"no supported API server knows {kind} in {version}", newer)
    elif minor < (since := versions.served_since(version, kind)):
        serving = [known for known, kinds in versions.SERVED.items() if kind in kinds]
        known = [version for version in serving if versions.served_since(version, kind) <= minor]
        hint = f"write {known[0]}" if known else f"Kubernetes 1.{minor} has no {kind}"
        yield finding_at(
            "D004",
            "/apiVersion",
            f"Kubernetes 1.{minor} does not know {kind} in {version}, which 1.{since} added",
            hint,
        )
    elif (
        version != versions.CURRENT
        and kind != "ResourcePoolStatusRequest"
        and minor >= versions.served_since(versions.CURRENT, kind)
    ):
        # Other changes that convert an old object to v1, in addition to the change of the version.
        moved = ""
        if version in (versions.BETA_1, versions.ALPHA_3) and kind in ("ResourceClaim", "ResourceClaimTemplate"):
            moved = ", and move the fields of each request below `exactly:`"
        elif version in (versions.BETA_1, versions.ALPHA_3) and kind == "ResourceSlice":
            moved = ", and move what is below `basic:` of each device one level up"
        hint = f"write apiVersion: {versions.CURRENT}{moved}"
        yield finding_at("D003", "/apiVersion", f"{version} is outdated and off by default", hint)


def _rules(typed: Any, value: dict[str, Any], server: Server) -> Findings:
    """Judge an object by the rules of its kind. `value` is the object as JSON."""
    meta, kind = typed.metadata, typed.kind
    # For a DeviceClass, the API server judges the generated name instead of generateName.
    judged = kind != "DeviceClass"
    yield from metadata(meta, "/metadata", namespaced=kind in NAMESPACED, generate_name_judged=judged)
    yield from managed_fields(look_up(value, "/metadata/managedFields"))
    if meta.namespace and kind not in NAMESPACED:
        message = f"a {kind} belongs to the whole cluster, so the namespace {meta.namespace!r} is ignored"
        yield finding_at("D009", "/metadata/namespace", message)
    match typed:
        case ResourceSlice():
            lists = look_up(value, "/spec/devices"), look_up(value, "/spec/sharedCounters")
            yield from resource_slice(typed, server.gates, both_lists=None not in lists)
        case DeviceClass():
            yield from device_class(typed, server)
        case ResourceClaim():
            yield from device_claim(typed.spec.devices, "/spec/devices", server)
            yield from status(typed)
        case ResourceClaimTemplate():
            # A template may give its claims labels and annotations, but no other metadata.
            meta, path = typed.spec.metadata, "/spec/metadata"
            yield from label_map(meta.labels, f"{path}/labels")
            yield from annotation_map(meta.annotations, f"{path}/annotations")
            for name in meta.__struct_fields__:
                if name not in ("labels", "annotations") and getattr(meta, name):
                    message = f"the metadata of a template may hold labels and annotations, not {name}"
                    yield finding_at("D107", path, message)
            yield from device_claim(typed.spec.spec.devices, "/spec/spec/devices", server)
        case DeviceTaintRule():
            yield from taint_rule(typed)
        case DeviceCompatibility():
            yield from device_compatibility(typed, server)
        case DeviceQuota():
            yield from device_quota(typed)
