"""Pods that wait: who has to act next, why each waits, and what would help, by the code that answers `explain`. Pure.

A search runs once for pods with equal requests, for a bounded number of them and until a deadline; the others are listed
with what their scheduler says.
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
from dra.objects import claim_name
from dra.wire import encode
from webhook import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from analysis.explain import PodStory
    from analysis.loading import Reading
    from dra.objects import Pod
    from webhook.state import Configuration

MAX_EXPLAINED = 200  # kinds of pods that wait, of which it is found out why
# What is found out for one pod is kept in the reading for the next, by one thread at a time.
_TELLING: Final = threading.Lock()
# Fields of a pod that say where it may go, besides those that are read as types.
_PLACING: Final = ("affinity", "topologySpreadConstraints", "volumes")


class Waiting(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that asks for devices and has no node: who has to act next, why it waits, and what would help."""

    pod: str
    since: str
    owner: str = ""
    keeper: str = ""
    reason: str
    nearest: str = ""
    # Who holds what it could have, the first few.
    in_the_way: tuple[str, ...] = ()


def pod_story(key: str, reading: Reading, configuration: Configuration) -> PodStory:
    """Return the story of a pod as `explain` tells it, from any thread."""
    with _TELLING:
        return explain.pod_story(key, reading, configuration)


def waits_for_node(pod: Pod) -> bool:
    """Return whether a pod requests devices and has no node."""
    if pod.spec.node_name or pod.has_ended:
        return False
    return bool(pod.spec.resource_claims) or bool(requested_devices(pod))


def waiting(reading: Reading, configuration: Configuration, is_late: Callable[[], bool]) -> Iterator[Waiting]:
    """List the pods that wait, the longest first; `is_late` ends the search for reasons."""
    pending = [key for key, pod in reading.pods.items() if waits_for_node(pod)]
    pending.sort(key=lambda key: (reading.pods[key].metadata.creation_timestamp, key))
    known: dict[object, Waiting] = {}
    explained = 0
    for key in pending:
        pod = reading.pods[key]
        since = pod.metadata.creation_timestamp
        is_over = is_late()
        kind = None if is_over and not explained else _kind_of(pod, reading, configuration, search=not is_over)
        equal = known.get(kind)
        if equal is not None:
            yield msgspec.structs.replace(equal, pod=key, since=since, owner=_owner(key, reading))
        elif explained >= MAX_EXPLAINED or is_over:
            message = next(
                (condition.message for condition in pod.status.conditions if condition.type == "PodScheduled"), ""
            )
            yield Waiting(
                pod=key, since=since, owner=_owner(key, reading), reason=message or "its scheduler has not said why"
            )
        else:
            explained += 1
            row = waiting_row(pod_story(key, reading, configuration), pod)
            own = [pod.metadata.name]  # names that only this pod's reason may have
            for entry in pod.spec.resource_claims:
                own += [entry.name, claim_name(pod, entry) or entry.name]
            if not any(name in words for name in own for words in (row.reason, row.nearest)):
                known[kind] = row
            yield row


def _owner(key: str, reading: Reading) -> str:
    owners = reading.owners(reading.raw[key]) if key in reading.raw else ()
    return owners[-1] if owners else ""


def _kind_of(pod: Pod, reading: Reading, configuration: Configuration, *, search: bool) -> object:
    """Return what the reason of a pod depends on. It is equal for pods that differ only in their names and those of their claims.

    Without `search` the nodes are not searched for a place for the pod.
    """
    meta, namespace = pod.metadata, pod.metadata.namespace or "default"
    with _TELLING:
        outcome = queue_of(reading, configuration).outcome_of_first(meta.key, search=search)
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
    placing = [spec.get(key) for key in _PLACING]
    ports = [item.get("ports") for item in items(spec, "containers")]
    deleted = bool(meta.deletion_timestamp), meta.finalizers
    plain = [meta.labels, annotations, conditions, placing, ports, deleted]
    status = pod.status
    return (
        (namespace, bool(meta.uid), meta.key in reading.raw, outcome and (outcome.node, outcome.summary)),
        encode(msgspec.structs.replace(pod.spec, resource_claims=())),
        tuple(claims),
        (status.phase, status.nominated_node_name, status.extended_resource_claim_status),
        msgspec.json.encode(plain, order="sorted"),
    )


def waiting_row(story: PodStory, pod: Pod) -> Waiting:
    """Return the row of a pod from its story."""
    prospect = story.prospect
    blockers = prospect.blockers if prospect else ()
    return Waiting(
        pod=story.name,
        since=pod.metadata.creation_timestamp,
        owner=story.owners[-1] if story.owners else "",
        keeper=story.next_step.keeper.value,
        reason=story.next_step.message,
        nearest=prospect.nearest if prospect else "",
        in_the_way=tuple(", ".join(blocker.pods) or f"claim {blocker.claim}" for blocker in blockers[:3]),
    )


def reasons(rows: Iterable[Waiting]) -> list[tuple[str, list[Waiting]]]:
    """Group pods that wait for the same reason, the most frequent first."""
    groups: defaultdict[str, list[Waiting]] = defaultdict(list)
    for row in rows:
        groups[row.reason].append(row)
    return sorted(groups.items(), key=lambda pair: (-len(pair[1]), pair[0]))
