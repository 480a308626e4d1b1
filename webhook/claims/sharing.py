"""Which container sees which claim: regular containers, sidecars, and init containers that reuse what comes after them.

A pod's legacy request is the larger of what its lasting containers take together and what each init container takes
beside the sidecars already running (Kubernetes' effective request). Claims last as long as the pod, so an init container
must be handed devices that a later container's claim holds anyway, or the pod would need more than before.

Whole devices are numbered: sidecars first, then regular containers, each a span of its own; an init container takes the
span that begins after the sidecars started before it. There is one claim for each stretch between the ends of spans, so
every container names whole claims. (References to single requests of a claim would do as well, but a container's list
of claims is keyed by their names alone, and server-side apply may stumble over two entries of one name.) Shares can't
be cut: an init container joins a lasting container's claim if that covers what it needs, else it gets one of its own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from dra.objects import ResourceClaimSpec
from webhook.claims.spec import LIMIT, Claims
from webhook.dialects import Demand, Pairs

if TYPE_CHECKING:
    from collections.abc import Callable


class Wish(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One demand of one container, and the claims that serve it. `order` is the container's place in starting order."""

    container: str
    demand: Demand | Pairs
    claims: Claims
    separable: bool
    order: int
    init: bool = False  # ends before the containers after it begin
    sidecar: bool = False


class Grant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One claim, and the containers that are given it."""

    spec: ResourceClaimSpec
    owner: str  # the container it is named for, "" for the pod
    base: str
    users: tuple[str, ...]


class Shared(msgspec.Struct, frozen=True, gc=False):
    """The grants of a pod, and what has to be said about single containers."""

    grants: tuple[Grant, ...]
    remarks: tuple[tuple[str, str], ...] = ()


def share(wishes: tuple[Wish, ...], make: Callable[[Demand], Claims]) -> Shared:
    """Turn wishes into grants. `make` builds claims for another number of the same devices."""
    inits = [wish for wish in wishes if wish.init]
    if not inits:
        return Shared(tuple(grant for wish in wishes for grant in _own(wish)))
    grants: list[Grant] = []
    remarks: list[tuple[str, str]] = []
    numbered = {_kind(wish) for wish in inits if _countable(wish)}
    for kind in sorted(numbered, key=repr):
        grants += _spans([wish for wish in wishes if _countable(wish) and _kind(wish) == kind], make)
    rest = [wish for wish in wishes if not (_countable(wish) and _kind(wish) in numbered)]
    joined, said = _joined(rest)
    return Shared((*grants, *joined), (*remarks, *said))


def _own(wish: Wish) -> list[Grant]:
    return [_grant(wish, spec, (wish.container,)) for spec in wish.claims.specs]


def _grant(wish: Wish, spec: ResourceClaimSpec, users: tuple[str, ...]) -> Grant:
    return Grant(spec=spec, owner=wish.container, base=wish.claims.base, users=users)


def _countable(wish: Wish) -> bool:
    demand = wish.demand
    return isinstance(demand, Demand) and wish.separable and not (demand.partial or demand.same or demand.everything)


def _kind(wish: Wish) -> Demand:
    assert isinstance(wish.demand, Demand)
    return wish.demand.times(1)


def _count(wish: Wish) -> int:
    assert isinstance(wish.demand, Demand)
    return wish.demand.count


class _Span(msgspec.Struct, frozen=True, gc=False):
    wish: Wish
    low: int
    high: int


def _spans(wishes: list[Wish], make: Callable[[Demand], Claims]) -> list[Grant]:
    """Number whole devices of one kind, and make a claim for each stretch that the same containers see."""
    lasting: list[_Span] = []
    total = 0
    for wish in sorted((w for w in wishes if not w.init), key=lambda w: (not w.sidecar, w.order)):
        lasting.append(_Span(wish, total, total + _count(wish)))
        total += _count(wish)
    passing = []
    for wish in (w for w in wishes if w.init):
        low = sum(_count(w) for w in wishes if w.sidecar and w.order < wish.order)
        passing.append(_Span(wish, low, low + _count(wish)))
    longest = max(passing, key=lambda span: span.high)
    if longest.high > total:  # only init containers need so many
        lasting.append(_Span(longest.wish, total, longest.high))
    return [
        _stretch(span, low, high, passing, make(_kind(span.wish).times(high - low)))
        for span in lasting
        for low, high in pairwise(_edges(span, passing))
    ]


def _edges(span: _Span, passing: list[_Span]) -> list[int]:
    """Where a span has to be cut: at the ends of others, and where a claim is full."""
    ends = {edge for other in passing for edge in (other.low, other.high) if span.low < edge < span.high}
    edges = [span.low]
    for edge in (*sorted(ends), span.high):
        edges += range(edges[-1] + LIMIT, edge, LIMIT)
        edges.append(edge)
    return edges


def _stretch(span: _Span, low: int, high: int, passing: list[_Span], claims: Claims) -> Grant:
    guests = (other.wish.container for other in passing if other.low <= low and high <= other.high)
    users = dict.fromkeys((*(() if span.wish.init else (span.wish.container,)), *guests))
    return _grant(span.wish, claims.specs[0], tuple(users))


def _joined(wishes: list[Wish]) -> tuple[list[Grant], list[tuple[str, str]]]:
    """Let init containers join claims that cover them; the others get their own."""
    remarks: list[tuple[str, str]] = []
    guests: dict[int, list[Wish]] = {}
    hosts: list[Wish] = [wish for wish in wishes if not wish.init]
    for wish in sorted((w for w in wishes if w.init), key=lambda w: w.order):
        found = next((i for i, h in enumerate(hosts) if _may_host(h, wish)), None)
        if found is None:
            hosts.append(wish)
            if any(not h.init for h in hosts):
                remarks.append(
                    (wish.container, "an init container's devices stay reserved for as long as the pod lives")
                )
            continue
        guests.setdefault(found, []).append(wish)
        if hosts[found].demand != wish.demand:
            remarks.append((wish.container, f"uses the larger claim of container {hosts[found].container}"))
    grants = []
    for i, host in enumerate(hosts):
        users = tuple(wish.container for wish in (host, *guests.get(i, ())))
        grants += [_grant(host, spec, users) for spec in host.claims.specs]
    return grants, remarks


def _may_host(host: Wish, guest: Wish) -> bool:
    """A sidecar that runs beside the init container needs its devices itself."""
    if host.container == guest.container or (host.sidecar and host.order < guest.order):
        return False
    if isinstance(host.demand, Pairs) or isinstance(guest.demand, Pairs):
        return host.demand == guest.demand
    return covers(host.demand, guest.demand)


def covers(large: Demand, small: Demand) -> bool:
    """Say whether devices that meet one demand meet another: same filters, no less of anything."""
    strip = {"count": 1, "memory": None, "memory_percent": None, "cores": None}
    if msgspec.structs.replace(large, **strip) != msgspec.structs.replace(small, **strip) or large.count < small.count:
        return False
    if not large.partial:
        return True
    if not small.partial or large.memory_percent != small.memory_percent:
        return False
    memory = large.memory is None or (small.memory is not None and small.memory <= large.memory)
    return memory and (large.cores or 0) >= (small.cores or 0)
