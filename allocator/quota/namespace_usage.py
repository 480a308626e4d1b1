"""The pending usage of one namespace: admitted objects, unallocated claims, and counts of claims still to be created.

The counts are updated when objects change, so that a review need not iterate over thousands of pods.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from dra.objects import ResourceClaimSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Entry: TypeAlias = tuple[str, str]  # a pod's uid, and the name of one of its `resourceClaims`
_Wanted: TypeAlias = "tuple[str, WantedClaim]"  # a priority class, and the requested claim


class WantedClaim(msgspec.Struct, frozen=True, eq=False):
    """A claim that is still to be created; pods with equal requests share one object. A stored template takes precedence over `spec`."""

    template: str  # the template's name
    spec: ResourceClaimSpec | None
    classes: frozenset[str]


class AdmittedObject(NamedTuple):
    """A pod or claim that was admitted."""

    uid: str
    priority_class: str
    claims: Mapping[str, WantedClaim]  # by the name of the pod's entry, or OWN
    until: float  # when the admission expires; inf once the object appears in a watch


class UnallocatedClaim(NamedTuple):
    """A claim last seen without an allocation."""

    key: str
    spec: ResourceClaimSpec
    classes: frozenset[str]


OWN = ""  # in `claims` of an admitted claim, the key of the claim itself


class NamespaceUsage:
    """The objects of a namespace that wait for devices, and the claims they wait for."""

    def __init__(self) -> None:
        self.claims: dict[str, UnallocatedClaim] = {}  # by uid
        self.admitted: dict[str, AdmittedObject] = {}  # by uid
        self._entries: dict[str, Entry] = {}  # the pod's entry that a claim was created for, by the claim's uid
        self._made: Counter[Entry] = Counter()  # the number of claims created for each entry
        self._missing: Counter[_Wanted] = Counter()  # claims still to be created for pods
        self._unseen: Counter[_Wanted] = Counter()  # claims that were admitted but not seen yet

    @property
    def is_empty(self) -> bool:
        return not (self.admitted or self.claims or self._entries)

    def admit(self, new: AdmittedObject) -> None:
        """Add an admitted object, or replace the object with the same uid."""
        self.forget(new.uid)
        self.admitted[new.uid] = new
        for counter, uncreated in zip((self._missing, self._unseen), self._uncreated(new), strict=True):
            counter.update(uncreated)

    def forget(self, uid: str) -> None:
        admitted = self.admitted.pop(uid, None)
        if admitted is not None:
            for counter, uncreated in zip((self._missing, self._unseen), self._uncreated(admitted), strict=True):
                for wanted, count in uncreated.items():
                    _add(counter, wanted, -count)

    def record_claim(self, uid: str, entry: Entry | None) -> None:
        """Record which pod's entry a claim was created for, if any."""
        if self._entries.get(uid) == entry:
            return
        self.forget_claim(uid)
        if entry is None:
            return
        self._entries[uid] = entry
        self._made[entry] += 1
        if self._made[entry] == 1:
            self._count_entry(entry, -1)

    def forget_claim(self, uid: str) -> None:
        """Undo `record_claim` for a deleted claim."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        self._made[entry] -= 1
        if not self._made[entry]:
            del self._made[entry]
            self._count_entry(entry, 1)

    def missing(self, except_uid: str = "", *, claims_only: bool = False) -> Iterator[tuple[str, WantedClaim, int]]:
        """Yield the claims that are not stored yet: the priority class, the claim, and how many there are of it.

        Claims of the object `except_uid` do not count. With `claims_only`, claims that are still to be created for pods do not count.
        """
        excluded = self.admitted.get(except_uid)
        own_missing, own_unseen = (
            self._uncreated(excluded) if excluded is not None else (Counter[_Wanted](), Counter[_Wanted]())
        )
        counters = (
            [(self._unseen, own_unseen)] if claims_only else [(self._unseen, own_unseen), (self._missing, own_missing)]
        )
        for counter, own in counters:
            for wanted, count in counter.items():
                if others := count - own[wanted]:
                    yield *wanted, others

    def _uncreated(self, admitted: AdmittedObject) -> tuple[Counter[_Wanted], Counter[_Wanted]]:
        """Return the claims that are still to be created for a pod. If the object is a claim itself, return it in the second counter."""
        missing, unseen = Counter[_Wanted](), Counter[_Wanted]()
        for entry, claim in admitted.claims.items():
            if (admitted.uid, entry) not in self._made:
                (unseen if entry == OWN else missing)[admitted.priority_class, claim] += 1
        return missing, unseen

    def _count_entry(self, entry: Entry, by: int) -> None:
        uid, name = entry
        admitted = self.admitted.get(uid)
        if admitted is not None and name in admitted.claims:
            _add(self._missing, (admitted.priority_class, admitted.claims[name]), by)


def _add(counter: Counter[_Wanted], wanted: _Wanted, by: int) -> None:
    counter[wanted] += by
    if not counter[wanted]:
        del counter[wanted]
