"""Decides which container uses which claim, so that init containers reuse the devices of other containers.

With a device plugin, a pod needs the larger of two amounts: the sum over its containers and sidecars, and the most that one init container
needs together with the sidecars before it. A claim lasts as long as the pod. So an init container must use devices that a claim of another
container holds anyway; otherwise the pod would need more devices than before.

Whole devices are numbered. Each sidecar and then each regular container has a span of numbers of its own. The span of an init container begins
after the spans of the sidecars that start before it. The ends of all spans cut the numbers into pieces, and each piece is one claim, so that
containers use whole claims only. (A container could also name single requests of a claim in `resources.claims`. But the list is
keyed by the claim's name alone, so several entries for one claim break server-side apply.) Shares of devices cannot be cut into pieces. An init
container uses another container's claim if that claim covers its demand. Otherwise it gets a claim of its own.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.objects import ResourceClaimSpec
from dra.policy import FENCE_TOLERATION
from webhook import names
from webhook.claims.spec import LIMIT, Claims
from webhook.dialects import AnyDemand, Demand

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra.budget import Budget
    from dra.objects import DeviceRequest

_COMPARED = 10  # steps of the budget for a container; each comparison with another container costs one more


class ContainerDemand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One demand of one container, and the claims for the demand. `order` is the container's position in starting order."""

    container: str
    demand: AnyDemand
    claims: Claims
    separable: bool
    order: int
    init: bool = False  # whether the container ends before the next container starts
    sidecar: bool = False


class Grant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    spec: ResourceClaimSpec
    owner: str  # the container in the claim's name, "" for the pod
    base: str
    users: tuple[str, ...]  # the containers that use the claim


class SharedClaims(msgspec.Struct, frozen=True, gc=False):
    """The grants of a pod, and remarks on containers."""

    grants: tuple[Grant, ...]
    remarks: tuple[tuple[str, str], ...] = ()


def share(requests: tuple[ContainerDemand, ...], make: Callable[[Demand], Claims], budget: Budget) -> SharedClaims:
    """Return the grants for the demands of containers. `make` returns the claims for another number of the same devices."""
    # Whole devices of a kind are numbered if an init container requests devices of this kind.
    numbered: dict[Demand, list[ContainerDemand]] = {}
    any_init = False
    for container_demand in requests:
        if container_demand.init:
            any_init = True
            if kind := _single_device(container_demand):
                numbered[kind] = []
    grants: list[Grant] = []
    if not any_init:
        for container_demand in requests:
            grants += _make_grants(container_demand, (container_demand.container,))
        return SharedClaims(tuple(grants))
    unnumbered: list[ContainerDemand] = []
    for container_demand in requests:
        kind = _single_device(container_demand)
        (numbered.get(kind, unnumbered) if kind else unnumbered).append(container_demand)
    for kind in sorted(numbered, key=repr):
        grants += _number_devices(kind, numbered[kind], make, budget)
    shared_grants, remarks = _share_claims(unnumbered, budget)
    return SharedClaims((*grants, *shared_grants), tuple(remarks))


def _make_grants(container_demand: ContainerDemand, users: tuple[str, ...]) -> list[Grant]:
    claims = container_demand.claims
    return [Grant(spec=spec, owner=container_demand.container, base=claims.base, users=users) for spec in claims.specs]


def _single_device(container_demand: ContainerDemand) -> Demand | None:
    """Return the demand for one of the requested devices; None if these cannot be numbered."""
    demand = container_demand.demand
    if (
        not isinstance(demand, Demand)
        or not container_demand.separable
        or demand.partial
        or demand.same_attribute
        or demand.everything
    ):
        return None
    return demand.times(1)


# Whole devices


class _DeviceSpan(msgspec.Struct, frozen=True, gc=False):
    """The numbers of the devices that a container uses: from `low` up to, but excluding, `high`."""

    container_demand: ContainerDemand
    low: int
    high: int


def _count(container_demand: ContainerDemand) -> int:
    return container_demand.demand.count if isinstance(container_demand.demand, Demand) else 0


def _number_devices(
    kind: Demand, requests: list[ContainerDemand], make: Callable[[Demand], Claims], budget: Budget
) -> list[Grant]:
    """Number whole devices of one kind, and return a grant for each piece of numbers that the same containers use."""
    lasting_spans: list[_DeviceSpan] = []
    total = 0
    for container_demand in sorted(requests, key=lambda request: (not request.sidecar, request.order)):
        if not container_demand.init:
            lasting_spans.append(_DeviceSpan(container_demand, total, total + _count(container_demand)))
            total += _count(container_demand)
    # The span of an init container begins after the spans of the sidecars that start before it.
    init_spans: list[_DeviceSpan] = []
    sidecar_devices = 0
    for container_demand in sorted(requests, key=lambda request: request.order):
        if container_demand.sidecar:
            sidecar_devices += _count(container_demand)
        elif container_demand.init:
            init_spans.append(
                _DeviceSpan(container_demand, sidecar_devices, sidecar_devices + _count(container_demand))
            )
    last_init_span = max(init_spans, key=lambda span: span.high)
    if last_init_span.high > total:  # an init container needs more devices, with the sidecars before it
        lasting_spans.append(_DeviceSpan(last_init_span.container_demand, total, last_init_span.high))
    cuts = sorted({end for span in init_spans for end in (span.low, span.high)})
    grants: list[Grant] = []
    for span in lasting_spans:
        container_demand = span.container_demand
        # Cut the span at the ends of the init containers' spans, and so that no claim has more than LIMIT devices.
        edges = [span.low]
        for edge in (*(end for end in cuts if span.low < end < span.high), span.high):
            edges += range(edges[-1] + LIMIT, edge, LIMIT)
            edges.append(edge)
        for low, high in pairwise(edges):
            budget.charge(_COMPARED + len(init_spans))
            users = [] if container_demand.init else [container_demand.container]
            users += [
                other.container_demand.container for other in init_spans if other.low <= low and high <= other.high
            ]
            spec = make(kind.times(high - low)).specs[0]
            user_names = tuple(dict.fromkeys(users))
            grants.append(
                Grant(spec=spec, owner=container_demand.container, base=container_demand.claims.base, users=user_names)
            )
    return grants


# Devices that are not numbered


class _Host(msgspec.Struct, gc=False):
    """A demand that gets claims of its own, and the containers that use these claims."""

    container_demand: ContainerDemand
    users: list[str]


def _share_claims(requests: list[ContainerDemand], budget: Budget) -> tuple[list[Grant], list[tuple[str, str]]]:
    """Let an init container use another container's claims if they cover its demand. All other demands get claims of their own."""
    remarks: list[tuple[str, str]] = []
    hosts = [
        _Host(container_demand, [container_demand.container])
        for container_demand in requests
        if not container_demand.init
    ]
    by_kind: dict[AnyDemand, list[_Host]] = {}
    for host in hosts:
        by_kind.setdefault(_without_amounts(host.container_demand.demand), []).append(host)
    any_lasting = bool(hosts)
    init_demands = [container_demand for container_demand in requests if container_demand.init]
    for container_demand in sorted(init_demands, key=lambda request: request.order):
        candidates = by_kind.setdefault(_without_amounts(container_demand.demand), [])
        budget.charge(_COMPARED + len(candidates))
        shared_host = next((host for host in candidates if _may_host(host.container_demand, container_demand)), None)
        if shared_host is None:
            host = _Host(container_demand, [container_demand.container])
            hosts.append(host)
            candidates.append(host)
            if any_lasting:
                remarks.append(
                    (container_demand.container, "the devices of an init container stay allocated until the pod ends")
                )
            continue
        shared_host.users.append(container_demand.container)
        if shared_host.container_demand.demand != container_demand.demand:
            text = f"uses the larger claim of container {shared_host.container_demand.container}"
            remarks.append((container_demand.container, text))
    return [grant for host in hosts for grant in _make_grants(host.container_demand, tuple(host.users))], remarks


def _may_host(host: ContainerDemand, init_demand: ContainerDemand) -> bool:
    """Return whether the init container of `init_demand` may use the claim of `host`: the claim's amounts must be large enough.

    Both demands are for the same kind of device. An init container cannot use the claim of a sidecar that already runs.
    """
    if host.container == init_demand.container or (host.sidecar and host.order < init_demand.order):
        return False
    if not (isinstance(host.demand, Demand) and isinstance(init_demand.demand, Demand)):
        return host.demand == init_demand.demand
    large, small = host.demand, init_demand.demand
    if large.count < small.count:
        return False
    if not large.partial:
        return True
    if not small.partial or large.memory_percent != small.memory_percent:
        return False
    enough_memory = large.memory is None or (small.memory is not None and small.memory <= large.memory)
    return enough_memory and (large.cores or 0) >= (small.cores or 0)


def _without_amounts(demand: AnyDemand) -> AnyDemand:
    """Return a demand without its amounts, by which demands for the same kind of device are grouped."""
    if not isinstance(demand, Demand):
        return demand
    return replace(demand, count=1, memory=None, memory_percent=None, cores=None)


# Tainted devices


def pass_fence(shared: SharedClaims) -> SharedClaims:
    """Let all claims tolerate the fence: drawbridge's device taint, by which only the bridge's scheduler allocates the devices."""
    grants: list[Grant] = []
    for grant in shared.grants:
        devices = grant.spec.devices
        requests: list[DeviceRequest] = []
        for request in devices.requests:
            exactly = request.exactly
            if exactly is not None:
                exactly = replace(exactly, tolerations=(*exactly.tolerations, FENCE_TOLERATION))
            alternatives = [
                replace(alternative, tolerations=(*alternative.tolerations, FENCE_TOLERATION))
                for alternative in request.first_available
            ]
            requests.append(replace(request, exactly=exactly, first_available=tuple(alternatives)))
        spec = replace(grant.spec, devices=replace(devices, requests=tuple(requests)))
        grants.append(replace(grant, spec=spec))
    return SharedClaims(tuple(grants), shared.remarks)


def taint_rule(driver: str) -> dict[str, object]:
    """Make the DeviceTaintRule that reserves a driver's devices for claims with the toleration."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": f"drawbridge-fence-{driver}"},
        "spec": {
            "deviceSelector": {"driver": driver},
            "taint": {"key": names.FENCE, "value": "bridge", "effect": "NoSchedule"},
        },
    }
