"""Findings about pods that request devices: those that controllers cannot create, and why others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator.reports import unserved_resources
from analysis.autoscalers import autoscaler_findings
from analysis.broken_parts import find_cause
from analysis.doctor.observed import MAX_NAMED
from analysis.explain import Step, facts_of, first_reasons, half_placed_group
from analysis.refused_pods import FAILED_CREATE, OUR_DOMAIN_SUFFIX, QUOTED, find_refused_pods
from cluster.objects import Event
from dra.codes import CODES, Severity
from dra.finding import Finding, make_finding
from dra.objects import claim_keys
from dra.raw import moment
from dra.texts import list_first
from dra.wire import encode
from webhook.refusals import LACKING, codes_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.doctor.observed import DoctorInput
    from analysis.explain import Facts, PodRule
    from dra.reason import Reason

MAX_SEARCHED = 200  # different pods for which nodes are searched, each in tens of milliseconds


def not_created(observed: DoctorInput) -> Iterator[Finding]:
    """Pods with devices that their controllers cannot create, because something other than drawbridge refuses them."""
    yield from find_refused_pods(observed.reading)


def refused_by_webhook(observed: DoctorInput) -> Iterator[Finding]:
    """Refusals of pods by the webhook for what the cluster lacks, from events about the pods' controllers; each reason once."""
    event_of_reason: dict[str, Event] = {}
    for event in observed.reading.typed.of_type(Event):
        reason = event.message.partition(" denied the request: ")[2]
        is_refusal = event.reason == FAILED_CREATE and OUR_DOMAIN_SUFFIX in event.message
        if is_refusal and not LACKING.isdisjoint(codes_in(reason)):
            event_of_reason.setdefault(reason, event)
    for reason, event in event_of_reason.items():
        controller = event.involved_object
        yield make_finding(
            "O102",
            f"{controller.kind}/{controller.namespace}/{controller.name}",
            reason[:QUOTED],
            basis=f"an event {FAILED_CREATE}",
        )


def without_devices(observed: DoctorInput) -> Iterator[Finding]:
    """Pods on nodes that have neither a claim nor a device plugin for a resource that a DeviceClass serves."""
    for pod in observed.reading.pods.values():
        if names := unserved_resources(pod, observed.reading.stock):
            text = f"it is on node {pod.spec.node_name} without a claim for {', '.join(names)}, and no device plugin of the node offers it"
            yield make_finding("O230", f"Pod/{pod.metadata.key}", text)


def not_scaled_for(observed: DoctorInput) -> Iterator[Finding]:
    """Autoscalers that create no node for the pods with claims that wait."""
    pods = observed.reading.pods.values()
    if any(pod.spec.resource_claims and not pod.spec.node_name and not pod.is_done for pod in pods):
        yield from autoscaler_findings(observed)


def waiting(observed: DoctorInput, rules: Sequence[PodRule], found: Sequence[Finding]) -> Iterator[Finding]:
    """Why pods wait, each reason once for a namespace; first those that can never start.

    A component of drawbridge with a finding is mended before the pods that wait for it. Of pods that request the same, one is searched a node for.
    """
    waiting_pods: dict[tuple[object, ...], tuple[Reason, list[str]]] = {}
    placing_of: dict[object, tuple[PodRule | None, tuple[Reason, ...]]] = {}
    not_searched: list[str] = []
    found_objects = {finding.object for finding in found}
    placing = [rule for rule in rules if rule.step is Step.SCHEDULED]
    others = [rule for rule in rules if rule.step is not Step.SCHEDULED]
    for key, pod in observed.reading.pods.items():
        facts = facts_of(key, observed.reading)
        if not facts.uses_devices or pod.is_done or pod.status.phase == "Running":
            continue
        rule, reasons = first_reasons(facts, others)
        if rule is None and not facts.node:
            demand = _demand_of(facts)
            if demand not in placing_of and len(placing_of) == MAX_SEARCHED:
                not_searched.append(key)
                continue
            if demand not in placing_of:
                placing_of[demand] = first_reasons(facts, placing)
            rule, reasons = placing_of[demand]
        if rule is None or not rule.codes or not _has_waited(facts, rule, observed):
            continue
        for reason in reasons:
            if not found_objects.isdisjoint(reason.causes):
                continue  # another finding is about the cause
            # Messages about one cause may differ in the names of claims.
            code = reason.code or rule.codes.partition(" ")[0]
            same = facts.namespace, code, reason.causes or reason.text, reason.remedies
            waiting_pods.setdefault(same, (replace(reason, code=code), []))[1].append(key)
    for reason, (first, *more) in sorted(waiting_pods.values(), key=_urgency):
        remedy = reason.remedy
        if cause := find_cause(reason, found):
            remedy = (
                f"first mend {cause.object} ({cause.code}: {cause.remedy}); then {remedy or CODES[reason.code].remedy}"
            )
        yield make_finding(reason.code, f"Pod/{first}", f"{reason.text}{_also(more)}", remedy)
    if not_searched:
        first, *more = not_searched
        message = f"it waits; nodes were searched only for the first {MAX_SEARCHED} different pods{_also(more)}"
        yield make_finding("O116", f"Pod/{first}", message)


def _also(pods: Sequence[str]) -> str:
    return f" (also {list_first(pods, MAX_NAMED)})" if pods else ""


def _demand_of(facts: Facts) -> object:
    """Return what decides whether a pod gets a node: it is equal for pods that wait for the same."""
    pod, claims = facts.pod, [facts.reading.stock.claims.get(key) for key in claim_keys(facts.pod)]
    specs = [
        encode(claim.spec)
        for claim in claims
        if claim is not None and claim.status.allocation is None and not claim.metadata.deletion_timestamp
    ]
    if len(specs) < len(claims):
        return pod.metadata.key
    group = half_placed_group(pod, facts.reading)
    return (
        facts.namespace,
        group,
        facts.condition("PodScheduled"),
        encode(replace(pod.spec, resource_claims=())),
        *specs,
    )


def _urgency(waits: tuple[Reason, list[str]]) -> tuple[bool, bool]:
    reason, _ = waits
    return not reason.never, CODES[reason.code].severity is Severity.INFO


def _has_waited(facts: Facts, rule: PodRule, observed: DoctorInput) -> bool:
    """Return whether a pod has waited long enough at a step for a finding: since its creation or, on a node, its last transition, if it has one."""
    if not rule.patience:
        return True
    conditions = facts.pod.status.conditions if facts.node else ()
    stamps = [moment(condition.last_transition_time) for condition in conditions]
    last = max(filter(None, stamps), default=moment(facts.pod.metadata.creation_timestamp))
    return last is not None and observed.now - last >= rule.patience
