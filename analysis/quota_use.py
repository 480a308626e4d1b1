"""Computes the use of DeviceQuotas, and which objects of manifests exceed the quotas if the objects are applied one after the other.

An object within the quotas counts when the next one is judged. Objects that a cluster already has are not judged: those with a uid, and
claims with an allocation. If the inventory has an object with the same name, only the additional replicas count.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator.pods import plugin_may_serve, reaches, requests_by_name
from analysis.arrivals import brings_pods, created_pods
from analysis.errors import Failed
from analysis.loading import reading_of
from analysis.outlook import arriving
from analysis.report import Rows
from cluster import resources
from cluster.patch import apply_json_patch
from dra.finding import Finding, make_finding
from dra.objects import (
    POD_CLAIM_NAME,
    Pod,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceClaimTemplateSpec,
    claim_name,
    extended_claim,
    owning_pods,
    versions,
)
from dra.policy import (
    amount_of,
    concerns,
    held_of_quota,
    in_scope,
    limits_of,
    misread,
    quota_lines,
    quota_scope,
    quotas_for,
    requested_amounts,
    write_amount,
)
from dra.raw import Object, mapping
from dra.stock import amounts_of, total
from dra.texts import list_first
from dra.validation import name
from dra.wire import WireError, convert
from webhook.admission import decide_object
from webhook.translate import namespace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from analysis.loading import Reading
    from analysis.report import Cell, Part
    from dra.objects import DeviceQuota, ResourceClaimSpec
    from dra.policy import QuotaLine
    from dra.stock import Amounts, Stock
    from webhook.state import State

    FindPod = Callable[[str, str], Pod | None]
    OfQuota = Callable[[DeviceQuota], Amounts]

_TURNED_BACK, _IN_PART = "D216", "D217"
_NAMED = 5  # pods of a claim


class Foretold(NamedTuple):
    """The lines of quotas for one pod or claim of the input, or about equal pods."""

    number: int  # of the object
    path: str  # of the pod or claim in the object
    lines: tuple[QuotaLine, ...]

    @property
    def replicas(self) -> int:
        """How many equal pods there are."""
        return self.lines[0].replicas

    @property
    def passing(self) -> int:
        """How many of the equal pods the quotas have room for."""
        return min(line.replicas_left for line in self.lines)

    @property
    def crossed(self) -> list[QuotaLine]:
        return [line for line in self.lines if line.exceeded]


class _QuotaArrival(NamedTuple):
    """A pod or claim that an object creates: its path in the object, its quotas, what it requests, and how many there are."""

    path: str
    scope: tuple[str, str]
    requested: Amounts
    replicas: int = 1


class HolderOfLine(msgspec.Struct, frozen=True):
    """A claim that counts against a limit, and the pods for which the claim is reserved."""

    claim: str
    pods: tuple[str, ...]
    amount: str


class LineReport(msgspec.Struct, frozen=True):
    """One limit of a quota."""

    key: str
    hard: str
    used: str
    pending: str  # what pods and claims without devices request
    remaining: str
    holders: tuple[HolderOfLine, ...]


class QuotaReport(msgspec.Struct, frozen=True, rename="camel"):
    quota: str  # namespace/name
    lines: tuple[LineReport, ...]
    keys_without_effect: str  # which keys have no effect, and why; "" if every key has an effect


def foretell(objects: Sequence[Object], inventory: Sequence[Object], state: State) -> list[Foretold]:
    """Return what each object would add to the quotas in `objects` and `inventory`, in the order of the objects."""
    if not any(obj.get("kind") == "DeviceQuota" for obj in (*objects, *inventory)):
        return []
    existing = [obj for obj in objects if not _is_new(obj)]
    reading = reading_of([*inventory, *existing], state.features)
    return foretell_in(reading, objects, {name(obj): obj for obj in inventory}, state)


def foretell_in(
    reading: Reading, objects: Sequence[Object], existing: Mapping[str, Object], state: State
) -> list[Foretold]:
    """Return what each object would add to the quotas of a reading, in the order of the objects.

    A workload in `existing`, the existing objects by name, adds only its new replicas.
    """
    waits = waiting_in(reading)
    used_by_claims: dict[str, Amounts] = {}
    waiting: dict[str, Amounts] = {}
    for quota in reading.quotas:
        key = quota.metadata.key
        used_by_claims[key] = held_of_quota(quota, reading.stock, reading.find_pod)
        waiting[key] = waits(quota)
    foretold_quotas: list[Foretold] = []
    for number, obj in enumerate(objects):
        if not _is_new(obj):
            continue
        with suppress(WireError):  # an invalid object has findings of its own
            for path, scope, amounts, replicas in _arrivals(obj, existing.get(name(obj)), state, reading):
                lines = quota_lines(
                    reading.quotas,
                    scope,
                    _times(amounts, replicas),
                    lambda quota: used_by_claims[quota.metadata.key],
                    lambda quota: waiting[quota.metadata.key],
                )
                if not lines:
                    continue
                counted = tuple(replace(line, replicas=replicas) for line in lines)
                foretold = Foretold(number, path, counted)
                foretold_quotas.append(foretold)
                passing = _times(amounts, foretold.passing)
                for quota in quotas_for(reading.quotas, scope):
                    key = quota.metadata.key
                    waiting[key] = total((waiting[key], passing))
    return foretold_quotas


def findings_of_quotas(foretold: Foretold, obj: Object) -> list[Finding]:
    """Return the findings about the parts of an object that exceed quotas."""
    code = _IN_PART if foretold.passing else _TURNED_BACK
    return [make_finding(code, name(obj), str(line), path=f"{foretold.path}/spec") for line in foretold.crossed]


def report(reading: Reading) -> Iterator[QuotaReport]:
    """Yield a report of each quota, in the order of their names.

    Pods that no server has stored are pending with the claims that the webhook would give them.
    """
    if not reading.quotas:
        return
    arrived = arriving(reading, reading.state)
    templates = {template.metadata.key: template for template in arrived.templates}
    waiting = waiting_in(reading.with_types({Pod: arrived.pods, ResourceClaimTemplate: reading.templates | templates}))
    claims_of: defaultdict[str, list[ResourceClaim]] = defaultdict(list)
    for _, claim in sorted(reading.stock.claims.items()):
        claims_of[claim.metadata.namespace or "default"].append(claim)
    for quota in sorted(reading.quotas, key=lambda quota: quota.metadata.key):
        namespace_claims = claims_of[quota.metadata.namespace or "default"]
        yield _report_quota(quota, namespace_claims, reading.stock, reading.find_pod, waiting)


def necessary(reading: Reading, namespace: str) -> Reading:
    """Return the reading, or raise Failed if the quotas or claims were not read.

    With a namespace, failures to list a kind in all namespaces do not count.
    """
    namespaced_kinds = {kind.id for kind in resources.ALL if kind.namespaced} if namespace else set()
    unread = tuple(missed for missed in reading.unread if missed.kind not in namespaced_kinds)
    reasons = {missed.kind.split()[0]: missed for missed in unread}
    for kind in (resources.DEVICE_QUOTAS.id, resources.RESOURCE_CLAIMS.id):
        if missed := reasons.get(kind):
            raise Failed(
                f"{missed.kind} cannot be read: {missed.reason}",
                "ask for the rights of manifests/explain/role.yaml, or for the same rights in one namespace, and name it with -n (docs/configuration.md#quotas)",
            )
    return replace(reading, unread=unread)


def tables(quotas: Iterable[QuotaReport], holders: int | None = None) -> Iterator[Part]:
    """Make the tables of a report: a row for each line of each quota, with up to `holders` holders of its devices."""
    for quota in quotas:
        head = ["Line", "Hard", "Used", "Pending", "Remaining", *(["Holders"] if holders else [])]
        rows: list[list[Cell]] = []
        for line in quota.lines:
            row: list[Cell] = [line.key, line.hard, line.used, line.pending, line.remaining]
            if holders:
                texts = [
                    f"{holder.amount}: {holder.claim}{f' of {list_first(holder.pods, _NAMED)}' if holder.pods else ''}"
                    for holder in line.holders[:holders]
                ]
                remaining = len(line.holders) - len(texts)
                row.append(("", *texts, f"and {remaining:,} more" if remaining else ""))
            rows.append(row)
        yield Rows(head, rows, quota.quota)
        yield quota.keys_without_effect


def _report_quota(
    quota: DeviceQuota, claims: Iterable[ResourceClaim], stock: Stock, find_pod: FindPod, waiting: OfQuota
) -> QuotaReport:
    """Report each limit of a quota. `claims` are the claims of its namespace; the holders are listed in the order of `claims`."""
    counted_claims = [claim for claim in claims if concerns(quota, claim, find_pod)]
    amounts = [amounts_of(claim, stock.pages_of) for claim in counted_claims]
    used_by_claims = held_of_quota(quota, stock, find_pod)
    pending_amounts = waiting(quota)
    lines: list[LineReport] = []
    for limit in limits_of(quota):
        used = amount_of(limit, used_by_claims)
        pending = amount_of(limit, pending_amounts)
        holders: list[HolderOfLine] = []
        for claim, amounts_of_claim in zip(counted_claims, amounts, strict=True):
            if amount := amount_of(limit, amounts_of_claim):
                pods = tuple(consumer.name for consumer in claim.status.reserved_for if consumer.is_pod)
                holders.append(HolderOfLine(claim.metadata.key, pods, write_amount(limit.key, amount)))
        line = LineReport(
            limit.key,
            str(limit.hard),
            write_amount(limit.key, used),
            write_amount(limit.key, pending),
            write_amount(limit.key, max(0, limit.hard.nano - used - pending)),
            tuple(holders),
        )
        lines.append(line)
    return QuotaReport(quota.metadata.key, tuple(lines), misread(quota))


def waiting_in(reading: Reading) -> OfQuota:
    """Return a function that returns what the pods and claims without devices request, of those to which a quota applies."""
    stock = reading.stock
    unallocated: defaultdict[str, list[ResourceClaim]] = defaultdict(list)
    created: set[tuple[str, str | None]] = set()  # the pods' entries whose claim exists
    for claim in stock.claims.values():
        created |= {(pod.uid, claim.metadata.annotations.get(POD_CLAIM_NAME)) for pod in owning_pods(claim)}
        if claim.status.allocation is None:
            unallocated[claim.metadata.namespace or "default"].append(claim)
    by_pods: defaultdict[str, list[tuple[str, Amounts]]] = defaultdict(list)  # with the priority class of the pod
    for pod in reading.pods.values():
        if pod.is_done:
            continue
        namespace, priority_class = quota_scope(pod)
        specs = [_extended_spec(pod, stock)]
        for entry in pod.spec.resource_claims:
            template = reading.templates.get(f"{namespace}/{entry.resource_claim_template_name}")
            if template is not None and claim_name(pod, entry) == "" and (pod.metadata.uid, entry.name) not in created:
                specs.append(template.spec.spec)
        by_pods[namespace] += [(priority_class, requested_amounts(spec)) for spec in specs if spec is not None]

    def waiting(quota: DeviceQuota) -> Amounts:
        namespace = quota.metadata.namespace or "default"
        claims = [claim for claim in unallocated[namespace] if concerns(quota, claim, reading.find_pod)]
        amounts = [amounts for priority_class, amounts in by_pods[namespace] if in_scope(quota, priority_class)]
        return total([*amounts, *(requested_amounts(claim.spec) for claim in claims)])

    return waiting


def _extended_spec(pod: Pod, stock: Stock) -> ResourceClaimSpec | None:
    """Return the spec of the claim that will be created for a pod's extended resources; None if a device plugin may serve the pod."""
    if pod.spec.node_name or pod.status.extended_resource_claim_status is not None:
        return None
    serving = stock.serving()
    new_claim = extended_claim(pod, serving)
    if new_claim is None:
        return None
    requested, may_run = requests_by_name(pod, serving), reaches(pod, respect_taints=False)
    if any(plugin_may_serve(requested, node) and may_run(node) for node in stock.nodes.values()):
        return None
    return new_claim.claim.spec


def _times(amounts: Amounts, count: int) -> Amounts:
    return {key: amount * count for key, amount in amounts.items()}


def _is_new(obj: Object) -> bool:
    """Return whether an object will request devices once it is applied: new pods and workloads, and claims without an allocation."""
    if mapping(obj.get("metadata")).get("uid"):
        return False
    if obj.get("kind") == "ResourceClaim":
        return not mapping(obj.get("status")).get("allocation")
    return brings_pods(obj)


def _arrivals(obj: Object, before: Object | None, state: State, reading: Reading) -> Iterator[_QuotaArrival]:
    """List the pods or claims with devices that an object is or creates, as the webhook would translate them.

    Raises WireError for an invalid object. `before` is the object in the cluster.
    """
    if obj.get("kind") == "ResourceClaim":
        if before is None and not decide_object(obj, state).refusals:
            claim = convert(versions.upgrade(obj).value, ResourceClaim)
            yield _QuotaArrival("", (namespace_of(obj), ""), requested_amounts(claim.spec))
        return
    old_replicas = {created_pod.path: created_pod.replicas for created_pod in created_pods(before)} if before else {}
    for created_pod in created_pods(obj):
        replicas = created_pod.replicas - old_replicas.get(created_pod.path, 0)
        if replicas <= 0:
            continue
        verdict = decide_object(created_pod.pod, state)
        if verdict.refusals:
            continue
        pod = convert(apply_json_patch(created_pod.pod, verdict.operations), Pod)
        scope = quota_scope(pod)
        specs = [_extended_spec(pod, state.stock) if state.stock is not None else None]
        for entry in pod.spec.resource_claims:
            template_name = entry.resource_claim_template_name or ""
            if added := verdict.templates.get(template_name):
                specs.append(convert(added, ResourceClaimTemplateSpec).spec)
            elif template := reading.templates.get(f"{scope[0]}/{template_name}"):
                specs.append(template.spec.spec)
        if amounts := total(requested_amounts(spec) for spec in specs if spec is not None):
            yield _QuotaArrival(created_pod.path, scope, amounts, replicas)
