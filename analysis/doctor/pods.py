"""Findings about pods that request devices: those that controllers cannot create, and why others wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.broken_parts import find_cause
from analysis.doctor.observed import MAX_NAMED
from analysis.explain import facts_of, first_reasons
from analysis.refused_pods import FAILED_CREATE, OUR_DOMAIN_SUFFIX, QUOTED, find_refused_pods
from cluster.objects import Event
from dra.codes import CODES
from dra.finding import Finding, make_finding
from dra.raw import moment
from dra.texts import list_first
from webhook.state import Configuration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from analysis.doctor.observed import DoctorInput
    from analysis.explain import Facts, PodRule
    from dra.reason import Reason

_DEFAULTS = Configuration()


def not_created(observed: DoctorInput) -> Iterator[Finding]:
    """Pods with devices that their controllers cannot create, because something other than drawbridge refuses them."""
    yield from find_refused_pods(observed.reading, observed.now)


def refused_by_webhook(observed: DoctorInput) -> Iterator[Finding]:
    """Refusals of pods by the webhook that only an administrator can fix, from events about the pods' controllers; each reason once."""
    event_of_reason: dict[str, Event] = {}
    for event in observed.reading.typed.of_type(Event):
        reason = event.message.partition(" denied the request: ")[2]
        if event.reason == FAILED_CREATE and OUR_DOMAIN_SUFFIX in event.message and "administrator" in reason:
            event_of_reason.setdefault(reason, event)
    for reason, event in event_of_reason.items():
        controller = event.involved_object
        yield make_finding(
            "O102",
            f"{controller.kind}/{controller.namespace}/{controller.name}",
            reason[:QUOTED],
            basis=f"an event {FAILED_CREATE}",
        )


def waiting(observed: DoctorInput, rules: Sequence[PodRule], found: Sequence[Finding]) -> Iterator[Finding]:
    """Why pods wait that need a remedy, each reason once for a namespace; first those that can never start.

    A component of drawbridge with a finding is mended before the pods that wait for it.
    """
    waiting_pods: dict[tuple[object, ...], tuple[Reason, list[str]]] = {}
    configuration = observed.configuration or _DEFAULTS
    for key in observed.reading.pods:
        facts = facts_of(key, observed.reading, configuration)
        rule, reasons = first_reasons(facts, rules)
        if rule is None or not rule.codes or not _has_waited(facts, rule, observed):
            continue
        for reason in reasons:
            # Messages about one cause may differ in the names of claims.
            same = facts.namespace, reason.code, reason.causes or reason.text, reason.remedies
            waiting_pods.setdefault(same, (reason, []))[1].append(key)
    for reason, (first, *others) in sorted(waiting_pods.values(), key=lambda waits: not waits[0].never):
        also = f" (also {list_first(others, MAX_NAMED)})" if others else ""
        remedy = "; or ".join(reason.remedies)
        if cause := find_cause(reason, found):
            remedy = (
                f"first mend {cause.object} ({cause.code}: {cause.remedy}); then {remedy or CODES[reason.code].remedy}"
            )
        yield make_finding(reason.code, f"Pod/{first}", f"{reason.text}{also}", remedy)


def _has_waited(facts: Facts, rule: PodRule, observed: DoctorInput) -> bool:
    """Return whether a pod has waited long enough at a step for a finding: since its creation or, on a node, its last transition."""
    if not rule.patience:
        return True
    if not facts.node:
        born = moment(facts.pod.metadata.creation_timestamp)
        return born is not None and observed.now - born >= rule.patience
    stamps = [moment(condition.last_transition_time) for condition in facts.pod.status.conditions]
    last = max(filter(None, stamps), default=None)
    return last is None or observed.now - last >= rule.patience
