"""Computes the use of DeviceQuotas, and which objects of manifests the quotas would refuse if the objects were applied one after the other.

An object that the quotas admit counts when the next one is judged. Objects that a cluster already has are not judged: those with a uid, and
claims with an allocation. If the inventory has an object with the same name, only the additional replicas count.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from allocator.quota import FutureClaim, NewObject, PendingUsage, QuotaQuestion, future_extended_claims, report_quota
from analysis.arrivals import brings_pods, created_pods
from analysis.loading import reading_of
from cluster import resources
from cluster.patch import apply_json_patch
from dra.finding import Finding, make_finding
from dra.objects import Pod, ResourceClaim, ResourceClaimTemplateSpec, claim_spec, versions
from dra.policy import Demands, held_of_quota, quota_scope, quotas_for
from dra.raw import Object, mapping
from dra.stock import total
from dra.texts import list_first
from dra.validation import name
from dra.wire import WireError, convert
from rendering.exits import CommandFailed
from rendering.report import Rows
from webhook.admission import decide_object, future_claims_of_pod
from webhook.translate import namespace_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from allocator.quota import QuotaReport
    from analysis.loading import Reading
    from dra.objects import DeviceQuota, ResourceClaimSpec
    from dra.policy import QuotaLine
    from dra.stock import Amounts
    from rendering.report import Cell, Part
    from webhook.state import State


_TURNED_BACK, _IN_PART = "D216", "D217"
_NAMED = 5  # pods of a claim


class Foretold(NamedTuple):
    """The answers of quotas about one pod or claim of the input, or about equal pods."""

    number: int  # of the object
    path: str  # of the pod or claim in the object
    lines: tuple[QuotaLine, ...]

    @property
    def replicas(self) -> int:
        """How many equal pods there are."""
        return self.lines[0].replicas

    @property
    def passing(self) -> int:
        """How many of the equal pods the quotas would admit."""
        return min(line.replicas_left for line in self.lines)

    @property
    def crossed(self) -> list[QuotaLine]:
        return [line for line in self.lines if line.exceeded]


class _QuotaArrival(NamedTuple):
    """A pod or claim that an object creates, its path in the object, and how many there are."""

    path: str
    new: NewObject
    replicas: int = 1


def foretell(objects: Sequence[Object], inventory: Sequence[Object], state: State) -> list[Foretold]:
    """Return what each object would add to the quotas in `objects` and `inventory`, in the order of the objects."""
    if not any(obj.get("kind") == "DeviceQuota" for obj in (*objects, *inventory)):
        return []
    existing = [obj for obj in objects if not _requests_devices(obj)]
    reading = reading_of([*inventory, *existing], state.features)
    return foretell_in(reading, objects, {name(obj): obj for obj in inventory}, state)


def foretell_in(
    reading: Reading, objects: Sequence[Object], existing: Mapping[str, Object], state: State
) -> list[Foretold]:
    """Return what each object would add to the quotas of a reading, in the order of the objects.

    A workload in `existing`, the existing objects by name, adds only its new replicas.
    """
    demands = Demands()
    waits = waiting_in(reading, demands)
    used_by_claims: dict[str, Amounts] = {}
    waiting: dict[str, Amounts] = {}
    for quota in reading.quotas:
        key = quota.metadata.key
        used_by_claims[key] = held_of_quota(quota, reading.stock, reading.find_pod)
        waiting[key] = waits(quota)
    question = QuotaQuestion(
        reading.quotas,
        lambda quota: used_by_claims[quota.metadata.key],
        lambda quota: waiting[quota.metadata.key],
        partial(demands.upper_bound, stock=reading.stock),
        partial(find_spec, reading),
    )
    foretold_quotas: list[Foretold] = []
    for number, obj in enumerate(objects):
        if not _requests_devices(obj):
            continue
        with suppress(WireError):  # an invalid object has findings of its own
            for path, new, replicas in _arrivals(obj, number, existing.get(name(obj)), state):
                amounts = question.requested_by(new)
                lines = question.lines_for(new, _times(amounts, replicas))
                if not lines:
                    continue
                counted = tuple(replace(line, replicas=replicas) for line in lines)
                foretold = Foretold(number, path, counted)
                foretold_quotas.append(foretold)
                passing = _times(amounts, foretold.passing)
                for quota in quotas_for(reading.quotas, (new.namespace, new.priority_class)):
                    key = quota.metadata.key
                    waiting[key] = total((waiting[key], passing))
    return foretold_quotas


def findings_of_quotas(foretold: Foretold, obj: Object) -> list[Finding]:
    """Return the findings about the parts of an object that quotas would refuse."""
    code = _IN_PART if foretold.passing else _TURNED_BACK
    return [make_finding(code, name(obj), str(line), path=f"{foretold.path}/spec") for line in foretold.crossed]


def report(reading: Reading) -> Iterator[QuotaReport]:
    """Yield a report of each quota, in the order of their names."""
    waiting = waiting_in(reading, Demands())
    claims_of: defaultdict[str, list[ResourceClaim]] = defaultdict(list)
    for _, claim in sorted(reading.stock.claims.items()):
        claims_of[claim.metadata.namespace or "default"].append(claim)
    for quota in sorted(reading.quotas, key=lambda quota: quota.metadata.key):
        namespace_claims = claims_of[quota.metadata.namespace or "default"]
        yield report_quota(quota, namespace_claims, reading.stock, reading.find_pod, waiting)


def necessary(reading: Reading, namespace: str) -> Reading:
    """Return the reading, or raise CommandFailed if the quotas or claims were not read.

    With a namespace, failures to list a kind in all namespaces do not count.
    """
    namespaced_kinds = {kind.id for kind in resources.ALL if kind.namespaced} if namespace else set()
    unread = tuple(missed for missed in reading.unread if missed.kind not in namespaced_kinds)
    reasons = {missed.kind.split()[0]: missed for missed in unread}
    for kind in (resources.DEVICE_QUOTAS.id, resources.RESOURCE_CLAIMS.id):
        if missed := reasons.get(kind):
            raise CommandFailed(
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


def waiting_in(reading: Reading, demands: Demands) -> Callable[[DeviceQuota], Amounts]:
    """Return a function that returns how much of a quota's resources pending objects wait for."""
    pending = PendingUsage()
    for claim in reading.stock.claims.values():
        pending.see_claim(claim)
    for pod in reading.pods.values():
        pending.see_pod(pod, {**future_claims_of_pod(pod), **future_extended_claims(pod, reading.stock)})
    return partial(
        pending.waiting,
        stock=reading.stock,
        demand=partial(demands.upper_bound, stock=reading.stock),
        find_pod=reading.find_pod,
        find_spec=partial(find_spec, reading),
    )


def find_spec(reading: Reading, namespace: str, name: str) -> ResourceClaimSpec | None:
    """Return the spec of the claims of a template."""
    template = reading.templates.get(f"{namespace}/{name}")
    return template.spec.spec if template is not None else None


def _times(amounts: Amounts, count: int) -> Amounts:
    return {key: amount * count for key, amount in amounts.items()}


def _requests_devices(obj: Object) -> bool:
    """Return whether an object will request devices once it is applied: new pods and workloads, and claims without an allocation."""
    if mapping(obj.get("metadata")).get("uid"):
        return False
    if obj.get("kind") == "ResourceClaim":
        return not mapping(obj.get("status")).get("allocation")
    return brings_pods(obj)


def _arrivals(obj: Object, number: int, before: Object | None, state: State) -> Iterator[_QuotaArrival]:
    """List the pods or claims with devices that an object is or creates, as the webhook would admit them.

    Raises WireError for an invalid object. `before` is the object in the cluster.
    """
    if obj.get("kind") == "ResourceClaim":
        if before is None:
            claim = convert(versions.upgrade(obj).value, ResourceClaim)
            claims = {"": FutureClaim(spec=claim_spec(claim.spec))}
            yield _QuotaArrival("", NewObject(f"{number}", namespace_of(obj), claims=claims))
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
        # The claims that will be created for the pod, including those of the translation's templates.
        pod_claims = {}
        for entry, future in future_claims_of_pod(pod).items():
            template_spec = verdict.templates.get(future.template)
            spec = claim_spec(convert(template_spec, ResourceClaimTemplateSpec).spec) if template_spec else future.spec
            pod_claims[entry] = FutureClaim(future.template, spec)
        if state.stock is not None:
            pod_claims |= future_extended_claims(pod, state.stock)
        if pod_claims:
            namespace, priority_class = quota_scope(pod)
            new = NewObject(f"{number}{created_pod.path}", namespace, "", priority_class, pod_claims)
            yield _QuotaArrival(created_pod.path, new, replicas)
