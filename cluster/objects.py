"""The API objects beside those of `dra/`, with only the fields that we use.

Workloads with a pod template are read raw, so that no field is lost; an informer of all workloads keeps their specs as bytes.
"""

from __future__ import annotations

from dra.objects import Condition, ObjectMeta
from dra.quantity import Quantity
from dra.wire import Json, Opaque, Wire


class NamespaceStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(Wire, frozen=True, kw_only=True):
    api_version: str = "v1"
    kind: str = "Namespace"
    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class ResourceQuotaSpec(Wire, frozen=True, kw_only=True):
    hard: dict[str, Quantity] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: Opaque | None = None


class ResourceQuotaStatus(Wire, frozen=True, kw_only=True):
    hard: dict[str, Quantity] = {}
    used: dict[str, Quantity] = {}


class ResourceQuota(Wire, frozen=True, kw_only=True):
    api_version: str = "v1"
    kind: str = "ResourceQuota"
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LimitRangeItem(Wire, frozen=True, kw_only=True):
    """The bounds and defaults of a container, a pod or a volume claim."""

    type: str = ""
    max: dict[str, Quantity] = {}
    min: dict[str, Quantity] = {}
    default: dict[str, Quantity] = {}
    default_request: dict[str, Quantity] = {}
    max_limit_request_ratio: dict[str, Quantity] = {}


class LimitRangeSpec(Wire, frozen=True, kw_only=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Wire, frozen=True, kw_only=True):
    api_version: str = "v1"
    kind: str = "LimitRange"
    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()

    @property
    def keys(self) -> frozenset[str]:
        """The resource names with a bound or default for pods and containers."""
        names: set[str] = set()
        for item in self.spec.limits:
            if item.type in ("Container", "Pod"):
                parts = (item.max, item.min, item.default, item.default_request, item.max_limit_request_ratio)
                names.update(*parts)
        return frozenset(names)


class Secret(Wire, frozen=True, kw_only=True):
    """`data` holds base64 text, as on the wire."""

    api_version: str = "v1"
    kind: str = "Secret"
    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, str] = {}


class ConfigMap(Wire, frozen=True, kw_only=True):
    api_version: str = "v1"
    kind: str = "ConfigMap"
    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class LeaseSpec(Wire, frozen=True, kw_only=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Wire, frozen=True, kw_only=True):
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class ObjectReference(Wire, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    field_path: str = ""


class EventSource(Wire, frozen=True, kw_only=True):
    component: str = ""


class EventSeries(Wire, frozen=True, kw_only=True):
    count: int = 0
    last_observed_time: str = ""


class Event(Wire, frozen=True, kw_only=True):
    """An event of core/v1; `count` grows when it repeats."""

    api_version: str = "v1"
    kind: str = "Event"
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = "Normal"
    source: EventSource = EventSource()
    first_timestamp: str = ""
    last_timestamp: str = ""
    count: int = 0
    # Writers of events.k8s.io set these fields instead of count and timestamps.
    event_time: str = ""
    series: EventSeries | None = None
    reporting_component: str = ""


class WebhookService(Wire, frozen=True, kw_only=True):
    namespace: str = ""
    name: str = ""
    path: str | None = None
    port: int | None = None


class WebhookClientConfig(Wire, frozen=True, kw_only=True):
    url: str | None = None
    service: WebhookService | None = None
    ca_bundle: str = ""


class MatchCondition(Wire, frozen=True, kw_only=True):
    name: str = ""
    expression: str = ""


class AdmissionWebhook(Wire, frozen=True, kw_only=True):
    name: str = ""
    client_config: WebhookClientConfig = WebhookClientConfig()
    failure_policy: str = ""
    match_conditions: tuple[MatchCondition, ...] = ()
    rules: tuple[Json, ...] = ()
    namespace_selector: Json = None
    object_selector: Json = None


class MutatingWebhookConfiguration(Wire, frozen=True, kw_only=True):
    api_version: str = "admissionregistration.k8s.io/v1"
    kind: str = "MutatingWebhookConfiguration"
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[AdmissionWebhook, ...] = ()


class ValidatingWebhookConfiguration(Wire, frozen=True, kw_only=True):
    api_version: str = "admissionregistration.k8s.io/v1"
    kind: str = "ValidatingWebhookConfiguration"
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[AdmissionWebhook, ...] = ()


class StoredWorkload(Wire, frozen=True, kw_only=True):
    """Any object with a pod template; its spec is decoded when needed."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Opaque | None = None

    @property
    def is_owned(self) -> bool:
        """Whether a controller created this object. Its pod template then comes from the controller's object."""
        return self.metadata.controller is not None
