"""Nodes that were nominated for pods: a while in which what comes free there is for nobody less important.

A scheduler nominates in a pod's status, as core does; we do where we have room made, and the status may be a moment behind. Who is
refused for the sake of a nomination is tried again as soon as one ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.preemption import priority

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allocator.reservations import Ledger
    from allocator.service.wakes import Wakes
    from dra.objects import Pod

SECONDS = 60.0  # schedulers ask again sooner


class Nominations:
    """Which pod has which node nominated, and who gives way for that."""

    def __init__(self, pods: Mapping[str, Pod], wakes: Wakes, clock: Callable[[], float]) -> None:
        """`pods` are those of our schedulers, by uid."""
        self._pods = pods
        self._wakes = wakes
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

    def rivals(self, pod: Pod, ledger: Ledger) -> dict[str, list[Pod]]:
        """List by its nominated node who waits there and is as important as a pod at least. Who has devices reserved waits no more."""
        least = priority(pod)
        found: dict[str, list[Pod]] = {}
        for uid, other in self._pods.items():
            if other.spec.node_name or priority(other) < least:
                continue
            node = self.node_of(other)
            if not node or uid in ledger.reservations or uid == pod.metadata.uid:
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
        self._wakes.wake(self._giving_way.values())
        self._giving_way.clear()
