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
    """A claim that is still to be created; pods with equal requests share one WantedClaim in memory. A stored template takes precedence over `spec`."""

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
        self._created: Counter[Entry] = Counter()  # the number of claims created for each entry
        self._uncreated: Counter[_Wanted] = Counter()  # claims that are still to be created for pods
        self._unseen: Counter[_Wanted] = (
            Counter()
        )  # claims that were admitted themselves, and that no watch has shown yet

    @property
    def is_empty(self) -> bool:
        return not (self.admitted or self.claims or self._entries)

    def admit(self, new: AdmittedObject) -> None:
        """Add an admitted object, or replace the object with the same uid."""
        self.forget(new.uid)
        self.admitted[new.uid] = new
        for counter, claims in zip((self._uncreated, self._unseen), self._not_stored_of(new), strict=True):
            counter.update(claims)

    def forget(self, uid: str) -> None:
        admitted = self.admitted.pop(uid, None)
        if admitted is not None:
            for counter, claims in zip((self._uncreated, self._unseen), self._not_stored_of(admitted), strict=True):
                for wanted, count in claims.items():
                    _add(counter, wanted, -count)

    def record_claim(self, uid: str, entry: Entry | None) -> None:
        """Record which pod's entry a claim was created for, if any."""
        if self._entries.get(uid) == entry:
            return
        self.forget_claim(uid)
        if entry is None:
            return
        self._entries[uid] = entry
        self._created[entry] += 1
        if self._created[entry] == 1:
            self._count_entry(entry, -1)

    def forget_claim(self, uid: str) -> None:
        """Undo `record_claim` for a deleted claim."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        self._created[entry] -= 1
        if not self._created[entry]:
            del self._created[entry]
            self._count_entry(entry, 1)

    def not_stored(
        self, except_uid: str = "", *, excludes_uncreated: bool = False
    ) -> Iterator[tuple[str, WantedClaim, int]]:
        """Yield the claims that are not stored yet: the priority class, the claim, and how many claims are equal to it.

        Claims of the object `except_uid` do not count. With `excludes_uncreated`, claims that are still to be created for pods do not
        count: only those count that were admitted themselves.
        """
        excluded = self.admitted.get(except_uid)
        own_uncreated, own_unseen = (
            self._not_stored_of(excluded) if excluded is not None else (Counter[_Wanted](), Counter[_Wanted]())
        )
        counters = [(self._unseen, own_unseen)]
        if not excludes_uncreated:
            counters.append((self._uncreated, own_uncreated))
        for counter, own in counters:
            for wanted, count in counter.items():
                if others := count - own[wanted]:
                    yield *wanted, others

    def _not_stored_of(self, admitted: AdmittedObject) -> tuple[Counter[_Wanted], Counter[_Wanted]]:
        """Return the claims that are still to be created for a pod, and in the second counter the object itself if it is a claim."""
        uncreated, unseen = Counter[_Wanted](), Counter[_Wanted]()
        for name, claim in admitted.claims.items():
            if (admitted.uid, name) not in self._created:
                (unseen if name == OWN else uncreated)[admitted.priority_class, claim] += 1
        return uncreated, unseen

    def _count_entry(self, entry: Entry, by: int) -> None:
        uid, name = entry
        admitted = self.admitted.get(uid)
        if admitted is not None and name in admitted.claims:
            _add(self._uncreated, (admitted.priority_class, admitted.claims[name]), by)


def _add(counter: Counter[_Wanted], wanted: _Wanted, by: int) -> None:
    counter[wanted] += by
    if not counter[wanted]:
        del counter[wanted]
