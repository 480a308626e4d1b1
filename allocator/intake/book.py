"""What was let in under a quota and has no devices yet. It waits, so it counts, as the most that it may come to hold.

    at the door          a pod or claim that was let in and is not seen yet, until it is, or its time is over
    a pod                that is seen and not done: each of its templates of which no claim of its is seen
    a claim              that is seen and that nothing is allocated to, whoever made it

A claim that has devices counts in the stock, as what it holds, from the moment of its reservation. So each thing counts in one place:
a pod's template until there is its claim, the claim until it is allocated, and then the allocation. Whatever happens in whatever order,
what counts follows from what was seen last of each object; only who is at the door is remembered, by uid, and goes by a clock.

A claim may be a megabyte, and who makes one and takes it away again a thousand times makes a thousand different ones: what is remembered
of those who are not stored is bounded by bytes.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from allocator.intake.room import Guest, WaitingClaim, WaitingRoom, Wish
from dra.cache import Cache
from dra.objects import claim_name
from dra.policy import concerns, in_scope, limits_of
from dra.stock import ALL_CLASSES, total
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from allocator.intake.newcomer import Newcomer, Wanted
    from allocator.intake.room import Entry
    from dra.objects import DeviceQuota, Pod, ResourceClaim, ResourceClaimSpec
    from dra.stock import Amounts, Stock

    FindPod = Callable[[str, str], Pod | None]
    FindSpec = Callable[[str, str], ResourceClaimSpec | None]  # the spec of a template, by namespace and name
    Demand = Callable[[ResourceClaimSpec], Amounts]
    Asked = Iterator[tuple[ResourceClaimSpec, int]]  # how many wait for a claim of this spec

ENTRY = "resource.kubernetes.io/pod-claim-name"  # of which entry of its pod a claim was made
# Who is at the door is remembered as long as other webhooks may take to turn it back: the API server gives none more than this.
REMEMBERED = 30.0
DEFAULT = "default"  # the namespace of what names none
MOST_AT_THE_DOOR = 16384
BYTES_AT_THE_DOOR = 64 << 20
SHARED_BYTES = 8 << 20  # of specs that are one object, and as much of wishes
_LEAST = 2048  # bytes of the smallest spec, and of what stands around it
_NO_CLASSES = frozenset[str]()
_NOBODY = WaitingRoom()  # of a namespace in which nothing waits


class _Interned(NamedTuple):
    """A spec that stands for all with the same words, and about how many bytes it takes with its text."""

    spec: ResourceClaimSpec
    weight: int
    classes: frozenset[str]


class Book:
    """Knows what waits, namespace by namespace."""

    def __init__(self, remembered: float = REMEMBERED) -> None:
        """Whoever is at the door is remembered for so many seconds, by a clock that never goes back."""
        self._remembered = remembered
        self._rooms: dict[str, WaitingRoom] = {}  # by namespace
        # Namespaces and uids of those who are not seen yet, in the order in which they came and will be forgotten, and the bytes that each brought.
        self._door: dict[tuple[str, str], int] = {}
        self._door_bytes = 0  # of all of them
        # Specs by their text, and wishes by their template and spec: equal ones are one object, one question, however many ask it.
        self._specs: Cache[_Interned] = Cache(SHARED_BYTES)
        self._wishes: Cache[Wish] = Cache(SHARED_BYTES)

    # ---- who comes and goes

    def admit(self, newcomer: Newcomer, now: float) -> None:
        """Remember somebody who is let in."""
        uid, namespace = newcomer.uid, newcomer.namespace or DEFAULT
        room = self._room(namespace)
        known = room.guest(uid)
        if known is not None and known.until == inf:
            return
        wants, weight = self._shared(newcomer.wants)
        guest = Guest(uid, newcomer.priority_class, wants, now + self._remembered)
        room.receive(guest)
        self._leave_door(namespace, uid)
        self._door[namespace, uid] = weight
        self._door_bytes += weight
        while len(self._door) > MOST_AT_THE_DOOR or self._door_bytes > BYTES_AT_THE_DOOR:
            self._forget(*next(iter(self._door)))

    def expire(self, now: float) -> None:
        """Forget whom nobody has seen in time: the API server, or another webhook, has turned them back."""
        while self._door:
            namespace, uid = next(iter(self._door))
            guest = self._room(namespace).guest(uid)
            if guest is not None and guest.until > now:
                return
            self._forget(namespace, uid)

    def see_pod(self, pod: Pod, wants: Mapping[str, Wanted]) -> None:
        """Take a pod as it is stored, and the claims that will be made for it."""
        if pod.is_done or not wants:
            self.lose_pod(pod)
            return
        meta = pod.metadata
        now: dict[str, Wanted] = {}
        for entry in pod.spec.resource_claims:
            wanted = wants.get(entry.name)
            if wanted is not None and claim_name(pod, entry) is not None:
                now[entry.name] = wanted
        kept, _ = self._shared(now)
        guest = Guest(meta.uid, pod.spec.priority_class_name, kept, inf)
        namespace = meta.namespace or DEFAULT
        self._room(namespace).receive(guest)
        self._leave_door(namespace, meta.uid)

    def lose_pod(self, pod: Pod) -> None:
        """Forget a pod that is done, or gone."""
        self._forget(pod.metadata.namespace or DEFAULT, pod.metadata.uid)

    def see_claim(self, claim: ResourceClaim) -> None:
        """Take a claim as it is stored."""
        meta = claim.metadata
        namespace = meta.namespace or DEFAULT
        self._forget(namespace, meta.uid)  # it was at the door
        room = self._room(namespace)
        room.make(meta.uid, _entry_of(claim))
        if claim.status.allocation is not None:
            room.claims.pop(meta.uid, None)
        elif meta.uid not in room.claims:
            room.claims[meta.uid] = self._waiting_claim(claim)
        self._clear(namespace)

    def lose_claim(self, claim: ResourceClaim) -> None:
        """Forget a claim that is gone."""
        meta = claim.metadata
        namespace = meta.namespace or DEFAULT
        self._forget(namespace, meta.uid)
        room = self._room(namespace)
        room.unmake(meta.uid)
        room.claims.pop(meta.uid, None)
        self._clear(namespace)

    # ---- what waits

    def waiting(
        self, quota: DeviceQuota, stock: Stock, *, demand: Demand, find_pod: FindPod, find_spec: FindSpec, but: str = ""
    ) -> Amounts:
        """Say how much of what a quota is about waits, without one pod or claim (a uid): it asks, and is perhaps asked about again.

        Of classes that it does not name as many may wait as somebody likes to store, so these are passed by before anything else is looked at.
        """
        named = {limit.class_name for limit in limits_of(quota)}
        counts: Counter[int] = Counter()
        specs: dict[int, ResourceClaimSpec] = {}
        for spec, count in chain(
            self._wanted_by_guests(quota, named, find_spec, but),
            self._wanted_by_claims(quota, named, stock, find_pod, but),
        ):
            number = id(spec)
            counts[number] += count
            specs[number] = spec
        parts: list[Amounts] = []
        for number, count in counts.items():
            most = demand(specs[number])
            parts.append({key: amount * count for key, amount in most.items()})
        return total(parts)

    def _wanted_by_guests(self, quota: DeviceQuota, named: set[str], find_spec: FindSpec, but: str) -> Asked:
        namespace = quota.metadata.namespace or DEFAULT
        room = self._rooms.get(namespace, _NOBODY)
        for priority_class, wish, count in room.wishes(but):
            if not in_scope(quota, priority_class):
                continue
            spec = wish.spec
            classes = wish.classes
            stored = find_spec(namespace, wish.template)
            if stored is not None:
                spec = stored
                classes = _classes(stored)
            if spec is not None and _names(named, classes):
                yield spec, count

    def _wanted_by_claims(
        self, quota: DeviceQuota, named: set[str], stock: Stock, find_pod: FindPod, but: str
    ) -> Asked:
        namespace = quota.metadata.namespace or DEFAULT
        room = self._rooms.get(namespace, _NOBODY)
        for uid, waiting in room.claims.items():
            if uid == but or not _names(named, waiting.classes):
                continue
            claim = stock.claims.get(waiting.key)
            if claim is None or claim.status.allocation is not None:
                continue
            if concerns(quota, claim, find_pod):
                yield waiting.spec, 1

    def _shared(self, wants: Mapping[str, Wanted]) -> tuple[dict[str, Wish], int]:
        """Find the objects that stand for all who ask in the same words, and say how many bytes are new."""
        shared: dict[str, Wish] = {}
        added = 0
        for entry, wanted in wants.items():
            spec, weight, classes = self._same(wanted.spec) if wanted.spec is not None else (None, _LEAST, _NO_CLASSES)
            key = wanted.template, id(spec)  # a wish keeps its spec
            wish = self._wishes.get(key)
            if wish is None:
                wish = Wish(wanted.template, spec, classes)
                self._wishes.put(key, wish, weight)
                added += weight
            shared[entry] = wish
        return shared, added

    def _same(self, spec: ResourceClaimSpec) -> _Interned:
        """Find the object that stands for all specs with the same words."""
        text = encode(spec)
        known = self._specs.get(text)
        if known is None:
            known = _Interned(spec, _LEAST + 2 * len(text), _classes(spec))
            self._specs.put(text, known, known.weight)
        return known

    def _waiting_claim(self, claim: ResourceClaim) -> WaitingClaim:
        same = self._same(claim.spec)
        return WaitingClaim(claim.metadata.key, same.spec, same.classes)

    # ---- rooms

    def _room(self, namespace: str) -> WaitingRoom:
        return self._rooms.setdefault(namespace, WaitingRoom())

    def _clear(self, namespace: str) -> None:
        """Give up a room in which nobody is left."""
        room = self._rooms.get(namespace)
        if room is not None and room.is_empty:
            del self._rooms[namespace]

    def _leave_door(self, namespace: str, uid: str) -> None:
        self._door_bytes -= self._door.pop((namespace, uid), 0)

    def _forget(self, namespace: str, uid: str) -> None:
        self._leave_door(namespace, uid)
        room = self._rooms.get(namespace)
        if room is not None:
            room.dismiss(uid)
            self._clear(namespace)


def _classes(spec: ResourceClaimSpec) -> frozenset[str]:
    """Name the classes that a claim may come to have devices of."""
    found: set[str] = set()
    for request in spec.devices.requests:
        found.update(one.device_class_name for one in request.first_available)
        if request.exactly is not None:
            found.add(request.exactly.device_class_name)
    return frozenset(found)


def _names(named: set[str], classes: frozenset[str]) -> bool:
    return ALL_CLASSES in named or not named.isdisjoint(classes)


def _entry_of(claim: ResourceClaim) -> Entry | None:
    """Say for which entry of which pod a claim was made."""
    entry = claim.metadata.annotations.get(ENTRY)
    owners = [owner.uid for owner in claim.metadata.owner_references if owner.controller and owner.kind == "Pod"]
    return (owners[0], entry) if owners and entry else None
