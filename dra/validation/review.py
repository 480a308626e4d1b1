"""Reviews many objects: each by itself, against each other, and against the inventory.

The input is untyped JSON. The output is a list of findings for each object.
"""

from __future__ import annotations

import re
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from dra.finding import Finding, Findings, Severity, finding_at
from dra.objects import (
    POD_TEMPLATES,
    DeviceClass,
    DeviceCompatibility,
    DeviceQuota,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    template_site,
)
from dra.pointer import look_up, text_at
from dra.server import server_of
from dra.validation.fleet.domains import ComputeDomains, channel_problems, domain_problems
from dra.validation.fleet.held import held_problems
from dra.validation.fleet.peers import peer_problems
from dra.validation.fleet.pod_rules import pod_problems
from dra.validation.fleet.pools import pool_problems
from dra.validation.fleet.requests import claim_problems, class_problems, rule_problems
from dra.validation.fleet.world import World, admin_namespaces
from dra.validation.objects.judge import (
    NAMESPACED,
    OUR_GROUP,
    TYPES,
    Judged,
    findings,
    is_ours,
    read_object,
    validate_object,
    with_written_path,
)
from dra.validation.objects.own_kind_rules import limited_classes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dra.objects import DeviceClaim
    from dra.server import Server

_NEWEST: Final = server_of()
# The API version of each kind with a pod template.
_WITH_PODS: Final = {kind: f"{group}/v1".lstrip("/") for group, kind in POD_TEMPLATES}
# The API groups of these kinds, and `extensions`, in which some of them were at first.
_GROUPS: Final = ("", "apps", "batch", "extensions")
_CLUSTER_KINDS: Final = frozenset(
    {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace", "Node"}
)
_BUILT_IN: Final = {
    *(*_WITH_PODS, *TYPES, *_CLUSTER_KINDS, "ConfigMap", "Ingress", "NetworkPolicy", "PersistentVolumeClaim"),
    *("Role", "RoleBinding", "Secret", "Service", "ServiceAccount"),
}
_VERSION: Final = re.compile(r"v1|(?:(?:apps|autoscaling|batch|extensions|policy)|[\w.-]+\.k8s\.io)/v\d\w*")


def review(
    objects: Sequence[dict[str, Any]],
    inventory: Sequence[dict[str, Any]] = (),
    server: Server = _NEWEST,
) -> list[list[Finding]]:
    """Return the findings about each object. Objects of the inventory are not judged; the objects are judged against them."""
    judged: list[Judged] = []
    for value in objects:
        try:
            judged.append(validate_object(value, server.gates, server.minor) if is_ours(value) else Judged([], None))
        except Exception as failure:  # noqa: BLE001  after a bug in a check of one object, other objects are still judged
            judged.append(Judged([_bug(failure)], None))
    typed = [result.typed for result in judged]
    inventory_objects = [read_object(value) for value in inventory]
    namespaces = admin_namespaces([*objects, *inventory])
    domains = ComputeDomains(objects, inventory)
    world = World(typed, inventory_objects, domains, namespaces, whole=bool(inventory), minor=server.minor)
    # If the input has no inventory and no claim or template, a missing claim or template may exist in the cluster.
    complete = bool(inventory or world.claims or world.templates)
    # Findings about several slices of a pool, about several allocated claims, or about a ComputeDomain and its users.
    shared_findings: dict[int, list[Finding]] = {}
    located = (
        *pool_problems(world.pieces),
        *held_problems(world.holders, world.fleet),
        *domain_problems([*objects, *inventory], world.domains),
    )
    for number, problem in located:
        shared_findings.setdefault(number, []).append(problem)
    reviewed: list[list[Finding]] = []
    for number, value in enumerate(objects):
        if is_ours(value):
            problems = list(judged[number].problems)
        else:
            problems = _whole(_foreign(value, world, complete=complete))
        if typed[number] is not None:
            further_problems = [*_whole(_around(typed[number], world)), *shared_findings.get(number, ())]
            problems += [with_written_path(problem, value) for problem in further_problems]
        else:
            problems += shared_findings.get(number, ())
        own_findings: list[Finding] = []
        for finding in findings(problems, name(value)):
            # The API server drops the status of an object that is created. For its own kinds it still decodes the status.
            read_all_the_same = finding.code == "D001" and not str(value.get("apiVersion")).startswith(f"{OUR_GROUP}/")
            dropped = finding.path.startswith("/status") and not read_all_the_same
            if dropped and finding.severity is Severity.ERROR:
                finding = structs.replace(finding, severity=Severity.WARNING)  # noqa: PLW2901
            own_findings.append(finding)
        reviewed.append(own_findings)
    return reviewed


def _whole(problems: Findings) -> list[Finding]:
    """Collect problems. If a check raises, return the problems before the exception and a finding about the exception."""
    collected: list[Finding] = []
    try:
        collected.extend(problems)
    except Exception as failure:  # noqa: BLE001  the problems before the exception stay
        collected.append(_bug(failure))
    return collected


def _bug(failure: Exception) -> Finding:
    """Return a finding about an exception in a check. It names the line of drawbridge's code, so that a user can report the bug."""
    *_, frame = walk_tb(failure.__traceback__)
    code = frame[0].f_code
    where = f"{code.co_name} ({Path(code.co_filename).name}:{frame[1]})"
    return finding_at("D010", "", f"the check of the object ended with {type(failure).__name__} in {where}")


_NAMELESS = frozenset(("apiVersion", "metadata"))
# An object has at least one of these fields in addition to its metadata. A misspelt `kind` is among them.
_BODIES = frozenset(
    (
        *("spec", "status", "data", "stringData", "binaryData", "type", "rules", "subjects", "roleRef", "webhooks"),
        *("template", "items", "value", "provisioner", "handler", "subsets", "endpoints", "secrets", "Kind", "KIND"),
    )
)


def _foreign(value: dict[str, Any], world: World, *, complete: bool) -> Findings:
    """Judge an object of another API group. Unless it is a pod or a workload, only its kind and version are judged."""
    if "kind" not in value and value.keys() - _NAMELESS and value.keys().isdisjoint(_BODIES):
        return  # a file of another program with similar versions, such as OpenShift's install-config.yaml
    site = template_site(value)
    missing_keys = [key for key in ("apiVersion", "kind") if not isinstance(value.get(key), str) or not value[key]]
    misspelt = [
        f"{key} for {other}"
        for key in missing_keys
        for other in value
        if other != key and other.casefold() == key.casefold()
    ]
    if len(missing_keys) == 1 and not misspelt and not _is_built_in(value):
        return  # other programs have files with `kind` and `metadata` too
    if missing_keys:
        hint = f"write {' and '.join(misspelt)}" if misspelt and value.keys().isdisjoint(missing_keys) else ""
        yield finding_at("D008", "", f"the object has no {' and no '.join(missing_keys)}", hint)
    elif misnamed := misnamed_kind(value):
        yield misnamed
    if site is not None:
        yield from pod_problems(value, world, complete=complete)


def _is_built_in(value: dict[str, Any]) -> bool:
    """Return whether an object without one of `apiVersion` and `kind` seems to be of a kind that is part of Kubernetes."""
    return str(value.get("kind")) in _BUILT_IN or bool(_VERSION.fullmatch(str(value.get("apiVersion"))))


def _around(value: Any, world: World) -> Findings:
    match value:
        case ResourceClaim():
            yield from _claim(value.spec.devices, "/spec/devices", value.metadata.namespace, world)
        case ResourceClaimTemplate():
            yield from _claim(value.spec.spec.devices, "/spec/spec/devices", value.metadata.namespace, world)
        case DeviceClass():
            yield from class_problems(value, world)
        case DeviceCompatibility():
            yield from peer_problems(value, world)
        case DeviceTaintRule():
            yield from rule_problems(value, world)
        case DeviceQuota():
            yield from limited_classes(value, world)


def _claim(devices: DeviceClaim, path: str, namespace: str, world: World) -> Findings:
    yield from claim_problems(devices, path, namespace or "default", world)
    yield from channel_problems(devices, path, namespace or "default", world.domains)


def misnamed_kind(value: dict[str, Any]) -> Finding | None:
    """Return a finding if a built-in kind with a pod template is misspelt, or is in a version that does not have it."""
    version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str) or version.rpartition("/")[0] not in _GROUPS:
        return None
    for built_in, served_version in _WITH_PODS.items():
        if kind.casefold() not in (built_in.casefold(), f"{built_in}s".casefold()):
            continue
        if version != served_version:
            message = f"no supported API server knows {kind} in {version}"
            hint = (
                f"write apiVersion: {served_version}"
                if kind == built_in
                else f"write apiVersion: {served_version} and kind: {built_in}"
            )
            return finding_at("D004", "/apiVersion", message, hint)
        if kind != built_in:
            message = f"{version} has no kind {kind}, it is called {built_in}"
            return finding_at("D004", "/kind", message, f"write kind: {built_in}")
    return None


def name(value: dict[str, Any]) -> str:
    """Return the name of an object in reports: Kind/namespace/name, or Kind/name for a kind without namespaces."""
    kind = text_at(value, "/kind") or "Unknown"
    label = look_up(value, "/metadata/name") or f"{look_up(value, '/metadata/generateName') or ''}*"
    if kind in _CLUSTER_KINDS or (is_ours(value) and kind not in NAMESPACED):
        return f"{kind}/{label}"
    return f"{kind}/{look_up(value, '/metadata/namespace') or 'default'}/{label}"
