"""What waits in one namespace: who was let in, claims without devices, and how often which claim is still wanted.

What is wanted is counted as it changes, so that nobody walks through a crowd to learn what it waits for.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from dra.objects import ResourceClaimSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Entry: TypeAlias = tuple[str, str]  # a pod's uid and one of its entries


class Wish(msgspec.Struct, frozen=True, eq=False):
    """What many ask for in the same words: the claim of a template that is stored under a name, or else of this spec."""

    template: str
    spec: ResourceClaimSpec | None
    classes: frozenset[str]


class Guest(NamedTuple):
    """A pod or claim that was let in."""

    uid: str
    priority_class: str
    wants: Mapping[str, Wish]  # by the pod's entry
    until: float  # inf once it is seen


class WaitingClaim(NamedTuple):
    """A claim that nothing is allocated to, as far as was seen."""

    key: str
    spec: ResourceClaimSpec
    classes: frozenset[str]


class Wishes(NamedTuple):
    """A claim that pods of one priority class are still without, and how many of them are."""

    priority_class: str
    wish: Wish
    how_many: int


class WaitingRoom:
    """Who waits in a namespace, and for what."""

    def __init__(self) -> None:
        self.claims: dict[str, WaitingClaim] = {}  # by uid
        self._guests: dict[str, Guest] = {}  # by uid
        self._entries: dict[str, Entry] = {}  # by a claim's uid, what it was made for
        self._made: Counter[Entry] = Counter()
        self._wanted: Counter[tuple[str, Wish]] = Counter()

    @property
    def is_empty(self) -> bool:
        return not (self._guests or self.claims or self._entries)

    def guest(self, uid: str) -> Guest | None:
        """Find who was let in."""
        return self._guests.get(uid)

    def receive(self, guest: Guest) -> None:
        """Let somebody in, in the place of who had this uid before."""
        self.dismiss(guest.uid)
        self._guests[guest.uid] = guest
        for wish in self._open_wants(guest):
            self._count(guest, wish, 1)

    def dismiss(self, uid: str) -> None:
        """Forget somebody."""
        guest = self._guests.pop(uid, None)
        if guest is None:
            return
        for wish in self._open_wants(guest):
            self._count(guest, wish, -1)

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

    def wishes(self, but: str = "") -> Iterator[Wishes]:
        """List what is still wanted, by all but one (a uid)."""
        guest = self._guests.get(but)
        own: Counter[tuple[str, Wish]] = Counter()
        if guest is not None:
            wants = self._open_wants(guest)
            own.update((guest.priority_class, wish) for wish in wants)
        for kind, count in self._wanted.items():
            others = count - own[kind]
            if others:
                yield Wishes(*kind, others)

    def _open_wants(self, guest: Guest) -> Iterator[Wish]:
        """List what somebody wants that no claim is made for."""
        for entry, wish in guest.wants.items():
            if (guest.uid, entry) not in self._made:
                yield wish

    def _count_entry(self, entry: Entry, by: int) -> None:
        uid, name = entry
        guest = self._guests.get(uid)
        wish = guest.wants.get(name) if guest is not None else None
        if guest is not None and wish is not None:
            self._count(guest, wish, by)

    def _count(self, guest: Guest, wish: Wish, by: int) -> None:
        kind = guest.priority_class, wish
        self._wanted[kind] += by
        if not self._wanted[kind]:
            del self._wanted[kind]
