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
from msgspec.structs import replace

from dra.objects import ResourceClaimSpec
from dra.policy import PASS
from webhook import names
from webhook.claims.spec import LIMIT, Claims
from webhook.dialects import Asked, Demand

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra.objects import DeviceRequest


class Wish(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One demand of one container, and the claims that serve it. `order` is the container's place in starting order."""

    container: str
    demand: Asked
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


class Sharing(msgspec.Struct, frozen=True, gc=False):
    """The grants of a pod, and what has to be said about single containers."""

    grants: tuple[Grant, ...]
    remarks: tuple[tuple[str, str], ...] = ()


def share(wishes: tuple[Wish, ...], make: Callable[[Demand], Claims]) -> Sharing:
    """Turn wishes into grants. `make` builds claims for another number of the same devices."""
    # Whole devices of one kind that an init container asks for, too, are numbered; everything else is taken as it is.
    numbered: dict[Demand, list[Wish]] = {}
    any_init = False
    for wish in wishes:
        if wish.init:
            any_init = True
            if kind := _kind(wish):
                numbered[kind] = []
    grants: list[Grant] = []
    if not any_init:
        for wish in wishes:
            grants += _grants(wish, (wish.container,))
        return Sharing(tuple(grants))
    rest: list[Wish] = []
    for wish in wishes:
        kind = _kind(wish)
        (numbered.get(kind, rest) if kind else rest).append(wish)
    for kind in sorted(numbered, key=repr):
        grants += _number(kind, numbered[kind], make)
    joined, remarks = _join(rest)
    grants += joined
    return Sharing(tuple(grants), tuple(remarks))


def _grants(wish: Wish, users: tuple[str, ...]) -> list[Grant]:
    """Give these containers the claims of a wish."""
    grants: list[Grant] = []
    for spec in wish.claims.specs:
        grant = Grant(spec=spec, owner=wish.container, base=wish.claims.base, users=users)
        grants.append(grant)
    return grants


def _kind(wish: Wish) -> Demand | None:
    """What devices it asks for, the number aside; None where they can't be numbered."""
    demand = wish.demand
    if not isinstance(demand, Demand) or not wish.separable or demand.partial or demand.same or demand.everything:
        return None
    return demand.times(1)


# Whole devices


class _Span(msgspec.Struct, frozen=True, gc=False):
    """The devices `low` up to, without, `high`, which a container is to see."""

    wish: Wish
    low: int
    high: int


def _count(wish: Wish) -> int:
    return wish.demand.count if isinstance(wish.demand, Demand) else 0


def _number(kind: Demand, wishes: list[Wish], make: Callable[[Demand], Claims]) -> list[Grant]:
    """Number whole devices of one kind, and make a claim for each stretch that the same containers see."""
    # Sidecars first, then regular containers, one after the other.
    lasting: list[_Span] = []
    total = 0
    for wish in sorted(wishes, key=lambda one: (not one.sidecar, one.order)):
        if not wish.init:
            lasting.append(_Span(wish, total, total + _count(wish)))
            total += _count(wish)
    # An init container begins where the sidecars end that were started before it.
    passing: list[_Span] = []
    started = 0
    for wish in sorted(wishes, key=lambda one: one.order):
        if wish.sidecar:
            started += _count(wish)
        elif wish.init:
            passing.append(_Span(wish, started, started + _count(wish)))
    longest = max(passing, key=lambda span: span.high)
    if longest.high > total:  # only init containers need so many
        lasting.append(_Span(longest.wish, total, longest.high))
    in_order = sorted({end for span in passing for end in (span.low, span.high)})
    grants: list[Grant] = []
    for span in lasting:
        wish = span.wish
        # A span is cut at the ends of others, and where a claim is full.
        edges = [span.low]
        for edge in (*(end for end in in_order if span.low < end < span.high), span.high):
            edges += range(edges[-1] + LIMIT, edge, LIMIT)
            edges.append(edge)
        for low, high in pairwise(edges):
            users = [] if wish.init else [wish.container]
            users += [other.wish.container for other in passing if other.low <= low and high <= other.high]
            spec = make(kind.times(high - low)).specs[0]
            seen_by = tuple(dict.fromkeys(users))
            grants.append(Grant(spec=spec, owner=wish.container, base=wish.claims.base, users=seen_by))
    return grants


# Everything else


class _Host(msgspec.Struct, gc=False):
    """A wish that has claims of its own, and those that use them, too."""

    wish: Wish
    users: list[str]


def _join(wishes: list[Wish]) -> tuple[list[Grant], list[tuple[str, str]]]:
    """Let init containers join claims that cover them; the others get their own."""
    remarks: list[tuple[str, str]] = []
    hosts = [_Host(wish, [wish.container]) for wish in wishes if not wish.init]
    alike: dict[Asked, list[_Host]] = {}
    for host in hosts:
        alike.setdefault(_bare(host.wish.demand), []).append(host)
    anything_lasts = bool(hosts)
    for wish in sorted([wish for wish in wishes if wish.init], key=lambda one: one.order):
        candidates = alike.setdefault(_bare(wish.demand), [])
        found = next((host for host in candidates if _may_host(host.wish, wish)), None)
        if found is None:
            host = _Host(wish, [wish.container])
            hosts.append(host)
            candidates.append(host)
            if anything_lasts:
                remarks.append(
                    (wish.container, "an init container's devices stay reserved for as long as the pod lives")
                )
            continue
        found.users.append(wish.container)
        if found.wish.demand != wish.demand:
            remarks.append((wish.container, f"uses the larger claim of container {found.wish.container}"))
    return [grant for host in hosts for grant in _grants(host.wish, tuple(host.users))], remarks


def _may_host(host: Wish, other: Wish) -> bool:
    """Whether an init container may use another container's claim; a sidecar beside it needs its devices itself."""
    if host.container == other.container or (host.sidecar and host.order < other.order):
        return False
    if not (isinstance(host.demand, Demand) and isinstance(other.demand, Demand)):
        return host.demand == other.demand
    return _is_no_less(host.demand, other.demand)


def covers(large: Demand, small: Demand) -> bool:
    """Say whether devices that meet one demand meet another: same filters, no less of anything."""
    return _bare(large) == _bare(small) and _is_no_less(large, small)


def _bare(demand: Asked) -> Asked:
    """A demand without its amounts: devices are interchangeable only where this is the same."""
    if not isinstance(demand, Demand):
        return demand
    return replace(demand, count=1, memory=None, memory_percent=None, cores=None)


def _is_no_less(large: Demand, small: Demand) -> bool:
    if large.count < small.count:
        return False
    if not large.partial:
        return True
    if not small.partial or large.memory_percent != small.memory_percent:
        return False
    memory = large.memory is None or (small.memory is not None and small.memory <= large.memory)
    return memory and (large.cores or 0) >= (small.cores or 0)


# Tainted devices


def pass_fence(shared: Sharing) -> Sharing:
    """Add the toleration of drawbridge's device taint to all claims."""
    grants: list[Grant] = []
    for grant in shared.grants:
        asked = grant.spec.devices
        requests: list[DeviceRequest] = []
        for request in asked.requests:
            exactly = request.exactly
            if exactly is not None:
                exactly = replace(exactly, tolerations=(*exactly.tolerations, PASS))
            alternatives = [replace(one, tolerations=(*one.tolerations, PASS)) for one in request.first_available]
            requests.append(replace(request, exactly=exactly, first_available=tuple(alternatives)))
        spec = replace(grant.spec, devices=replace(asked, requests=tuple(requests)))
        grants.append(replace(grant, spec=spec))
    return Sharing(tuple(grants), shared.remarks)


def taint_rule(driver: str) -> dict[str, object]:
    """Make the DeviceTaintRule that keeps other schedulers from a driver's devices: only claims with the toleration get them."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": f"drawbridge-fence-{driver}"},
        "spec": {
            "deviceSelector": {"driver": driver},
            "taint": {"key": names.FENCE, "value": "bridge", "effect": "NoSchedule"},
        },
    }
