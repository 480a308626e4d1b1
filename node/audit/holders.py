"""Which container has which device of a node, for monitoring: through a claim, or of a device plugin. Pure: a sight in, rows out.

The kubelet lists a claim's devices with every container that names the claim, whichever of its requests that container gets; here the
pod's own words leave out what a container does not get. Access of an admin holds nothing and is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.objects import claim_name, results_of
from dra.quantity import Quantity
from node.audit.sight import where_of
from node.audit.silicon import Plate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dra.objects import DeviceRequestAllocationResult, Pod
    from node.audit.sight import Sight
    from node.audit.silicon import Silicon
    from node.messages import ClaimDevice, ContainerHolding

Requests = frozenset[str]


class ContainerDevice(msgspec.Struct, frozen=True):
    """A container, and a device that it has. Of a device plugin it is `resource` and the plugin's id, without claim, driver and pool."""

    device: str
    claim: str = ""
    driver: str = ""
    pool: str = ""
    share: str = ""
    resource: str = ""
    plate: Plate = Plate()
    amounts: dict[str, Quantity] = {}
    namespace: str = ""
    pod: str = ""
    container: str = ""


def holders(sight: Sight, silicon: Silicon) -> Iterator[ContainerDevice]:
    """Yield a row for each container and each device that it has."""
    pods = {(one.metadata.namespace, one.metadata.name): one for one in sight.pods or ()}
    for pod in sight.kubelet.pods if sight.kubelet is not None else ():
        spec = pods.get((pod.namespace, pod.name))
        for container in pod.containers:
            for one in _devices(container, spec, sight, silicon):
                yield replace(one, namespace=pod.namespace, pod=pod.name, container=container.name)


def _devices(container: ContainerHolding, pod: Pod | None, sight: Sight, silicon: Silicon) -> Iterator[ContainerDevice]:
    for plugin in container.devices:
        for id_ in plugin.ids:
            plate = silicon.plate_of_plugin(plugin.resource, id_)
            yield ContainerDevice(id_, resource=plugin.resource, plate=plate)
    for held in container.claims:
        asked = _requests(pod, container.name, held.claim) if pod is not None else None
        claim = sight.claims.get((held.namespace, held.claim))
        for one in held.devices:
            known, result = _result(one, results_of(claim), asked)
            if known and result is None:
                continue
            yield ContainerDevice(
                one.device,
                held.claim,
                one.driver,
                one.pool,
                one.share or "",
                plate=silicon.plate(where_of(one)),
                amounts=result.consumed_capacity if result is not None else {},
            )


def _result(
    one: ClaimDevice, results: Iterable[DeviceRequestAllocationResult], asked: Requests | None
) -> tuple[bool, DeviceRequestAllocationResult | None]:
    """Say whether the claim's status knows a device, and what of that is the container's."""
    known = False
    for result in results:
        if _is_it(result, one):
            known = True
            if not result.admin_access and _is_asked(result.request, asked):
                return known, result
    return known, None


def _is_it(result: DeviceRequestAllocationResult, one: ClaimDevice) -> bool:
    there = (one.driver, one.pool, one.device, one.share or "")
    return (result.driver, result.pool, result.device, result.share_id or "") == there


def _is_asked(request: str, asked: Requests | None) -> bool:
    """Say whether a container gets a request: by its name, or as one of the alternatives of a request that it names."""
    return asked is None or request in asked or request.partition("/")[0] in asked


def _requests(pod: Pod, container: str, claim: str) -> Requests | None:
    """Name the requests of a claim that a container gets; None if it gets all, or does not say."""
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name == claim:
        mine = [one for one in extended.request_mappings if one.container_name == container]
        return frozenset(one.request_name for one in mine)
    entries = {one.name for one in pod.spec.resource_claims if claim_name(pod, one) == claim}
    containers = *pod.spec.containers, *pod.spec.init_containers
    asked: set[str] = set()
    for one in containers:
        if one.name != container:
            continue
        for named in one.resources.claims:
            if named.name in entries:
                asked.add(named.request)
    gets_all = not asked or "" in asked
    return None if gets_all else frozenset(asked)
