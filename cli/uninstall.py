"""`drawbridge uninstall`: finds the objects to remove, in order, and those that have to stay."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from analysis.installation import KINDS, LABELLED, LEASES, is_labelled, namespaces_of
from cluster import resources
from cluster.errors import NotFound
from cluster.patch import Merge, Operations
from cluster.protocol import pages
from dra.objects import Pod, ResourceClaimTemplate
from dra.texts import list_first
from dra.wire import WireError, convert
from node.audit import MARKED_ON, condition_on
from webhook import names
from webhook.claims import template_lifecycle

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cluster.patch import Patch
    from cluster.protocol import Cluster
    from cluster.resources import Raw, Resource

_WEBHOOKS = (resources.MUTATING_WEBHOOKS.raw, resources.VALIDATING_WEBHOOKS.raw)
# A namespace of ours stays if it contains an object of one of these kinds that is not ours.
_KEEPING = (
    resources.PODS.raw,
    *resources.WORKLOADS,
    resources.CONFIG_MAPS.raw,
    resources.SECRETS.raw,
    resources.RESOURCE_CLAIMS.raw,
)
_OF_KUBERNETES = ("kube-root-ca.crt",)
_NAMED = 5


class RemovalStep(NamedTuple):
    """One write: the deletion of an object, or a patch that removes our labels from an object of another owner."""

    description: str
    kind: Resource[Raw]
    name: str
    namespace: str = ""
    uid: str = ""
    patch: Patch | None = None


class UninstallPlan(NamedTuple):
    """The steps in order, and the objects that stay, each with its reason."""

    steps: tuple[RemovalStep, ...]
    left: tuple[str, ...]


async def find(cluster: Cluster, only: str = "", *, kinds: bool = False) -> UninstallPlan:
    """Find what to remove, and what stays.

    `only` is the namespace of one of several installations; with `kinds`, CRDs are removed even if objects of their kinds exist.
    """

    async def all_of(kind: Resource[Raw], labels: str = "", namespace: str | None = None) -> list[Raw]:
        objects: list[Raw] = []
        with suppress(NotFound):
            async for page in pages(cluster, kind, namespace, labels=labels):
                objects += map(kind.plain, page.items)
        return objects

    labelled = await asyncio.gather(*(all_of(kind, LABELLED) for kind in KINDS))
    ours = {kind.kind: objects for kind, objects in zip(KINDS, labelled, strict=True)}
    registered = {kind: [obj for obj in await all_of(kind) if obj["metadata"]["name"] == names.NAME] for kind in _WEBHOOKS}  # fmt: skip
    # A namespace that the administrator names counts too.
    our_namespaces = namespaces_of(chain(ours["Namespace"], ours["ClusterRoleBinding"], *registered.values())) | {only}
    left: list[str] = []
    for kind in KINDS:
        # Our Roles for device plugins' settings are in those plugins' namespaces.
        if kind.namespaced and kind.kind not in ("Role", "RoleBinding"):
            strangers = [obj for obj in ours[kind.kind] if obj["metadata"]["namespace"] not in our_namespaces]
            ours[kind.kind] = [obj for obj in ours[kind.kind] if obj["metadata"]["namespace"] in our_namespaces]
            left += [
                f"{_name(stranger)}, in a namespace without drawbridge: if it belongs to drawbridge, use --namespace {stranger['metadata']['namespace']}"
                for stranger in strangers
            ]
    homes = {obj["metadata"]["namespace"] for obj in ours["Deployment"]}
    if only and homes - {only}:
        own_steps = [
            _step(kind, obj) for kind in KINDS for obj in ours[kind.kind] if obj["metadata"].get("namespace") == only
        ]
        others = ", ".join(sorted(homes - {only}))
        shared = f"cluster-scoped objects (roles, policies, webhook configurations, CRDs), used by {others}"
        return UninstallPlan(tuple(own_steps), (shared,))
    steps: list[RemovalStep] = []
    for kind, objects in registered.items():
        steps += [_step(kind, obj) for obj in objects]
    for kind in KINDS:
        if kind.kind not in ("Namespace", "CustomResourceDefinition", "DeviceTaintRule", "ClusterRoleBinding"):
            steps += [_step(kind, obj) for obj in ours[kind.kind]]
    leases = [obj for obj in await all_of(resources.LEASES.raw) if obj["metadata"]["name"] in LEASES]
    steps += [
        _step(resources.LEASES.raw, lease) for lease in leases if lease["metadata"]["namespace"] in our_namespaces
    ]
    pods = await all_of(resources.PODS.raw)
    # The DeviceTaintRules of the bridge's fence, and those of audit agents.
    for obj in await all_of(resources.DEVICE_TAINT_RULES.raw):
        fences = obj["spec"].get("taint", {}).get("key") == names.FENCE
        if fences or MARKED_ON in (obj["metadata"].get("labels") or {}):
            steps.append(_step(resources.DEVICE_TAINT_RULES.raw, obj))
    deleted, remaining = _templates(await all_of(resources.RESOURCE_CLAIM_TEMPLATES.raw), pods)
    steps += deleted
    left += remaining
    for kind in (resources.NAMESPACES.raw, resources.NODES.raw):
        steps += _labels(kind, await all_of(kind))
    left += _stranded(pods)
    for definition in ours["CustomResourceDefinition"]:
        kind = resources.BY_ID[definition["metadata"]["name"]].raw
        used = [] if kinds else await all_of(kind)
        if used:
            keys = ["/".join(filter(None, resources.key(obj))) for obj in used]
            crd = f"CustomResourceDefinition {definition['metadata']['name']}"
            left.append(
                f"{crd}, because of {list_first(keys, _NAMED)}; --kinds removes the definition and these objects"
            )
        else:
            steps.append(_step(resources.CUSTOM_RESOURCE_DEFINITIONS, definition))
    # Remove these late: after an interruption, the next run derives from them which namespaces are drawbridge's.
    bindings = next(kind for kind in KINDS if kind.kind == "ClusterRoleBinding")
    steps += [_step(bindings, obj) for obj in ours[bindings.kind]]
    created = {obj["metadata"]["name"]: obj for obj in ours["Namespace"]}
    for name, obj in created.items():
        inside: list[str] = []
        for kind in _KEEPING:
            inside += [_name(obj) for obj in await all_of(kind, namespace=name) if not _is_ours(obj)]
        if inside:
            left.append(f"Namespace {name}, because of {list_first(inside, _NAMED)}")
        else:
            steps.append(_step(resources.NAMESPACES.raw, obj))
    for name in sorted(homes - created.keys()):
        left.append(f"Namespace {name}, which the manifests did not create: kubectl delete namespace {name}")
    return UninstallPlan(tuple(steps), tuple(left))


def _step(kind: Resource[Raw], obj: Raw) -> RemovalStep:
    meta = obj["metadata"]
    return RemovalStep(_name(obj), kind, meta["name"], meta.get("namespace", ""), meta.get("uid", ""))


def _name(obj: Raw) -> str:
    return f"{obj['kind']} {'/'.join(filter(None, resources.key(obj)))}"


def _is_ours(obj: Raw) -> bool:
    """Return whether an object is removed with the installation: it has our label, is Helm's release record, or has an owner."""
    meta = obj["metadata"]
    return (
        is_labelled(obj)
        or meta["name"] in _OF_KUBERNETES
        or meta["name"].startswith("sh.helm.release.v1.drawbridge.")
        or bool(meta.get("ownerReferences"))
    )


def _templates(templates: Iterable[Raw], pods: Iterable[Raw]) -> tuple[list[RemovalStep], list[str]]:
    """Plan the removal of our templates; a template that a pod still needs for its claim stays."""
    needed: dict[tuple[str, str], str] = {}
    for raw in pods:
        try:
            pod = convert(raw, Pod)
        except WireError:
            continue
        created_claims = {status.name for status in pod.status.resource_claim_statuses}
        awaited_templates = {
            entry.resource_claim_template_name for entry in pod.spec.resource_claims if entry.name not in created_claims
        }
        needed.update(
            {key: pod.metadata.key for key in template_lifecycle.templates_of(pod) if key[1] in awaited_templates}
        )
    steps: list[RemovalStep] = []
    remaining: list[str] = []
    for template in templates:
        try:
            if not template_lifecycle.is_ours(convert(template, ResourceClaimTemplate)):
                continue
        except WireError:
            continue
        if user := needed.get(resources.key(template)):
            remaining.append(f"{_name(template)}, until Pod {user} has its claim")
        else:
            steps.append(_step(resources.RESOURCE_CLAIM_TEMPLATES.raw, template))
    return steps, remaining


def _stranded(pods: Iterable[Raw]) -> Iterator[str]:
    """Yield the pods of users that no scheduler will place after the uninstallation."""
    for pod in pods:
        spec, status = pod.get("spec") or {}, pod.get("status") or {}
        ended = status.get("phase") in ("Succeeded", "Failed")
        if spec.get("nodeName") or ended or (_is_ours(pod) and not spec.get("resourceClaims")):
            continue
        scheduler = spec.get("schedulerName") or ""
        if scheduler.startswith(names.NAME):
            yield f"{_name(pod)}, which waits for scheduler {scheduler}: delete and recreate it"


def _labels(kind: Resource[Raw], objects: Iterable[Raw]) -> Iterator[RemovalStep]:
    """Plan the removal of our labels on namespaces and nodes, and of audit agents' conditions on nodes."""
    for obj in objects:
        labels = [key for key in obj["metadata"].get("labels") or {} if key.startswith(f"{names.DOMAIN}/")]
        name = obj["metadata"]["name"]
        if labels:
            off = Merge({"metadata": {"labels": dict.fromkeys(labels)}})
            yield RemovalStep(f"{_name(obj)}: its labels {', '.join(labels)}", kind, name, patch=off)
        condition = condition_on(obj) if kind.kind == "Node" else None
        if condition is not None:
            path = f"/status/conditions/{obj['status']['conditions'].index(condition)}"
            as_seen = {"op": "test", "path": path, "value": condition}
            yield RemovalStep(f"{_name(obj)}: its condition {condition['type']}", kind, name, patch=Operations((as_seen, {"op": "remove", "path": path})))  # fmt: skip


async def execute(cluster: Cluster, step: RemovalStep) -> bool:
    """Execute one step; return False if the object was already gone."""
    try:
        if step.patch is None:
            await cluster.delete(step.kind, step.name, step.namespace or None, uid=step.uid)
        else:
            subresource = "status" if isinstance(step.patch, Operations) else ""
            await cluster.patch(step.kind, step.name, step.patch, subresource=subresource)
    except NotFound:
        return False
    return True
