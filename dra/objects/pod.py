"""The fields of Pods, PodGroups and PodDisruptionBudgets that matter for devices. Decoding drops all other fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from dra.objects.meta import Condition, ObjectMeta
from dra.quantity import Quantity
from dra.wire import Json, Opaque, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping


class ContainerClaim(Wire, frozen=True, kw_only=True):
    name: str = ""
    request: str = ""


class ResourceRequirements(Wire, frozen=True, kw_only=True):
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}
    claims: tuple[ContainerClaim, ...] = ()


class EnvVar(Wire, frozen=True, kw_only=True):
    name: str = ""
    value: str = ""


class Container(Wire, frozen=True, kw_only=True):
    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    env: tuple[EnvVar, ...] = ()
    restart_policy: str = ""


class PodResourceClaim(Wire, frozen=True, kw_only=True):
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class Toleration(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodSchedulingGate(Wire, frozen=True, kw_only=True):
    name: str = ""


class PodSchedulingGroup(Wire, frozen=True, kw_only=True):
    pod_group_name: str = ""


class PodSpec(Wire, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Opaque | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    runtime_class_name: str | None = None
    scheduler_name: str = ""
    service_account_name: str = ""
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    tolerations: tuple[Toleration, ...] = ()
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    termination_grace_period_seconds: int = 30

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """The init containers, followed by the other containers."""
        return (*self.init_containers, *self.containers)


class PodResourceClaimStatus(Wire, frozen=True, kw_only=True):
    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Wire, frozen=True, kw_only=True):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Wire, frozen=True, kw_only=True):
    request_mappings: tuple[ContainerExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class PodStatus(Wire, frozen=True, kw_only=True):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(Wire, frozen=True, kw_only=True):
    api_version: str = "v1"
    kind: str = "Pod"
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def has_ended(self) -> bool:
        """Whether the pod's containers have terminated for good."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def is_done(self) -> bool:
        """Whether the pod no longer uses its claims: it has terminated, or was deleted before it had a node."""
        never_ran = bool(self.metadata.deletion_timestamp) and not self.spec.node_name
        return self.has_ended or never_ran


class PodGroupGang(Wire, frozen=True, kw_only=True):
    min_count: int = 0


class PodGroupSchedulingPolicy(Wire, frozen=True, kw_only=True):
    gang: PodGroupGang | None = None


class PodGroupSpec(Wire, frozen=True, kw_only=True):
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    # `{"all": {}}` or `{"single": {}}`; in v1alpha2 "PodGroup" or "Pod".
    disruption_mode: Opaque | None = None
    priority: int | None = None
    parent_composite_pod_group_name: str = ""


class PodGroup(Wire, frozen=True, kw_only=True):
    """A PodGroup of kube-scheduler (scheduling.k8s.io)."""

    api_version: str = "scheduling.k8s.io/v1beta1"
    kind: str = "PodGroup"
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()

    @property
    def min_count(self) -> int:
        """The number of pods that are placed together or not at all; 0 if the group is no gang."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else 0

    @property
    def is_disrupted_whole(self) -> bool:
        """Whether all pods of the group are evicted together or not at all."""
        mode = self.spec.disruption_mode
        value = mode.value() if mode is not None else None
        return value == "PodGroup" or (isinstance(value, dict) and value.get("all") is not None)


def pod_group_key(pod: Pod) -> str:
    """Return the PodGroup of a pod as namespace/name; "" if it has none."""
    group = pod.spec.scheduling_group
    return f"{pod.metadata.namespace or 'default'}/{group.pod_group_name}" if group is not None else ""


class TemplateSite(NamedTuple):
    """The JSON pointer to the pod template of a kind, and the field next to the template with the number of pods."""

    path: str
    size: str = ""


_IN_SPEC: Final = "/spec/template"
# The pod template of each kind, by API group and kind. A Pod is its own template.
POD_TEMPLATES: Final[Mapping[tuple[str, str], TemplateSite]] = {
    ("", "Pod"): TemplateSite(""),
    ("", "PodTemplate"): TemplateSite("/template"),
    ("", "ReplicationController"): TemplateSite(_IN_SPEC, "replicas"),
    ("apps", "DaemonSet"): TemplateSite(_IN_SPEC),
    ("apps", "Deployment"): TemplateSite(_IN_SPEC, "replicas"),
    ("apps", "ReplicaSet"): TemplateSite(_IN_SPEC, "replicas"),
    ("apps", "StatefulSet"): TemplateSite(_IN_SPEC, "replicas"),
    ("batch", "CronJob"): TemplateSite("/spec/jobTemplate/spec/template", "parallelism"),
    ("batch", "Job"): TemplateSite(_IN_SPEC, "parallelism"),
}


def template_site(document: Mapping[str, Json]) -> TemplateSite | None:
    """Return where an object has its pod template; None if its kind is not a built-in kind with pods."""
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    return POD_TEMPLATES.get((group, str(document.get("kind", ""))))


def claim_name(pod: Pod, entry: PodResourceClaim) -> str | None:
    """Return the name of the claim for an entry: "" while the claim does not exist, None if the pod needs no claim."""
    if entry.resource_claim_name:
        return entry.resource_claim_name
    for status in pod.status.resource_claim_statuses:
        if status.name == entry.name:
            return status.resource_claim_name or None
    return ""


def claim_names(pod: Pod) -> list[str]:
    """List the existing claims of a pod: the claims of its entries, then the claim for its extended resources."""
    names = [claim_name(pod, entry) for entry in pod.spec.resource_claims]
    if extended := pod.status.extended_resource_claim_status:
        names.append(extended.resource_claim_name)
    return list(dict.fromkeys(name for name in names if name))


def claim_keys(pod: Pod) -> list[str]:
    """List the existing claims of a pod as namespace/name, in the order of `claim_names`."""
    namespace = pod.metadata.namespace or "default"
    return [f"{namespace}/{name}" for name in claim_names(pod)]


class LabelSelectorRequirement(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(Wire, frozen=True, kw_only=True):
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class PodDisruptionBudgetSpec(Wire, frozen=True, kw_only=True):
    selector: LabelSelector | None = None


class PodDisruptionBudgetStatus(Wire, frozen=True, kw_only=True):
    disruptions_allowed: int = 0


class PodDisruptionBudget(Wire, frozen=True, kw_only=True):
    api_version: str = "policy/v1"
    kind: str = "PodDisruptionBudget"
    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


def protects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Whether a budget selects a pod. A budget without a selector selects no pod."""
    selector = budget.spec.selector
    if selector is None or (budget.metadata.namespace or "default") != (pod.metadata.namespace or "default"):
        return False
    labels = pod.metadata.labels
    if not selector.match_labels.items() <= labels.items():
        return False
    for requirement in selector.match_expressions:
        key, values = requirement.key, requirement.values
        met = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        # The API server admits no other operator; if one appears, the budget protects the pod.
        if not met.get(requirement.operator, True):
            return False
    return True
