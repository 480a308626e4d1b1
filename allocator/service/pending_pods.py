"""The pods of our schedulers: what each pod waits for, its placement strategy, and when its scheduler should requeue it."""

from __future__ import annotations

import asyncio
from time import time
from typing import TYPE_CHECKING

from allocator.decisions import Outlook, PlacementRules, demand_key, find_claims, placement_of, redact, unusable
from allocator.reservations import events
from allocator.service.namespace_turns import NamespaceTurns
from allocator.service.preemption.nominations import Nominations
from allocator.service.waiting_pods import WaitingPods, WaitReason
from allocator.strategies import UnknownStrategy
from dra.objects import asks_for_devices, claim_keys, is_later

if TYPE_CHECKING:
    from collections.abc import Callable

    from allocator.service.knowledge import Knowledge
    from allocator.service.requeue_events import RequeueEvents
    from allocator.service.settings import AllocatorSettings
    from allocator.strategies import Placement
    from dra.objects import Pod, ResourceClaim
    from dra.stock import Stock


class PendingPods:
    """Follows the pods of our schedulers."""

    def __init__(self, knowledge: Knowledge, requeue: RequeueEvents, settings: AllocatorSettings) -> None:
        self._knowledge = knowledge
        self._schedulers = frozenset(settings.schedulers)
        self._binding_seconds = settings.binding
        self.rules = PlacementRules()
        self.by_uid: dict[str, Pod] = {}
        clock = asyncio.get_running_loop().time
        self.waiting = WaitingPods(requeue, clock)
        self.nominations = Nominations(self.by_uid, self.waiting, clock, settings.starved)
        self.turns = NamespaceTurns(clock)

    def find(self, uid: str) -> Pod | None:
        """Return a pod of our schedulers."""
        return self.by_uid.get(uid)

    def waits(self, uid: str) -> bool:
        """Return whether a pod of our schedulers exists and has no node yet."""
        pod = self.by_uid.get(uid)
        return pod is not None and not pod.spec.node_name

    def newest(self, pod: Pod) -> Pod:
        """Return the later version of a pod: the one from the scheduler's request, or the one from the informer."""
        watched = self.by_uid.get(pod.metadata.uid)
        later = watched is not None and is_later(watched.metadata.resource_version, pod.metadata.resource_version)
        return watched if watched is not None and later else pod

    def see(self, old: Pod | None, new: Pod | None) -> list[events.Event]:
        """Record a change of a pod; return the events for the ledger."""
        changes: list[events.Event] = []
        if old is not None and (new is None or new.has_ended or new.metadata.uid != old.metadata.uid):
            self.nominations.note_end(old)
        awaited = self.nominations.nominated_node_of(old)
        if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
            uid = old.metadata.uid
            self._forget(uid)
            if self.by_uid.pop(uid, None) is not None:
                changes.append(events.PodGone(uid))
        if new is not None and new.spec.scheduler_name in self._schedulers and asks_for_devices(new):
            uid = new.metadata.uid
            self.by_uid[uid] = new
            if new.spec.node_name:
                self._forget(uid)
            elif self.waiting.waits_for(WaitReason.OBJECTS, uid) and self._may_go_on(new):
                self.waiting.requeue([new])
            changes.append(events.PodSeen(new))
        self.nominations.follow(awaited, new)
        return changes

    def _forget(self, uid: str) -> None:
        """Forget what a pod waits for, because it is gone or has a node."""
        self.waiting.pop(uid)
        self.nominations.forget(uid)

    def note(self, pod: Pod, outlook: Outlook, stock: Stock) -> None:
        """Record what a pod waits for after an answer that was decided with `stock`.

        If the stock has changed since, this did not requeue the pod, because the pod was not waiting yet.
        """
        is_current = stock is self._knowledge.stock
        if outlook is Outlook.WAITING:
            self.waiting.put(pod, WaitReason.OBJECTS, self._lacks(pod, stock)[1].encode())
        elif outlook is Outlook.NEVER and is_current:
            self.waiting.put(pod, WaitReason.DEVICES)
        elif outlook is Outlook.FITS and not self.waiting.waits_for(WaitReason.ROOM, pod.metadata.uid):
            # Until devices are reserved: other plugins may refuse these nodes, and the scheduler may know nodes that the stock lacks.
            self.waiting.put(pod, WaitReason.DEVICES)
        elif outlook in (Outlook.FULL, Outlook.UNDECIDED, Outlook.NEVER):
            self.requeue_when_devices_are_free(pod)
            if not is_current:
                self.waiting.note_freed()

    def requeue_when_devices_are_free(self, pod: Pod) -> None:
        """Requeue a pod when a device that it may use becomes free."""
        self.waiting.put(pod, WaitReason.ROOM, demand_key(find_claims(pod, self._knowledge.stock)))

    def devices_changed(self) -> None:
        """Requeue the pods that wait for room or devices, and those that lack no object now: devices, classes or nodes have changed."""
        self.waiting.requeue(self.waiting.pods_waiting_for(WaitReason.ROOM, WaitReason.DEVICES))
        self.objects_changed()

    def room_changed(self) -> None:
        """Requeue every pod that waits for room, because a quota or the placement rules have changed."""
        self.waiting.requeue(self.waiting.pods_waiting_for(WaitReason.ROOM))

    def objects_changed(self, namespace: str = "") -> None:
        """Requeue the pods that waited for an object and now lack none or another one, in one namespace or in all namespaces."""
        pods = [
            pod
            for pod in self.waiting.pods_waiting_for(WaitReason.OBJECTS)
            if namespace in ("", pod.metadata.namespace)
        ]
        self.waiting.requeue([pod for pod in pods if self._may_go_on(pod)])

    def _may_go_on(self, pod: Pod, is_making: Callable[[str], bool] = lambda _: True) -> bool:
        """Return whether a pod that waits for objects lacks none now, or another one than in its last answer, whose reason is outdated then.

        The allocator's own claim for the pod counts as lacking while `is_making` says so.
        """
        uid = pod.metadata.uid
        lacks_ours, other = self._lacks(pod, self._knowledge.stock)
        return other.encode() != self.waiting.lack_of(uid) if other else not (lacks_ours and is_making(uid))

    def _lacks(self, pod: Pod, stock: Stock) -> tuple[bool, str]:
        """Return whether a pod lacks the claim that the allocator creates for it, and which other object it lacks; "" if none."""
        newest = self.newest(pod)
        pod_claims = find_claims(newest, stock)
        _, problem = self.placement_of(newest)
        return pod_claims.uncreated is not None, str(
            pod_claims.waits_for or problem or " ".join(self.unusable_claims(newest))
        )

    def tick(self, is_making: Callable[[str], bool]) -> None:
        """Requeue waiting pods that no event would requeue. `is_making` returns whether the claim of a pod is being created."""
        self.nominations.tick()
        self.waiting.requeue(self.turns.next_pods(self.waiting.pods_waiting_for(WaitReason.TURN)))
        is_seen = self.by_uid.__contains__
        self.waiting.requeue(self.waiting.due(WaitReason.SCHEDULER, is_seen))
        for pod in self.waiting.due(WaitReason.OBJECTS, is_seen):
            if self._may_go_on(pod, is_making):
                self.waiting.requeue([pod])
            else:
                self.waiting.put(pod, WaitReason.OBJECTS, self.waiting.lack_of(pod.metadata.uid))

    def allocated_claims(self, pod: Pod) -> list[ResourceClaim]:
        """Return the allocated claims of a pod."""
        claims = self._knowledge.stock.claims
        return [claims[key] for key in claim_keys(pod) if key in claims and claims[key].status.allocation is not None]

    def unusable_claims(self, pod: Pod) -> dict[str, str]:
        """Return the allocated claims of a pod that cannot be used any more, by uid, with the reason: their devices failed or are late."""
        reasons: dict[str, str] = {}
        for claim in self.allocated_claims(pod):
            if why := unusable(claim, time(), self._binding_seconds):
                reasons[claim.metadata.uid] = why
        return reasons

    def place_by(self, rules: PlacementRules) -> None:
        """Use these placement rules from the next decision on, and requeue the pods that the old rules refused or kept waiting."""
        if rules != self.rules:
            self.rules = rules
            self.room_changed()
            self.objects_changed()

    def placement_of(self, pod: Pod) -> tuple[Placement, str]:
        """Return the placement of a pod. If the pod or its Namespace names an unknown strategy, return the configured one and a message."""
        namespace = self._knowledge.namespaces.objects.get(("", pod.metadata.namespace or "default"))
        annotations = namespace.metadata.annotations if namespace is not None else {}
        try:
            return placement_of(pod, annotations, self.rules), ""
        except UnknownStrategy as error:
            return self.rules.for_namespace(pod.metadata.namespace), str(error)

    def redact(self, pod: Pod, sentence: str) -> str:
        """Remove from a message what readers of the pod's events may not read."""
        return redact(sentence, self._knowledge.stock, pod.metadata.namespace or "default")
