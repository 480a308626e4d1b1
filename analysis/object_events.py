"""The events of a pod or a claim: those that were read, and how they are shown."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from analysis.installation import LEASES
from dra.raw import moment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from analysis.loading import Reading
    from cluster.objects import Event, Lease

MAX_SHOWN = 50
KEPT = timedelta(hours=1)  # an API server deletes an event an hour after it was last seen
_LONGEST = 1024  # characters of a message, as events.k8s.io allows; a message in v1 may have a megabyte


class Happening(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of one event."""

    at: str
    times: int
    type: str
    reason: str
    message: str
    source: str


class Events(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The events of an object, the latest first, or why they could not be read (`problem`)."""

    shown: tuple[Happening, ...] = ()
    problem: str = ""


def events_in(reading: Reading, kind: str, namespace: str, name: str) -> list[Event]:
    """Return the events of an object that were read."""
    return reading.events_of.get((kind, namespace, name), [])


def last_seen(event: Event) -> str:
    """Return when an event was last seen."""
    last = event.series.last_observed_time if event.series else event.last_timestamp
    return last or event.event_time or event.first_timestamp or event.metadata.creation_timestamp


def newest(events: Iterable[Event]) -> datetime | None:
    """Return when the newest event was last seen; None if no event has a time."""
    return max(filter(None, (moment(last_seen(event)) for event in events)), default=None)


def time_of_dump(leases: Iterable[Lease], events: Iterable[Event], now: datetime) -> datetime:
    """Return when a dump was made: at the last renewal of a Lease of Kubernetes itself. Nodes renew their Leases every ten seconds.

    A dump without Leases was made at its newest event, so the findings do not depend on the clock; without events, `now`.
    """
    others = [lease for lease in leases if lease.metadata.name not in LEASES]
    system = [lease for lease in others if lease.metadata.namespace in ("kube-node-lease", "kube-system")] or others
    renewed = max(filter(None, (moment(lease.spec.renew_time) for lease in system)), default=None)
    return min(now, renewed or newest(events) or now)


def shown(events: Iterable[Event], uid: str) -> Events:
    """Sort events, and leave out those of an earlier object with the same name."""
    happenings: list[Happening] = []
    for event in events:
        if uid and event.involved_object.uid not in ("", uid):
            continue
        at = last_seen(event)
        times = event.series.count if event.series else event.count
        source = event.source.component or event.reporting_component
        message = f"{event.message[:_LONGEST]}…" if len(event.message) > _LONGEST else event.message
        happenings.append(Happening(at=at, times=max(times, 1), type=event.type, reason=event.reason[:_LONGEST], message=message, source=source[:_LONGEST]))  # fmt: skip
    happenings.sort(
        key=lambda happening: (time.timestamp() if (time := moment(happening.at)) else 0.0, happening.reason),
        reverse=True,
    )
    return Events(shown=tuple(happenings[:MAX_SHOWN]))
