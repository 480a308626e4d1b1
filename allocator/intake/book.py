"""What was let in under a quota and has no devices yet. It waits, so it counts, as the most that it may come to hold.

    at the door          a pod or claim that was let in and is not seen yet, until it is, or its time is over
    a pod                that is seen and not done: each of its templates of which no claim of its is seen
    a claim              that is seen and that nothing is allocated to, whoever made it

A claim that has devices counts in the stock, as what it holds, from the moment of its reservation. So each thing counts in one place:
a pod's template until there is its claim, the claim until it is allocated, and then the allocation. Whatever happens in whatever order,
what counts follows from what was seen last of each object; only who is at the door is remembered, by uid, and goes by a clock.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from allocator.intake.newcomer import Wanted
from dra.objects import claim_name
from dra.policy import concerns, in_scope
from dra.stock import total
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from allocator.intake.newcomer import Newcomer
    from dra.objects import DeviceQuota, Pod, ResourceClaim, ResourceClaimSpec
    from dra.stock import Amounts, Stock

    FindPod = Callable[[str, str], Pod | None]
    FindSpec = Callable[[str, str], ResourceClaimSpec | None]  # the spec of a template, by namespace and name
    Demand = Callable[[ResourceClaimSpec], Amounts]

ENTRY = "resource.kubernetes.io/pod-claim-name"  # of which entry of its pod a claim was made
MOST_AT_THE_DOOR = 16384
MOST_SPECS = 4096  # that are one object
_Entry = tuple[str, str]  # a pod's uid and one of its entries


class _Guest(NamedTuple):
    """A pod or claim that was let in."""

    uid: str
    priority_class: str
    wants: Mapping[str, Wanted]
    until: float  # inf once it is seen


class _Waiting(NamedTuple):
    """A claim that nothing is allocated to, as far as was seen."""

    key: str
    spec: ResourceClaimSpec


class Book:
    """Knows what waits, namespace by namespace."""

    def __init__(self) -> None:
        self._guests: dict[str, dict[str, _Guest]] = {}  # by namespace and uid
        self._door: dict[
            str, str
        ] = {}  # the namespaces of those who are not seen yet, by uid, in the order in which they came
        self._claims: dict[str, dict[str, _Waiting]] = {}  # claims without devices, by namespace and uid
        self._entries: dict[str, _Entry] = {}  # by a claim's uid, what it was made for
        self._made: Counter[_Entry] = Counter()
        self._specs: dict[
            bytes, ResourceClaimSpec
        ] = {}  # by their text, so that equal ones are one object and one question

    # ---- who comes and goes

    def admit(self, newcomer: Newcomer, until: float) -> None:
        """Remember somebody who is let in."""
        uid = newcomer.uid
        here = self._guests.setdefault(newcomer.namespace, {})
        known = here.get(uid)
        if known is not None and known.until == inf:
            return
        wants = self._shared(newcomer.wants)
        here[uid] = _Guest(uid, newcomer.priority_class, wants, until)
        self._door.pop(uid, None)
        self._door[uid] = newcomer.namespace
        while len(self._door) > MOST_AT_THE_DOOR:
            self._drop(next(iter(self._door)))

    def expire(self, now: float) -> None:
        """Forget whom nobody has seen in time: the API server, or another webhook, has turned them back."""
        for uid, namespace in list(self._door.items()):
            guest = self._guests.get(namespace, {}).get(uid)
            if guest is None or guest.until <= now:
                self._drop(uid)

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
        here = self._guests.setdefault(meta.namespace or "default", {})
        priority_class = pod.spec.priority_class_name
        kept = self._shared(now)
        here[meta.uid] = _Guest(meta.uid, priority_class, kept, inf)
        self._door.pop(meta.uid, None)

    def lose_pod(self, pod: Pod) -> None:
        """Forget a pod that is done, or gone."""
        self._forget(pod.metadata.namespace or "default", pod.metadata.uid)

    def see_claim(self, claim: ResourceClaim) -> None:
        """Take a claim as it is stored."""
        meta = claim.metadata
        namespace = meta.namespace or "default"
        self._forget(namespace, meta.uid)  # it was at the door
        entry = _entry_of(claim)
        if self._entries.get(meta.uid) != entry:
            self._unmake(meta.uid)
            if entry is not None:
                self._entries[meta.uid] = entry
                self._made[entry] += 1
        here = self._claims.setdefault(namespace, {})
        if claim.status.allocation is not None:
            here.pop(meta.uid, None)
        elif meta.uid not in here:
            here[meta.uid] = _Waiting(meta.key, self._same(claim.spec))
        if not here:
            del self._claims[namespace]

    def lose_claim(self, claim: ResourceClaim) -> None:
        """Forget a claim that is gone."""
        meta = claim.metadata
        namespace = meta.namespace or "default"
        self._forget(namespace, meta.uid)
        self._unmake(meta.uid)
        here = self._claims.get(namespace, {})
        here.pop(meta.uid, None)
        if not here:
            self._claims.pop(namespace, None)

    # ---- what waits

    def waiting(
        self, quota: DeviceQuota, stock: Stock, *, demand: Demand, find_pod: FindPod, find_spec: FindSpec, but: str = ""
    ) -> Amounts:
        """Say how much of what a quota is about waits, without one pod or claim (a uid): it asks, and is perhaps asked about again."""
        counts: Counter[int] = Counter()
        specs: dict[int, ResourceClaimSpec] = {}
        namespace = quota.metadata.namespace or "default"
        for spec in chain(
            self._wanted_by_guests(quota, namespace, find_spec, but),
            self._wanted_by_claims(quota, namespace, stock, find_pod, but),
        ):
            number = id(spec)
            counts[number] += 1
            specs[number] = spec
        parts: list[Amounts] = []
        for number, count in counts.items():
            most = demand(specs[number])
            parts.append({key: amount * count for key, amount in most.items()})
        return total(parts)

    def _wanted_by_guests(
        self, quota: DeviceQuota, namespace: str, find_spec: FindSpec, but: str
    ) -> Iterator[ResourceClaimSpec]:
        for guest in self._guests.get(namespace, {}).values():
            if guest.uid == but or not in_scope(quota, guest.priority_class):
                continue
            for entry, wanted in guest.wants.items():
                if (guest.uid, entry) in self._made:
                    continue
                spec = find_spec(namespace, wanted.template) or wanted.spec
                if spec is not None:
                    yield spec

    def _wanted_by_claims(
        self, quota: DeviceQuota, namespace: str, stock: Stock, find_pod: FindPod, but: str
    ) -> Iterator[ResourceClaimSpec]:
        for uid, waiting in self._claims.get(namespace, {}).items():
            claim = stock.claims.get(waiting.key)
            if uid == but or claim is None or claim.status.allocation is not None:
                continue
            if concerns(quota, claim, find_pod):
                yield waiting.spec

    def _shared(self, wants: Mapping[str, Wanted]) -> dict[str, Wanted]:
        """Keep what many ask for in the same words once: it is one question then, however many wait."""
        shared: dict[str, Wanted] = {}
        for entry, wanted in wants.items():
            spec = wanted.spec
            shared[entry] = wanted if spec is None else Wanted(wanted.template, self._same(spec))
        return shared

    def _same(self, spec: ResourceClaimSpec) -> ResourceClaimSpec:
        """Find the object that stands for all specs with the same words."""
        if len(self._specs) >= MOST_SPECS:
            self._specs.clear()
        text = encode(spec)
        return self._specs.setdefault(text, spec)

    def _drop(self, uid: str) -> None:
        """Forget somebody at the door."""
        namespace = self._door.pop(uid)
        guest = self._guests.get(namespace, {}).get(uid)
        if guest is not None and guest.until < inf:
            self._forget(namespace, uid)

    def _forget(self, namespace: str, uid: str) -> None:
        self._door.pop(uid, None)
        here = self._guests.get(namespace, {})
        here.pop(uid, None)
        if not here:
            self._guests.pop(namespace, None)

    def _unmake(self, uid: str) -> None:
        """Take back that a claim was made for an entry of a pod."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        self._made[entry] -= 1
        if not self._made[entry]:
            del self._made[entry]


def _entry_of(claim: ResourceClaim) -> _Entry | None:
    """Say for which entry of which pod a claim was made."""
    entry = claim.metadata.annotations.get(ENTRY)
    owners = [owner.uid for owner in claim.metadata.owner_references if owner.controller and owner.kind == "Pod"]
    return (owners[0], entry) if owners and entry else None
