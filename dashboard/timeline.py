"""When a pod was created, and when it got its devices, its node and its containers, by the times in the objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from dra.objects import claim_keys, results_of
from dra.raw import moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from analysis.loading import Reading
    from dra.objects import Pod, ResourceClaim

# The meaning of a pod's conditions by type and status, in their usual order.
_CONDITIONS: Final = {
    ("PodScheduled", "False"): "a scheduler found no node for it",
    ("PodScheduled", "True"): "it was assigned to node {node}",
    ("PodReadyToStartContainers", "True"): "its devices and its network are prepared",
    ("Initialized", "True"): "its init containers have ended",
    ("ContainersReady", "True"): "its containers are ready",
}
_READY: Final = "Ready"
_STEPS: Final = (86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "m"), (1, "s")


class TimelineStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that happened to a pod or a claim."""

    at: str
    description: str = msgspec.field(name="what")


def steps_of(pod: Pod, reading: Reading) -> tuple[TimelineStep, ...]:
    """List what happened to a pod, the earliest first; what has no time is left out."""
    events = [(pod.metadata.creation_timestamp, "the pod was created")]
    for key in claim_keys(pod):
        claim = reading.stock.claims.get(key)
        if claim is not None:
            events += _events_of(claim)
    condition_times = {
        (condition.type, condition.status): condition.last_transition_time for condition in pod.status.conditions
    }
    for condition, words in _CONDITIONS.items():
        if condition in condition_times:
            events.append((condition_times[condition], words.format(node=pod.spec.node_name)))
    return _in_order((*events, (pod.metadata.deletion_timestamp, "its grace period ends")))


def steps_of_claim(claim: ResourceClaim) -> tuple[TimelineStep, ...]:
    """List what happened to a claim, the earliest first."""
    return _in_order((*_events_of(claim), (claim.metadata.deletion_timestamp, "its deletion was requested")))


def _in_order(events: Iterable[tuple[str, str]]) -> tuple[TimelineStep, ...]:
    timed = [(moment(at), TimelineStep(at=at, description=description)) for at, description in events]
    known = [(time, step) for time, step in timed if time is not None]
    return tuple(step for _, step in sorted(known, key=lambda entry: entry[0]))


def _events_of(claim: ResourceClaim) -> Iterator[tuple[str, str]]:
    name = claim.metadata.name
    yield claim.metadata.creation_timestamp, f"claim {name} was created"
    if claim.status.allocation is not None:
        devices = ", ".join(f"{result.driver}/{result.pool}/{result.device}" for result in results_of(claim))
        yield claim.status.allocation.allocation_timestamp, f"claim {name} was given {devices}"
    for device in claim.status.devices:
        for condition in device.conditions:
            if condition.type == _READY and condition.status == "True":
                yield (
                    condition.last_transition_time,
                    f"{device.driver}/{device.pool}/{device.device} is ready on its node",
                )


def age(at: str, now: datetime | None) -> str:
    """Return how long ago a time was, in the largest unit that fits, as kubectl writes ages."""
    time = moment(at)
    if time is None or now is None:
        return ""
    seconds = int((now - time).total_seconds())
    if seconds < 0:
        return ""
    amount, unit = next(((seconds // size, unit) for size, unit in _STEPS if seconds >= size), (0, "s"))
    return f"{amount}{unit}"
