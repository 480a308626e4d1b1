"""Nodes that were nominated for pods: for a while, devices that come free there go to no less important pod.

A scheduler nominates in a pod's status, as core does. The bridge nominates where it evicts, as the status may lag behind. A pod that
is refused because of a nomination is requeued as soon as one ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.preemption import priority

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from allocator.reservations import Ledger
    from allocator.service.requeue_events import RequeueEvents
    from dra.objects import Pod

OUTBID = "the free devices are reserved for a nominated pod of the same or a higher priority"
SECONDS = 60.0  # schedulers ask again sooner


class Nominations:
    """Which pod has which node nominated, and which pods were refused because of that."""

    def __init__(self, pods: Mapping[str, Pod], events: RequeueEvents, clock: Callable[[], float]) -> None:
        """`pods` are those of our schedulers, by uid."""
        self._pods = pods
        self._events = events
        self._clock = clock
        self._ours: dict[str, tuple[str, float]] = {}  # nodes that we nominated, and until when, by uid of the pod
        self._giving_way: dict[str, str] = {}  # names of pods that were refused for the sake of others, by uid

    def nominate(self, pod: Pod, node: str) -> None:
        """Have a node kept for a pod for a while."""
        self._ours[pod.metadata.uid] = node, self._clock() + SECONDS

    def node_of(self, pod: Pod) -> str:
        """Name the node that is nominated for a pod, by its scheduler or by us; "" if none is."""
        node, until = self._ours.get(pod.metadata.uid, ("", 0.0))
        return node if until > self._clock() else pod.status.nominated_node_name

    def rivals(self, pod: Pod, ledger: Ledger, group: Collection[str] = ()) -> dict[str, list[Pod]]:
        """List by nominated node the pods that wait for it and are at least as important as this one, but for those of its group.

        Reserved pods wait no more.
        """
        return self._nominated(self._pods, pod, ledger, group)

    def nominated_by_us(self, pod: Pod, ledger: Ledger, group: Collection[str] = ()) -> dict[str, list[Pod]]:
        """List the same of the few pods only that the bridge made room for."""
        return self._nominated(self._ours, pod, ledger, group)

    def _nominated(self, uids: Iterable[str], pod: Pod, ledger: Ledger, group: Collection[str]) -> dict[str, list[Pod]]:
        least = priority(pod)
        found: dict[str, list[Pod]] = {}
        for uid in uids:
            other = self._pods.get(uid)
            if other is None or other.spec.node_name or priority(other) < least:
                continue
            node = self.node_of(other)
            if not node or uid in ledger.reservations or uid == pod.metadata.uid or uid in group:
                continue
            here = found.setdefault(node, [])
            here.append(other)
        return found

    def give_way(self, pod: Pod) -> None:
        """Note that a pod is refused for the sake of others: it is tried again when a nomination ends."""
        uid = pod.metadata.uid
        if uid in self._pods:
            self._giving_way[uid] = pod.metadata.key

    def awaited_by(self, pod: Pod | None) -> str:
        """Name the node that is nominated for a pod without one; "" if none is."""
        return self.node_of(pod) if pod is not None and not pod.spec.node_name else ""

    def follow(self, before: str, pod: Pod | None) -> None:
        """Take over what a pod is that awaited a node before."""
        if before and self.awaited_by(pod) != before:
            self._wake()

    def forget(self, uid: str) -> None:
        """Keep nothing for a pod that is gone, or has a node."""
        self._ours.pop(uid, None)
        self._giving_way.pop(uid, None)

    def tick(self) -> None:
        """Let time pass."""
        now = self._clock()
        lapsed = [uid for uid, (_, until) in self._ours.items() if until <= now]
        for uid in lapsed:
            del self._ours[uid]
        if lapsed:
            self._wake()

    def _wake(self) -> None:
        self._events.add(self._giving_way.values())
        self._giving_way.clear()
