"""The table of the API resources that we know: the path of each, and the type of its objects.

`RESOURCE_CLAIMS` reads typed claims, and `RESOURCE_CLAIMS.raw` reads them as plain JSON. `metadata` and `key` take either form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from cluster.objects import (
    ConfigMap,
    Event,
    Lease,
    LimitRange,
    MutatingWebhookConfiguration,
    Namespace,
    ResourceQuota,
    Secret,
    StoredWorkload,
    ValidatingWebhookConfiguration,
)
from cluster.outlines import outline_of_claim, outline_of_pod
from dra.objects import (
    DeviceClass,
    DeviceCompatibility,
    DeviceQuota,
    DeviceTaintRule,
    Node,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from dra.wire import builtins, convert

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
Raw = dict[str, Any]
Key = tuple[str, str]  # namespace ("" for cluster objects), name


class Resource(msgspec.Struct, Generic[T], frozen=True):
    group: str
    version: str
    plural: str
    kind: str
    type: type[T]  # noqa: A003  beside `kind`, the only fitting word
    namespaced: bool = True
    # Whether there is a status subresource. Only the subresource writes the status, and it writes nothing else.
    status: bool = False
    # Whether metadata.generation counts changes of the spec.
    generation: bool = False
    # The usual number of objects in a page.
    page: int = 500
    # The bytes of memory that a copy of the collection may take (`cluster.informers.allotment`).
    room: int = 8 << 20
    # Reduces an object for which there is no room; without an outline, nothing of the object is kept.
    outline: Callable[[T], T] | None = None
    # Reduces each object of a list before the next is decoded. If the function returns None, the object is left out of the list.
    reduce: Callable[[T], T | None] | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def id(self) -> str:
        """The identity apart from version and type: `plural.group`, as kubectl accepts it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def raw(self) -> Resource[Raw]:
        """The same resource with its objects as plain JSON."""
        return replace(cast("Resource[Raw]", self), type=Raw, outline=None, reduce=None)

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        """The path of the collection (without a name) or of the object on an API server."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        within = f"namespaces/{namespace}" if self.namespaced and namespace is not None else ""
        return "/".join(filter(None, (root, within, self.plural, name, subresource)))

    def plain(self, obj: T | Raw) -> Raw:
        """The object as a new plain JSON value, with apiVersion and kind."""
        plain: Raw = dict(obj) if isinstance(obj, dict) else builtins(obj)
        return {"apiVersion": self.api_version, "kind": self.kind} | plain


def is_plain(type_: object) -> bool:
    return type_ is dict or type_ == Raw


def metadata(obj: object) -> ObjectMeta:
    """The metadata of an object, typed or plain."""
    if isinstance(obj, dict):
        return convert(obj.get("metadata") or {}, ObjectMeta)
    meta: ObjectMeta = obj.metadata  # type: ignore[attr-defined]  # every typed API object has one
    return meta


def version_of(obj: object) -> str:
    """The resourceVersion of an object, "" if it has none."""
    if isinstance(obj, dict):
        meta = obj.get("metadata")
        return str(meta.get("resourceVersion") or "") if isinstance(meta, dict) else ""
    return metadata(obj).resource_version


def key(obj: object) -> Key:
    if isinstance(obj, dict):
        meta = obj.get("metadata")
        return (meta.get("namespace") or "", meta.get("name") or "") if isinstance(meta, dict) else ("", "")
    typed = metadata(obj)
    return typed.namespace, typed.name


def owner(obj: object) -> str:
    """The owner of an object, for the memory limit of each owner: its namespace or its node; "" for other cluster objects."""
    where, name = key(obj)
    match obj:
        case ResourceSlice():
            return obj.spec.node_name or ""
        case Node() | Namespace():
            return name
    return where


def _typed(
    group_version: str,
    plural: str,
    kind: type[T],
    *,
    namespaced: bool = True,
    status: bool = False,
    generation: bool = False,
    page: int = 500,
    room: int = 8 << 20,
    outline: Callable[[T], T] | None = None,
) -> Resource[T]:
    group, _, version = group_version.rpartition("/")
    return Resource(group, version, plural, kind.__name__, kind, namespaced, status, generation, page, room, outline)


def _untyped(group: str, plural: str, kind: str, *, namespaced: bool = True, stored: bool = True) -> Resource[Raw]:
    return Resource(group, "v1", plural, kind, Raw, namespaced, status=stored, generation=stored)


_DRA, _OURS, _WEBHOOKS = "resource.k8s.io/v1", "drawbridge.dev/v1alpha1", "admissionregistration.k8s.io/v1"
# fmt: off
# A full slice is 100 kB.
RESOURCE_SLICES = _typed(_DRA, "resourceslices", ResourceSlice, namespaced=False, generation=True, page=50, room=512 << 20)
DEVICE_CLASSES = _typed(_DRA, "deviceclasses", DeviceClass, namespaced=False, generation=True)
DEVICE_TAINT_RULES = _typed(_DRA, "devicetaintrules", DeviceTaintRule, namespaced=False, status=True, generation=True)
RESOURCE_CLAIMS = _typed(_DRA, "resourceclaims", ResourceClaim, status=True, room=48 << 20, outline=outline_of_claim)
RESOURCE_CLAIM_TEMPLATES = _typed(_DRA, "resourceclaimtemplates", ResourceClaimTemplate, room=32 << 20)

NODES = _typed("v1", "nodes", Node, namespaced=False, status=True, room=256 << 20)
NAMESPACES = _typed("v1", "namespaces", Namespace, namespaced=False, status=True)
PODS = _typed("v1", "pods", Pod, status=True, generation=True, room=64 << 20, outline=outline_of_pod)
RESOURCE_QUOTAS = _typed("v1", "resourcequotas", ResourceQuota, status=True)
LIMIT_RANGES = _typed("v1", "limitranges", LimitRange)
SECRETS = _typed("v1", "secrets", Secret)
CONFIG_MAPS = _typed("v1", "configmaps", ConfigMap)
EVENTS = _typed("v1", "events", Event)
LEASES = _typed("coordination.k8s.io/v1", "leases", Lease)
POD_DISRUPTION_BUDGETS = _typed("policy/v1", "poddisruptionbudgets", PodDisruptionBudget, status=True, generation=True)
POD_GROUPS = _typed("scheduling.k8s.io/v1beta1", "podgroups", PodGroup, status=True, generation=True)
POD_GROUPS_OF_1_36 = replace(POD_GROUPS, version="v1alpha2")
# Not stored: the server's response names the user of a token.
TOKEN_REVIEWS = _untyped("authentication.k8s.io", "tokenreviews", "TokenReview", namespaced=False, stored=False)
# Not stored: the server's response reports whether an account may do something.
SUBJECT_ACCESS_REVIEWS = _untyped(
    "authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, stored=False
)

DEPLOYMENTS = _untyped("apps", "deployments", "Deployment")
STATEFUL_SETS = _untyped("apps", "statefulsets", "StatefulSet")
DAEMON_SETS = _untyped("apps", "daemonsets", "DaemonSet")
REPLICA_SETS = _untyped("apps", "replicasets", "ReplicaSet")
JOBS = _untyped("batch", "jobs", "Job")
CRON_JOBS = _untyped("batch", "cronjobs", "CronJob")
# The kinds of Kubernetes itself with a pod template.
WORKLOADS = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, REPLICA_SETS, JOBS, CRON_JOBS)

MUTATING_WEBHOOKS = _typed(_WEBHOOKS, "mutatingwebhookconfigurations", MutatingWebhookConfiguration, namespaced=False, generation=True)
VALIDATING_WEBHOOKS = _typed(_WEBHOOKS, "validatingwebhookconfigurations", ValidatingWebhookConfiguration, namespaced=False, generation=True)
CUSTOM_RESOURCE_DEFINITIONS = _untyped("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
DEVICE_COMPATIBILITIES = _typed(_OURS, "devicecompatibilities", DeviceCompatibility, namespaced=False, status=True, generation=True)
DEVICE_QUOTAS = _typed(_OURS, "devicequotas", DeviceQuota, status=True, generation=True)
# fmt: on


def eviction_of(pod: str) -> Resource[Raw]:
    """The resource in which the eviction of a pod is created."""
    return _untyped("", f"pods/{quote(pod, safe='')}/eviction", "Eviction", stored=False)


def as_workload(resource: Resource[Raw]) -> Resource[StoredWorkload]:
    """The same resource with its objects as StoredWorkload."""
    return cast("Resource[StoredWorkload]", replace(resource, type=StoredWorkload))


ALL: tuple[Resource[Any], ...] = (
    RESOURCE_SLICES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    NODES,
    NAMESPACES,
    PODS,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
    SECRETS,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    *WORKLOADS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEVICE_COMPATIBILITIES,
    DEVICE_QUOTAS,
)
BY_ID: Mapping[str, Resource[Any]] = {resource.id: resource for resource in ALL}
BY_KIND: Mapping[tuple[str, str], Resource[Any]] = {(resource.group, resource.kind): resource for resource in ALL}


def resource_of(obj: object) -> Resource[Any] | None:
    """The resource of an object, by its group and kind; None if we do not know it."""
    if isinstance(obj, dict):
        api_version = str(obj.get("apiVersion") or "")
        kind = str(obj.get("kind") or "")
    else:
        api_version = getattr(obj, "api_version", "")
        kind = getattr(obj, "kind", "")
    group = api_version.rpartition("/")[0]
    return BY_KIND.get((group, kind))
