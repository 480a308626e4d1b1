"""What waits in one namespace: objects that were admitted, claims without devices, and how often which claim is still to be made.

What is still to be made is counted as it changes, so that no question walks through a thousand pods to learn what they wait for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from dra.objects import ResourceClaimSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Entry: TypeAlias = tuple[str, str]  # a pod's uid and one of its entries


class SharedClaim(msgspec.Struct, frozen=True, eq=False):
    """A claim that many pods ask for in the same words: of a template that is stored under a name, or else of this spec."""

    template: str
    spec: ResourceClaimSpec | None
    classes: frozenset[str]


class AdmittedObject(NamedTuple):
    """A pod or claim that was admitted."""

    uid: str
    priority_class: str
    claims: Mapping[str, SharedClaim]  # by the pod's entry
    until: float  # inf once it is seen


class UnallocatedClaim(NamedTuple):
    """A claim that nothing is allocated to, as far as was seen."""

    key: str
    spec: ResourceClaimSpec
    classes: frozenset[str]


class NamespaceUsage:
    """The objects that wait in a namespace, and for what."""

    def __init__(self) -> None:
        self.claims: dict[str, UnallocatedClaim] = {}  # by uid
        self.admitted: dict[str, AdmittedObject] = {}  # by uid
        self._entries: dict[str, Entry] = {}  # by a claim's uid, what it was made for
        self._made: Counter[Entry] = Counter()
        self._missing: Counter[tuple[str, SharedClaim]] = Counter()  # by priority class

    @property
    def is_empty(self) -> bool:
        return not (self.admitted or self.claims or self._entries)

    def admit(self, new: AdmittedObject) -> None:
        """Take in an object, in the place of one that had its uid before."""
        self.forget(new.uid)
        self.admitted[new.uid] = new
        for claim in self._missing_of(new):
            self._count(new, claim, 1)

    def forget(self, uid: str) -> None:
        """Forget an admitted object."""
        known = self.admitted.pop(uid, None)
        if known is not None:
            for claim in self._missing_of(known):
                self._count(known, claim, -1)

    def make(self, uid: str, entry: Entry | None) -> None:
        """Note for which entry of which pod a claim was made, if for any."""
        if self._entries.get(uid) == entry:
            return
        self.unmake(uid)
        if entry is None:
            return
        self._entries[uid] = entry
        self._made[entry] += 1
        if self._made[entry] == 1:
            self._count_entry(entry, -1)

    def unmake(self, uid: str) -> None:
        """Take back that a claim was made for an entry."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        self._made[entry] -= 1
        if not self._made[entry]:
            del self._made[entry]
            self._count_entry(entry, 1)

    def missing(self, but: str = "") -> Iterator[tuple[str, SharedClaim, int]]:
        """List by priority class the claims that are still to be made, and how many; without those of one object (a uid)."""
        known = self.admitted.get(but)
        own: Counter[tuple[str, SharedClaim]] = Counter()
        if known is not None:
            own.update((known.priority_class, claim) for claim in self._missing_of(known))
        for (priority_class, claim), count in self._missing.items():
            others = count - own[priority_class, claim]
            if others:
                yield priority_class, claim, others

    def _missing_of(self, admitted: AdmittedObject) -> list[SharedClaim]:
        return [claim for entry, claim in admitted.claims.items() if (admitted.uid, entry) not in self._made]

    def _count_entry(self, entry: Entry, by: int) -> None:
        uid, name = entry
        admitted = self.admitted.get(uid)
        if admitted is not None and name in admitted.claims:
            self._count(admitted, admitted.claims[name], by)

    def _count(self, admitted: AdmittedObject, claim: SharedClaim, by: int) -> None:
        kind = admitted.priority_class, claim
        self._missing[kind] += by
        if not self._missing[kind]:
            del self._missing[kind]
