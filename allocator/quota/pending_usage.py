"""Objects admitted under a DeviceQuota that have no devices yet. They count with the most devices that they may get:

    unseen        a pod or claim that was admitted and has not appeared in a watch, until it appears or expires
    a pod         seen and not finished: each of its claim templates for which no claim was seen
    a claim       seen and unallocated, with or without a pod

A claim with devices counts in the stock from the moment of its reservation. So everything counts once: a pod's template until its
claim is created, then the claim until it is allocated, and then the allocation. The count depends only on the last seen state of each
object, not on the order of events. Unseen objects are remembered by uid, for a limited time.

A claim may have a megabyte, and a client may create and delete thousands of different ones, so the memory of unseen objects is
limited in bytes.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from allocator.quota.namespace_usage import AdmittedObject, NamespaceUsage, UnallocatedClaim, WantedClaim
from allocator.quota.quota_admission import EXTENDED, entry_of
from dra.cache import Cache
from dra.objects import claim_name
from dra.policy import concerns, in_scope, limits_of
from dra.stock import ALL_CLASSES, total
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from allocator.quota.quota_admission import Demand, FindSpec, FutureClaim, NewObject
    from dra.objects import DeviceQuota, Pod, ResourceClaim, ResourceClaimSpec
    from dra.stock import Amounts, Stock

    FindPod = Callable[[str, str], Pod | None]

REMEMBERED = 30.0  # seconds until an unseen object expires: the longest timeout of another webhook, which may still refuse the object
DEFAULT = "default"  # the namespace of an object that names none
MAX_UNSEEN = 16384
UNSEEN_BYTES = 64 << 20
SHARED_BYTES = 8 << 20  # for interned specs, and the same number for shared claims
_SMALLEST_SPEC = 2048  # bytes, including overhead
_EMPTY = NamespaceUsage()  # of a namespace without pending objects


class _Interned(NamedTuple):
    """The one object kept for all equal specs, and its approximate size in bytes with its encoding."""

    spec: ResourceClaimSpec
    weight: int
    classes: frozenset[str]  # DeviceClasses that the spec requests


class PendingUsage:
    """The pending usage of all namespaces."""

    def __init__(self, remembered: float = REMEMBERED) -> None:
        """Remember unseen objects for this many seconds of a monotonic clock."""
        self._remembered = remembered
        self._namespaces: dict[str, NamespaceUsage] = {}
        # The size of each unseen object in bytes, by namespace and uid, the oldest first.
        self._unseen: dict[tuple[str, str], int] = {}
        self._unseen_bytes = 0
        # Specs by their encoding, and claims by template and spec. Equal specs are one object, as are equal claims, so each is evaluated
        # only once.
        self._specs: Cache[_Interned] = Cache(SHARED_BYTES)
        self._wanted_claims: Cache[WantedClaim] = Cache(SHARED_BYTES)

    # ---- changes of objects

    def admit(self, new: NewObject, now: float) -> None:
        """Remember an admitted object until it appears in a watch or expires."""
        uid, namespace = new.uid, new.namespace or DEFAULT
        usage = self._namespace(namespace)
        earlier = usage.admitted.get(uid)
        if earlier is not None and earlier.until == inf:
            return
        claims, weight = self._intern_claims(new.claims)
        usage.admit(AdmittedObject(uid, new.priority_class, claims, now + self._remembered))
        if new.entry is not None:
            usage.record_claim(uid, new.entry.key)
        self._unseen_bytes += weight - self._unseen.pop((namespace, uid), 0)
        self._unseen[namespace, uid] = weight
        while len(self._unseen) > MAX_UNSEEN or self._unseen_bytes > UNSEEN_BYTES:
            self._drop(*next(iter(self._unseen)))

    def expire(self, now: float) -> None:
        """Forget the objects that did not appear in time, because the API server or another webhook refused them."""
        while self._unseen:
            namespace, uid = next(iter(self._unseen))
            oldest = self._namespace(namespace).admitted.get(uid)
            if oldest is not None and oldest.until > now:
                return
            self._drop(namespace, uid)

    def see_pod(self, pod: Pod, claims: Mapping[str, FutureClaim]) -> None:
        """Record a stored pod and the claims that will be created for it."""
        if pod.is_done or not claims:
            self.lose_pod(pod)
            return
        meta = pod.metadata
        entries = [entry for entry in pod.spec.resource_claims if entry.name in claims]
        future_claims = {entry.name: claims[entry.name] for entry in entries if claim_name(pod, entry) is not None}
        if EXTENDED in claims:
            future_claims[EXTENDED] = claims[EXTENDED]
        interned_claims, _ = self._intern_claims(future_claims)
        namespace = meta.namespace or DEFAULT
        self._namespace(namespace).admit(AdmittedObject(meta.uid, pod.spec.priority_class_name, interned_claims, inf))
        self._unseen_bytes -= self._unseen.pop((namespace, meta.uid), 0)

    def lose_pod(self, pod: Pod) -> None:
        """Forget a pod that is finished or deleted."""
        self._forget(pod.metadata.namespace or DEFAULT, pod.metadata.uid)

    def see_claim(self, claim: ResourceClaim) -> None:
        meta = claim.metadata
        namespace = meta.namespace or DEFAULT
        self._forget(namespace, meta.uid)  # it is no longer unseen
        usage = self._namespace(namespace)
        entry = entry_of(claim)
        usage.record_claim(meta.uid, entry.key if entry is not None else None)
        if claim.status.allocation is not None:
            usage.claims.pop(meta.uid, None)
        elif meta.uid not in usage.claims:
            interned = self._intern_spec(claim.spec)
            usage.claims[meta.uid] = UnallocatedClaim(meta.key, interned.spec, interned.classes)
        self._clear(namespace)

    def lose_claim(self, claim: ResourceClaim) -> None:
        meta = claim.metadata
        namespace = meta.namespace or DEFAULT
        self._forget(namespace, meta.uid)
        usage = self._namespace(namespace)
        usage.forget_claim(meta.uid)
        usage.claims.pop(meta.uid, None)
        self._clear(namespace)

    # ---- pending usage

    def waiting(
        self,
        quota: DeviceQuota,
        stock: Stock,
        *,
        demand: Demand,
        find_pod: FindPod,
        find_spec: FindSpec,
        except_uid: str = "",
        excludes_uncreated: bool = False,
    ) -> Amounts:
        """Return the pending usage under a quota. The object `except_uid` does not count, because it may be reviewed a second time.

        With `excludes_uncreated`, claims that are still to be created for pods do not count. Objects without a class of the quota are skipped
        first, because a tenant may store any number of them.
        """
        class_names = {limit.class_name for limit in limits_of(quota)}
        namespace = quota.metadata.namespace or DEFAULT
        usage = self._namespaces.get(namespace, _EMPTY)
        counts: Counter[int] = Counter()
        specs: dict[int, ResourceClaimSpec] = {}
        for priority_class, wanted_claim, count in usage.not_stored(except_uid, excludes_uncreated=excludes_uncreated):
            template_spec = find_spec(namespace, wanted_claim.template)
            spec = template_spec if template_spec is not None else wanted_claim.spec
            classes = _classes(template_spec) if template_spec is not None else wanted_claim.classes
            if spec is not None and _names(class_names, classes) and in_scope(quota, priority_class):
                counts[id(spec)] += count
                specs[id(spec)] = spec
        for uid, pending_claim in usage.claims.items():
            if uid == except_uid or not _names(class_names, pending_claim.classes):
                continue
            claim = stock.claims.get(pending_claim.key)
            if claim is not None and claim.status.allocation is None and concerns(quota, claim, find_pod):
                counts[id(pending_claim.spec)] += 1
                specs[id(pending_claim.spec)] = pending_claim.spec
        parts: list[Amounts] = []
        for number, count in counts.items():
            largest = demand(specs[number])
            parts.append({key: amount * count for key, amount in largest.items()})
        return total(parts)

    def _intern_claims(self, claims: Mapping[str, FutureClaim]) -> tuple[dict[str, WantedClaim], int]:
        """Intern the claims. Return them, and the number of bytes that were added."""
        shared: dict[str, WantedClaim] = {}
        added = 0
        for entry, claim in claims.items():
            spec, weight, classes = (
                (None, _SMALLEST_SPEC, frozenset[str]()) if claim.spec is None else self._intern_spec(claim.spec)
            )
            key = claim.template, id(spec)  # the cached claim keeps its spec alive
            wanted_claim = self._wanted_claims.get(key)
            if wanted_claim is None:
                wanted_claim = WantedClaim(claim.template, spec, classes)
                self._wanted_claims.put(key, wanted_claim, weight)
                added += weight
            shared[entry] = wanted_claim
        return shared, added

    def _intern_spec(self, spec: ResourceClaimSpec) -> _Interned:
        text = encode(spec)
        interned = self._specs.get(text)
        if interned is None:
            interned = _Interned(spec, _SMALLEST_SPEC + 2 * len(text), _classes(spec))
            self._specs.put(text, interned, interned.weight)
        return interned

    # ---- namespaces

    def _namespace(self, namespace: str) -> NamespaceUsage:
        return self._namespaces.setdefault(namespace, NamespaceUsage())

    def _clear(self, namespace: str) -> None:
        """Drop a namespace without pending objects."""
        usage = self._namespaces.get(namespace)
        if usage is not None and usage.is_empty:
            del self._namespaces[namespace]

    def _drop(self, namespace: str, uid: str) -> None:
        """Forget an object that did not appear. If it is a claim for a pod, that claim counts as still to be created again."""
        self._namespace(namespace).forget_claim(uid)
        self._forget(namespace, uid)

    def _forget(self, namespace: str, uid: str) -> None:
        self._unseen_bytes -= self._unseen.pop((namespace, uid), 0)
        usage = self._namespaces.get(namespace)
        if usage is not None:
            usage.forget(uid)
            self._clear(namespace)


def _classes(spec: ResourceClaimSpec) -> frozenset[str]:
    """Return the DeviceClasses that a spec requests."""
    classes: set[str] = set()
    for request in spec.devices.requests:
        classes.update(alternative.device_class_name for alternative in request.alternatives.values())
    return frozenset(classes)


def _names(class_names: set[str], classes: frozenset[str]) -> bool:
    return ALL_CLASSES in class_names or not class_names.isdisjoint(classes)
