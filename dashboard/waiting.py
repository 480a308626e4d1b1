"""Pods that wait: who has to act next, why each pod waits, and what would help, found by the functions of `drawbridge explain`.

Pods with equal requests share one search. The steps of all searches are limited, so the rows do not depend on the speed of the machine; pods
beyond the limit are listed with the message of their scheduler.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from allocator.pods import requested_devices
from analysis import explain
from analysis.loading import inside, items
from analysis.outlook import queue_of
from dra.codes import CODES, Severity
from dra.objects import claim_name
from dra.step_limits import REASONS
from dra.wire import encode
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from analysis.explain import PodStory
    from analysis.loading import Reading
    from dra.objects import Pod

_SEARCH: Final = 15_000  # steps for the reason of a pod, besides those that are counted
_NODE: Final = 20  # further steps for each node
_SEVERITIES: Final = (*Severity, "")  # the worst first
# A reading caches results that several pods need, and is not thread-safe.
_READING_LOCK: Final = threading.Lock()
# Fields that decide on which nodes a pod can run, and that the type Pod does not have.
_PLACEMENT_FIELDS: Final = ("affinity", "topologySpreadConstraints", "volumes")


class Waiting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that requests devices and has no node: who has to act next, why it waits, and what would help."""

    pod: str
    since: str
    owner: str = ""
    actor: str = ""
    # The code and the severity of the finding that doctor has about the reason; "" if none.
    code: str = ""
    severity: str = ""
    # Whether waiting cannot help.
    never: bool = False
    reason: str
    remedies: tuple[str, ...] = ()
    degree: str = ""


def pod_story(key: str, reading: Reading) -> PodStory:
    """Return the answer of `drawbridge explain` about a pod. Any thread can call this function."""
    with _READING_LOCK:
        return explain.pod_story(key, reading)


def waits_for_node(pod: Pod) -> bool:
    """Return whether a pod requests devices and has no node."""
    if pod.spec.node_name or pod.has_ended:
        return False
    return bool(pod.spec.resource_claims) or bool(requested_devices(pod))


def waiting(reading: Reading, *, search: bool = True) -> Iterator[Waiting]:
    """List the pods that wait, the oldest first; without `search`, with the messages of their schedulers."""
    pending = [key for key, pod in reading.pods.items() if waits_for_node(pod)]
    pending.sort(key=lambda key: (reading.pods[key].metadata.creation_timestamp, key))
    rows: dict[object, Waiting] = {}  # by `_reason_key`
    left: int = REASONS if search else 0
    for key in pending:
        pod = reading.pods[key]
        since = pod.metadata.creation_timestamp
        if left <= 0:
            message = next(
                (condition.message for condition in pod.status.conditions if condition.type == "PodScheduled"), ""
            )
            reason = f"its scheduler says: {message}" if message else "its scheduler has reported no reason"
            yield Waiting(pod=key, since=since, owner=_owner(key, reading), reason=reason)
            continue
        reason_key, steps = _reason_key(pod, reading)
        left -= steps
        if (row_of_equal_pod := rows.get(reason_key)) is not None:
            yield msgspec.structs.replace(row_of_equal_pod, pod=key, since=since, owner=_owner(key, reading))
        else:
            with _READING_LOCK:
                begun = reading.work.spent
                row = waiting_row(key, reading)
                left -= reading.work.spent - begun + _SEARCH + _NODE * len(reading.stock.nodes)
            own_names = [pod.metadata.name]  # a reason that contains one of these names is not that of other pods
            for entry in pod.spec.resource_claims:
                own_names += [entry.name, claim_name(pod, entry) or entry.name]
            if not any(name in text for name in own_names for text in (row.reason, *row.remedies)):
                rows[reason_key] = row
            yield row


def _owner(key: str, reading: Reading) -> str:
    owners = reading.owners(reading.raw[key]) if key in reading.raw else ()
    return owners[-1] if owners else ""


def _reason_key(pod: Pod, reading: Reading) -> tuple[object, int]:
    """Return a value that is equal for pods with the same reason: for those that differ only in their names and in their claims' names.

    Also return the steps for finding the pod's node.
    """
    meta, namespace = pod.metadata, pod.metadata.namespace or "default"
    with _READING_LOCK:
        outcome, steps = queue_of(reading).outcome_of_first(meta.key)
    claims: list[object] = []
    for entry in pod.spec.resource_claims:
        name = claim_name(pod, entry)
        claim = reading.stock.claims.get(f"{namespace}/{name}")
        if claim is None:
            claims.append((entry.name, entry.resource_claim_template_name, name is None))
        else:
            claims.append((encode(claim.spec), encode(claim.status), claim.metadata.deletion_timestamp))
    annotations = {key: value for key, value in meta.annotations.items() if key != names.TEMPLATES}
    conditions = [
        (condition.type, condition.status, condition.reason, condition.message) for condition in pod.status.conditions
    ]
    spec = inside(reading.raw.get(meta.key, {}), "spec")
    placement = [spec.get(key) for key in _PLACEMENT_FIELDS]
    ports = [item.get("ports") for item in items(spec, "containers")]
    deleted = bool(meta.deletion_timestamp), meta.finalizers
    untyped = [meta.labels, annotations, conditions, placement, ports, deleted]
    status = pod.status
    key = (
        (namespace, bool(meta.uid), meta.key in reading.raw, outcome and (outcome.node, outcome.reason)),
        explain.half_placed_group(pod, reading),
        encode(msgspec.structs.replace(pod.spec, resource_claims=())),
        tuple(claims),
        (status.phase, status.nominated_node_name, status.extended_resource_claim_status),
        msgspec.json.encode(untyped, order="sorted"),
    )
    return key, steps


def waiting_row(key: str, reading: Reading) -> Waiting:
    """Return the row of a pod from its story."""
    story = explain.pod_story(key, reading)
    prospect = story.prospect
    way_out = prospect.way_out if prospect else None
    reason = story.state.reasons[0]
    rule, _ = explain.first_reasons(explain.facts_of(key, reading), explain.RULES)
    code = reason.code or (rule.codes.partition(" ")[0] if rule else "")
    finding = CODES.get(code)
    return Waiting(
        pod=story.name,
        since=reading.pods[key].metadata.creation_timestamp,
        owner=story.owners[-1] if story.owners else "",
        actor=reason.actor.value,
        code=code,
        severity=finding.severity if finding else "",
        never=reason.never,
        reason=reason.text,
        remedies=reason.remedies or ((finding.remedy,) if finding else ()),
        degree=way_out.degree.value if way_out is not None else "",
    )


def by_cause(rows: Iterable[Waiting]) -> list[list[Waiting]]:
    """Group pods with one reason and one remedy, the worst first: pods that waiting cannot help, then by severity and number of pods."""
    groups: defaultdict[object, list[Waiting]] = defaultdict(list)
    for row in rows:
        groups[_urgency(row), row.code, row.reason, row.remedies].append(row)
    return sorted(groups.values(), key=lambda pods: (_urgency(pods[0]), -len(pods), pods[0].reason))


def _urgency(row: Waiting) -> tuple[bool, int]:
    return not row.never, _SEVERITIES.index(row.severity)
