"""The pods of our schedulers: what each waits for, how it is placed, and when its scheduler should try it again."""

from __future__ import annotations

import asyncio
from time import time
from typing import TYPE_CHECKING

from allocator.decisions import Outlook, demand_key, find_claims, placement_of, redact, unusable
from allocator.reservations import events
from allocator.service.namespace_turns import NamespaceTurns
from allocator.service.preemption.nominations import Nominations
from allocator.service.requeue_events import RefusedPods
from allocator.strategies import UnknownStrategy
from dra.objects import asks_for_devices, claim_keys, is_later

if TYPE_CHECKING:
    from allocator.decisions import PlacementRules
    from allocator.service.knowledge import Knowledge
    from allocator.service.requeue_events import RequeueEvents
    from allocator.service.settings import Settings
    from allocator.strategies import Placement
    from dra.objects import Pod, ResourceClaim


class PendingPods:
    """Follows the pods of our schedulers."""

    def __init__(self, knowledge: Knowledge, requeue: RequeueEvents, settings: Settings) -> None:
        self._knowledge = knowledge
        self._events = requeue
        self._schedulers = frozenset(settings.schedulers)
        self._binding_seconds = settings.binding
        self.rules = settings.rules
        self.by_uid: dict[str, Pod] = {}
        clock = asyncio.get_running_loop().time
        self.refused = RefusedPods(requeue, clock)
        self.nominations = Nominations(self.by_uid, requeue, clock, settings.starved)
        self.turns = NamespaceTurns(requeue, clock)
        self._lacking_devices: dict[str, str] = {}  # pods that fit no node even if it were empty: names by uid
        self._lacking_objects: dict[str, Pod] = {}  # pods that wait for a claim or another object, by uid

    def find(self, uid: str) -> Pod | None:
        """Find a pod of our schedulers."""
        return self.by_uid.get(uid)

    def waits(self, uid: str) -> bool:
        """Say whether a pod of our schedulers exists and has no node yet."""
        pod = self.by_uid.get(uid)
        return pod is not None and not pod.spec.node_name

    def newest(self, pod: Pod) -> Pod:
        """Answer with the later version of a pod: the one that the scheduler sends, or the one that was seen."""
        watched = self.by_uid.get(pod.metadata.uid)
        later = watched is not None and is_later(watched.metadata.resource_version, pod.metadata.resource_version)
        return watched if watched is not None and later else pod

    def see(self, old: Pod | None, new: Pod | None) -> list[events.Event]:
        """Take over what a pod was and is; return the events for the ledger."""
        changes: list[events.Event] = []
        awaited = self.nominations.awaited_by(old)
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
            elif uid in self._lacking_objects:
                self.objects_changed(new.metadata.namespace)
            changes.append(events.PodSeen(new))
        self.nominations.follow(awaited, new)
        return changes

    def _forget(self, uid: str) -> None:
        """Requeue a pod no more: it is gone, or has a node."""
        self.refused.pop(uid)
        self.nominations.forget(uid)
        self.turns.forget(uid)
        self._lacking_devices.pop(uid, None)
        self._lacking_objects.pop(uid, None)

    def note(self, pod: Pod, outlook: Outlook) -> None:
        """Remember what a pod waits for, by the answer that its scheduler gets."""
        if outlook in (Outlook.FULL, Outlook.UNDECIDED):
            self.refuse(pod)
        elif outlook is Outlook.NEVER:
            self._lacking_devices[pod.metadata.uid] = pod.metadata.key
        elif outlook is Outlook.WAITING:
            self._lacking_objects[pod.metadata.uid] = pod

    def refuse(self, pod: Pod) -> None:
        """Remember a pod that may be tried again once a device comes free."""
        shape = demand_key(find_claims(pod, self._knowledge.stock))
        self.refused.put(pod.metadata.uid, pod.metadata.key, shape)

    def devices_changed(self) -> None:
        """Requeue every pod that waits: devices, classes or nodes are others now."""
        for uid, name in self._lacking_devices.items():
            self.refused.put(uid, name)
        self._lacking_devices.clear()
        self.refused.requeue_all()
        self.objects_changed()

    def objects_changed(self, namespace: str = "") -> None:
        """Requeue the pods, of one namespace or of all, that lacked an object and lack none now."""
        stock = self._knowledge.stock
        ready: list[Pod] = []
        for pod in self._lacking_objects.values():
            if namespace not in ("", pod.metadata.namespace):
                continue
            newest = self.newest(pod)
            pod_claims = find_claims(newest, stock)
            _, problem = self.placement_of(newest)
            waits = pod_claims.waits_for or pod_claims.unmade or problem or self.unusable_claims(newest)
            if not waits:
                ready.append(pod)
        for pod in ready:
            del self._lacking_objects[pod.metadata.uid]
        if ready:
            self._events.add(pod.metadata.key for pod in ready)

    def allocated_claims(self, pod: Pod) -> list[ResourceClaim]:
        """List the claims of a pod that are allocated."""
        claims = self._knowledge.stock.claims
        return [claims[key] for key in claim_keys(pod) if key in claims and claims[key].status.allocation is not None]

    def unusable_claims(self, pod: Pod) -> dict[str, str]:
        """Say by uid which claims of a pod have devices that cannot be bound to any more, and why."""
        found: dict[str, str] = {}
        for claim in self.allocated_claims(pod):
            if why := unusable(claim, time(), self._binding_seconds):
                found[claim.metadata.uid] = why
        return found

    def place_by(self, rules: PlacementRules) -> None:
        """Place by other rules from the next decision on, and requeue the pods that the old ones refused or kept waiting."""
        if rules != self.rules:
            self.rules = rules
            self.refused.requeue_all()
            self.objects_changed()

    def placement_of(self, pod: Pod) -> tuple[Placement, str]:
        """Find how a pod is placed, and which unknown strategy it or its namespace names: then it is placed by the rules alone."""
        namespace = self._knowledge.namespaces.objects.get(("", pod.metadata.namespace or "default"))
        annotations = namespace.metadata.annotations if namespace is not None else {}
        try:
            return placement_of(pod, annotations, self.rules), ""
        except UnknownStrategy as error:
            return self.rules.of(pod.metadata.namespace), str(error)

    def redact(self, pod: Pod, sentence: str) -> str:
        """Leave out of a sentence what a reader of the pod's events may not read."""
        return redact(sentence, self._knowledge.stock, pod.metadata.namespace or "default")
