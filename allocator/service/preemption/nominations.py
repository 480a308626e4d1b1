"""Nodes that were nominated for pods: for a while, devices that come free there go to no less important pod.

A scheduler nominates in a pod's status, as core does. The bridge nominates where it evicts, as the status may lag behind, and for a pod
that found no room for long, so that smaller ones of its priority do not pass it forever: for one such pod at a time, and no longer
than `LONGEST`. A pod that is refused because of a nomination is requeued as soon as one ends.
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

OUTBID = "the free devices are reserved for a nominated pod of the same or a higher priority"
SECONDS = 60.0  # schedulers ask again sooner
AGAIN = 5  # times as long as it waited first, until a pod for which there was no such node is looked at again
LONGEST = 600.0  # seconds for which it is; then it is another pod's turn
IDLE = 30.0  # seconds in which none of the awaited pods has ended, after which it is another starved pod's turn


class KeptNode(msgspec.Struct, frozen=True):
    """A node that is kept for a pod, until when, and the pods whose devices it waits for."""

    node: str
    until: float
    awaited: tuple[Pod, ...]
    starved: bool = False  # no pod is made to go for it
    progress_at: float = 0.0  # when one of those pods ended last


class Nominations:
    """Which pod has which node nominated, and which pods were refused because of that."""

    def __init__(
        self, pods: Mapping[str, Pod], waiting: WaitingPods, clock: Callable[[], float], starved: float
    ) -> None:
        """`pods` are those of our schedulers, by uid; one without room for `starved` seconds has a node kept."""
        self._starved = starved
        self._pods = pods
        self._waiting = waiting
        self._clock = clock
        self._ours: dict[str, KeptNode] = {}  # what we nominated, by uid of the pod
        self._stored: dict[str, None] = {}  # uids of pods whose status has named a node, be it for an earlier leader
        # Pods without room by uid: since when, or when looked at, and how many devices they ask for.
        self._full: dict[str, tuple[float, int]] = {}
        self._kept_at: dict[str, float] = {}  # when it was last a pod's turn, by uid
        self._giving_way: dict[str, Pod] = {}  # pods that were refused for the sake of others, by uid

    def nominate(self, pod: Pod, node: str, awaited: Iterable[Pod]) -> None:
        """Have a node kept for a pod that waits for others, for a while."""
        self._ours[pod.metadata.uid] = KeptNode(node, self._clock() + SECONDS, tuple(awaited))

    def give_up(self, pod: Pod) -> None:
        """Keep no node for a pod any more; it may be the next one again."""
        self._kept_at.pop(pod.metadata.uid, None)
        if self._ours.pop(pod.metadata.uid, None) is not None:
            self._wake()

    def found_no_room(self, pod: Pod, devices: int) -> None:
        """Note that a pod waits for so many devices of others."""
        if pod.metadata.uid in self._pods and pod.spec.scheduling_group is None:
            self._full.setdefault(pod.metadata.uid, (self._clock(), devices))

    def next_starved_pod(self, helps: Callable[[Pod, KeptNode], bool]) -> Pod | None:
        """Name the pod to look for a node for: one whose node does not help it any more, or of those that waited long who asks for most."""
        starved_uid = next((uid for uid, one in self._ours.items() if one.starved), "")
        now = self._clock()
        due = [
            uid
            for uid, (since, _) in self._full.items()
            if uid not in self._ours
            and now - since >= self._starved
            and now - self._kept_at.get(uid, -inf) >= 2 * LONGEST
        ]
        if starved_uid:
            kept_node, starved = self._ours[starved_uid], self._pods.get(starved_uid)
            if starved is not None and due and now - kept_node.progress_at >= IDLE:
                self.give_up(starved)
                starved_uid = ""
            elif starved is None or helps(starved, kept_node):
                return None
        if not due and not starved_uid:
            return None
        uid = starved_uid or max(due, key=lambda one: self._full[one][1])
        _, devices = self._full.pop(uid, (now, 0))
        self._full[uid] = now + AGAIN * self._starved, devices  # behind its equals, should there be no such node
        return self._pods.get(uid)

    def keep_node(self, pod: Pod, node: str, awaited: Iterable[Pod]) -> None:
        """Keep a node for a pod that was passed by others for long enough; another one no longer than the first."""
        uid, now = pod.metadata.uid, self._clock()
        until = self._ours[uid].until if uid in self._ours else now + LONGEST
        self._ours[uid] = KeptNode(node, until, tuple(awaited), starved=True, progress_at=now)
        self._kept_at[uid] = now

    def kept_for_others(self, pod: Pod, ledger: Ledger) -> list[tuple[Pod, KeptNode]]:
        """List what is kept for other pods that are at least as important."""
        ahead = [one.metadata.uid for pods in self.rivals(pod, ledger).values() for one in pods]
        now = self._clock()
        return [
            (self._pods[uid], self._ours[uid]) for uid in ahead if uid in self._ours and self._ours[uid].until > now
        ]

    def node_of(self, pod: Pod) -> str:
        """Name the node that is nominated for a pod, by its scheduler or by us; "" if none is."""
        nomination = self._ours.get(pod.metadata.uid)
        return (
            nomination.node
            if nomination is not None and nomination.until > self._clock()
            else pod.status.nominated_node_name
        )

    def rivals(self, pod: Pod, ledger: Ledger, group: Collection[str] = ()) -> dict[str, list[Pod]]:
        """List by nominated node the pods that wait for it and are at least as important as this one, but for those of its group.

        Reserved pods wait no more.
        """
        least = priority(pod)
        found: dict[str, list[Pod]] = {}
        for uid in self._ours | self._stored:
            other = self._pods.get(uid)
            if other is None or other.spec.node_name or priority(other) < least:
                continue
            node = self.node_of(other)
            if not node or uid in ledger.reservations or uid == pod.metadata.uid or uid in group:
                continue
            pods = found.setdefault(node, [])
            pods.append(other)
        return found

    def give_way(self, pod: Pod) -> None:
        """Note that a pod is refused for the sake of others: it is tried again when a nomination ends."""
        self._giving_way[pod.metadata.uid] = pod

    def awaited_by(self, pod: Pod | None) -> str:
        """Name the node that is nominated for a pod without one; "" if none is."""
        return self.node_of(pod) if pod is not None and not pod.spec.node_name else ""

    def note_end(self, pod: Pod) -> None:
        """Note that a pod has ended."""
        uid, now = pod.metadata.uid, self._clock()
        for waiting, kept_node in self._ours.items():
            if any(one.metadata.uid == uid for one in kept_node.awaited):
                self._ours[waiting] = replace(kept_node, progress_at=now)

    def follow(self, before: str, pod: Pod | None) -> None:
        """Take over what a pod is that awaited a node before."""
        awaited = self.awaited_by(pod)
        if pod is not None and awaited and pod.metadata.uid in self._pods:
            self._stored[pod.metadata.uid] = None
        if before and awaited != before:
            self._wake()

    def forget(self, uid: str) -> None:
        """Keep nothing for a pod that is gone, or has a node."""
        for by_uid in (self._ours, self._stored, self._giving_way, self._full, self._kept_at):
            by_uid.pop(uid, None)

    def tick(self) -> None:
        """Let time pass."""
        now = self._clock()
        lapsed = [uid for uid, nomination in self._ours.items() if nomination.until <= now]
        for uid in lapsed:
            del self._ours[uid]
        if lapsed:
            self._wake()

    def _wake(self) -> None:
        giving_way, self._giving_way = self._giving_way, {}
        self._waiting.wake(giving_way.values())
