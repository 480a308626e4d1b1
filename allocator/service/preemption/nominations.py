"""Nominated nodes: devices that become free on a pod's nominated node go to no pod of lower priority, for a limited time.

A scheduler nominates a node in the pod's status, as kube-scheduler does. This module nominates nodes in two more cases. When the allocator
evicts pods, it nominates the node itself, because the status may lag behind. And it nominates a node for a starved pod (one that has waited
for room too long), so that smaller pods of the same priority do not pass this pod forever. Only one starved pod at a time has a nomination,
for at most `LONGEST`. A pod that was refused because of a nomination is requeued when a nomination ends.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.preemption import priority
from dra.objects import Pod

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from allocator.reservations import Ledger
    from allocator.service.waiting_pods import WaitingPods

OUTBID = "node(s) had free devices reserved for a nominated pod of the same or a higher priority"
SECONDS = 60.0  # how long a nomination lasts; schedulers retry sooner
RETRY_FACTOR = 5  # after a search for a node, the pod's next wait begins after this many starvation times
LONGEST = 600.0  # the maximum of seconds that a node is kept for a starved pod before another starved pod gets a node
IDLE = 30.0  # if no awaited pod has ended for this many seconds, another starved pod gets a node


class KeptNode(msgspec.Struct, frozen=True):
    """A node that is kept for a pod, and the pods whose devices this pod awaits."""

    node: str
    until: float
    awaited: tuple[Pod, ...]
    starved: bool = False  # the node is kept for a starved pod, and no pod is evicted
    progress_at: float = 0.0  # when an awaited pod ended last


class Nominations:
    """The nominated nodes of pods, and the pods that were refused because of them."""

    def __init__(
        self, pods: Mapping[str, Pod], waiting: WaitingPods, clock: Callable[[], float], starved: float
    ) -> None:
        """`pods` are the pods of our schedulers by uid. A pod without room for `starved` seconds is starved."""
        self._starved = starved
        self._pods = pods
        self._waiting = waiting
        self._clock = clock
        self._ours: dict[str, KeptNode] = {}  # this module's nominations, by pod uid
        self._stored: dict[str, None] = {}  # uids of pods that had a nominated node; `rivals` looks up the current one
        # Pods without room by uid: the start of the wait (a search moves it into the future), and the number of devices requested.
        self._full: dict[str, tuple[float, int]] = {}
        self._kept_at: dict[str, float] = {}  # when a node was last kept for a starved pod, by uid
        self._giving_way: dict[str, Pod] = {}  # pods that were refused because of nominations, by uid

    def nominate(self, pod: Pod, node: str, awaited: Iterable[Pod]) -> None:
        """Nominate a node for a pod that waits for other pods, for `SECONDS`."""
        self._ours[pod.metadata.uid] = KeptNode(node, self._clock() + SECONDS, tuple(awaited))

    def give_up(self, pod: Pod) -> None:
        """End the nomination of a pod. A starved pod then need not wait `2 * LONGEST` for another kept node."""
        self._kept_at.pop(pod.metadata.uid, None)
        if self._ours.pop(pod.metadata.uid, None) is not None:
            self._requeue_refused()

    def found_no_room(self, pod: Pod, devices: int) -> None:
        """Note that a pod waits for devices that other pods hold, and how many it requests."""
        if pod.metadata.uid in self._pods and pod.spec.scheduling_group is None:
            self._full.setdefault(pod.metadata.uid, (self._clock(), devices))

    def next_starved_pod(self, is_useful: Callable[[Pod, KeptNode], bool]) -> Pod | None:
        """Return the pod for which a node should be searched.

        This is the starved pod whose kept node no longer helps it or, if there is none, the starved pod that requests most devices.
        """
        starved_uid = next((uid for uid, kept in self._ours.items() if kept.starved), "")
        now = self._clock()
        starved_uids = [
            uid
            for uid, (since, _) in self._full.items()
            if uid not in self._ours
            and now - since >= self._starved
            and now - self._kept_at.get(uid, -inf) >= 2 * LONGEST
        ]
        if starved_uid:
            kept_node, starved = self._ours[starved_uid], self._pods.get(starved_uid)
            if starved is not None and starved_uids and now - kept_node.progress_at >= IDLE:
                self.give_up(starved)
                starved_uid = ""
            elif starved is None or is_useful(starved, kept_node):
                return None
        if not starved_uids and not starved_uid:
            return None
        uid = starved_uid or max(starved_uids, key=lambda candidate: self._full[candidate][1])
        _, devices = self._full.pop(uid, (now, 0))
        # If no node is found for this pod, the other pods are tried before it is tried again.
        self._full[uid] = now + RETRY_FACTOR * self._starved, devices
        return self._pods.get(uid)

    def keep_node(self, pod: Pod, node: str, awaited: Iterable[Pod]) -> None:
        """Keep a node for a starved pod. A second node for the same pod is kept no longer than the first would have been."""
        uid, now = pod.metadata.uid, self._clock()
        until = self._ours[uid].until if uid in self._ours else now + LONGEST
        self._ours[uid] = KeptNode(node, until, tuple(awaited), starved=True, progress_at=now)
        self._kept_at[uid] = now

    def kept_for_others(self, pod: Pod, ledger: Ledger) -> list[tuple[Pod, KeptNode]]:
        """List the nodes that are kept for other pods of the same or a higher priority."""
        ahead = [rival.metadata.uid for pods in self.rivals(pod, ledger).values() for rival in pods]
        now = self._clock()
        return [
            (self._pods[uid], self._ours[uid]) for uid in ahead if uid in self._ours and self._ours[uid].until > now
        ]

    def node_of(self, pod: Pod) -> str:
        """Return the node that this module or the pod's scheduler nominated for a pod; "" if there is none."""
        nomination = self._ours.get(pod.metadata.uid)
        return (
            nomination.node
            if nomination is not None and nomination.until > self._clock()
            else pod.status.nominated_node_name
        )

    def rivals(self, pod: Pod, ledger: Ledger, group: Collection[str] = ()) -> dict[str, list[Pod]]:
        """Return the nominated pods of the same or a higher priority, by node. Reserved pods and pods of the same group are left out."""
        own_priority = priority(pod)
        by_node: dict[str, list[Pod]] = {}
        for uid in self._ours | self._stored:
            other = self._pods.get(uid)
            if other is None or other.spec.node_name or priority(other) < own_priority:
                continue
            node = self.node_of(other)
            if not node or ledger.reservation_of(uid) or uid == pod.metadata.uid or uid in group:
                continue
            pods = by_node.setdefault(node, [])
            pods.append(other)
        return by_node

    def give_way(self, pod: Pod) -> None:
        """Note that a pod was refused because of a nomination. It is requeued when a nomination ends."""
        self._giving_way[pod.metadata.uid] = pod

    def nominated_node_of(self, pod: Pod | None) -> str:
        """Return the nominated node of an unbound pod; "" if there is none, or if the pod is bound or None."""
        return self.node_of(pod) if pod is not None and not pod.spec.node_name else ""

    def note_end(self, pod: Pod) -> None:
        """Note the end of a pod, which is progress for the pods that await it."""
        uid, now = pod.metadata.uid, self._clock()
        for waiting, kept_node in self._ours.items():
            if any(awaited_pod.metadata.uid == uid for awaited_pod in kept_node.awaited):
                self._ours[waiting] = replace(kept_node, progress_at=now)

    def follow(self, before: str, pod: Pod | None) -> None:
        """Note the nominated node of a changed pod. If this is no longer the node `before`, requeue the pods that gave way."""
        awaited = self.nominated_node_of(pod)
        if pod is not None and awaited and pod.metadata.uid in self._pods:
            self._stored[pod.metadata.uid] = None
        if before and awaited != before:
            self._requeue_refused()

    def forget(self, uid: str) -> None:
        for by_uid in (self._ours, self._stored, self._giving_way, self._full, self._kept_at):
            by_uid.pop(uid, None)

    def tick(self) -> None:
        """End the nominations whose time is over."""
        now = self._clock()
        lapsed = [uid for uid, nomination in self._ours.items() if nomination.until <= now]
        for uid in lapsed:
            del self._ours[uid]
        if lapsed:
            self._requeue_refused()

    def _requeue_refused(self) -> None:
        giving_way, self._giving_way = self._giving_way, {}
        self._waiting.requeue(giving_way.values())
