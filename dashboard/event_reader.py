"""Reads the events of a pod or a claim from a live cluster, when a page about it is requested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.resources import EVENTS

if TYPE_CHECKING:
    from cluster.objects import Event
    from cluster.protocol import Cluster

_PAGES = 4  # pages of 500 events that are read for one object


async def read_events(cluster: Cluster, kind: str, namespace: str, name: str) -> list[Event]:
    """Return the events of an object from a cluster."""
    fields = f"involvedObject.kind={kind},involvedObject.name={name}"
    events: list[Event] = []
    more = ""
    for _ in range(_PAGES):
        page = await cluster.list(EVENTS, namespace, fields=fields, more=more)
        events += page.items
        more = page.more
        if not more:
            break
    return events
