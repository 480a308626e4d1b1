"""How far the move from device plugins to DRA is: the result of `drawbridge survey`, by namespace and in total."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import msgspec

from allocator.pods import requested_devices
from analysis import survey
from dashboard.html import el, link, part_as_html, table, text_of_counts
from webhook import names
from webhook.dialects import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from analysis.loading import Reading
    from analysis.survey import Overview
    from dashboard.html import Html
    from dra.objects import Pod

MAX_ROWS = 100
_COMMAND = "drawbridge survey"


class NamespaceMoved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A namespace whose workloads request devices: its mode, its workloads by outcome, its pods, and how many of its pods use claims."""

    namespace: str
    mode: str
    workloads: dict[str, int]
    potential_outcomes: dict[str, int]  # workloads that the mode does not change, by their outcome in mode `enforce`
    pods: int
    pods_with_claims: int


def survey_of(reading: Reading) -> Overview:
    return survey.overview(reading, survey.SurveyScope())


def namespaces_of(overview: Overview) -> tuple[NamespaceMoved, ...]:
    """Add up a survey by namespace. The first namespace has the most pods without claims."""
    outcomes: defaultdict[str, Counter[Outcome | None]] = defaultdict(Counter)
    potential: defaultdict[str, Counter[Outcome | None]] = defaultdict(Counter)
    pods: Counter[str] = Counter()
    pods_with_claims: Counter[str] = Counter()
    for workload in overview.workloads:
        outcomes[workload.namespace][workload.outcome] += 1
        potential[workload.namespace][workload.potential_outcome] += 1
        pods[workload.namespace] += workload.pods
        pods_with_claims[workload.namespace] += workload.pods_with_claims
    rows = [
        NamespaceMoved(
            namespace=name,
            mode=overview.modes.get(name, ""),
            workloads=_by_outcome(counts),
            potential_outcomes=_by_outcome(potential[name]),
            pods=pods[name],
            pods_with_claims=pods_with_claims[name],
        )
        for name, counts in outcomes.items()
    ]
    return tuple(sorted(rows, key=lambda row: (row.pods_with_claims - row.pods, row.namespace)))


def _by_outcome(counts: Counter[Outcome | None]) -> dict[str, int]:
    return {outcome.value: counts[outcome] for outcome in Outcome if counts[outcome]}


def mechanism_of(pod: Pod) -> str:
    """Return the mechanism by which a pod has or will get its devices; "" if the pod requests no devices."""
    mechanisms: list[str] = []
    if pod.spec.resource_claims:
        mechanisms.append(
            "translated by drawbridge" if names.ORIGINAL in pod.metadata.annotations else "claims of its own"
        )
    if pod.status.extended_resource_claim_status is not None:
        mechanisms.append("a claim that the scheduler created for an extended resource")
    elif requested_devices(pod):
        mechanisms.append("device plugin" if pod.spec.node_name else "an extended resource, not scheduled yet")
    return " and ".join(mechanisms)


def mechanisms_of(pods: Iterable[Pod]) -> dict[str, int]:
    """Count by mechanism the pods that have not ended, the most frequent mechanism first."""
    return dict(
        Counter(mechanism for pod in pods if not pod.has_ended and (mechanism := mechanism_of(pod))).most_common()
    )


def page_of(overview: Overview, mechanisms: Mapping[str, int]) -> Iterator[Html]:
    """Yield the parts of a page about a survey; each table has at most MAX_ROWS rows."""
    rows = [
        (link(namespace.namespace, "namespaces", namespace.namespace), namespace.mode or "not installed", text_of_counts(namespace.workloads), text_of_counts(namespace.potential_outcomes), namespace.pods_with_claims, namespace.pods)
        for namespace in namespaces_of(overview)
    ]  # fmt: skip
    survey_report = survey.report(overview, whole=False)
    where = (", which ", el("code", _COMMAND), " lists")
    yield el("p", survey_report.summary)
    if mechanisms:
        yield el("h2", "Pods by mechanism")
        yield table(("Mechanism", "Pods"), list(mechanisms.items()))
    if rows:
        yield el("h2", "Namespaces")
        head = ("Namespace", "Mode", "Workloads", "Held back by the mode", "Pods on claims", "Pods")
        yield table(head, rows, MAX_ROWS, *where)
    yield from (part_as_html(part, MAX_ROWS, *where) for part in survey_report.parts)
    yield el("p", "The same on a terminal: ", el("code", _COMMAND), class_="soft")
