"""The devices that each container of a node has, from a claim or a device plugin, for metrics.

The kubelet lists all devices of a claim with every container that names the claim, even if the container names only one request. So this
module finds the container's devices by the pod's spec. It leaves out devices with admin access, because admin access does not hold a device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.objects import claim_name, results_of
from dra.quantity import Quantity
from node.audit.snapshot import device_id_of
from node.hardware import ExporterIds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra.objects import Pod
    from node.audit.snapshot import NodeSnapshot
    from node.hardware import Hardware

Requests = frozenset[str]


class ContainerDevice(msgspec.Struct, frozen=True):
    """A container and one of its devices. A device plugin's device has `resource` and the plugin's id, and no claim, driver or pool."""

    device: str
    claim: str = ""
    driver: str = ""
    pool: str = ""
    share: str = ""
    resource: str = ""
    exporter_ids: ExporterIds = ExporterIds()
    amounts: dict[str, Quantity] = {}
    namespace: str = ""
    pod: str = ""
    container: str = ""


def holders(snapshot: NodeSnapshot, hardware: Hardware) -> Iterator[ContainerDevice]:
    pods = {(pod.metadata.namespace, pod.metadata.name): pod for pod in snapshot.pods or ()}
    for pod in snapshot.kubelet.pods if snapshot.kubelet is not None else ():
        spec = pods.get((pod.namespace, pod.name))
        for container in pod.containers:
            row = ContainerDevice("", namespace=pod.namespace, pod=pod.name, container=container.name)
            for plugin in container.devices:
                for id_ in plugin.ids:
                    exporter_ids = hardware.exporter_ids_of_plugin(plugin.resource, id_)
                    yield replace(row, device=id_, resource=plugin.resource, exporter_ids=exporter_ids)
            for container_claim in container.claims:
                requests = _requests(spec, container.name, container_claim.claim) if spec is not None else None
                results = results_of(snapshot.claims.get((container_claim.namespace, container_claim.claim)))
                for device in container_claim.devices:
                    device_key = device.driver, device.pool, device.device, device.share or ""
                    of_device = [
                        result
                        for result in results
                        if (result.driver, result.pool, result.device, result.share_id or "") == device_key
                    ]
                    # A container names a request; the result may name its chosen alternative, REQUEST/ALTERNATIVE.
                    held_results = [
                        result
                        for result in of_device
                        if not result.admin_access
                        and (
                            requests is None
                            or result.request in requests
                            or result.request.partition("/")[0] in requests
                        )
                    ]
                    if held_results or not of_device:
                        yield replace(
                            row,
                            device=device.device,
                            claim=container_claim.claim,
                            driver=device.driver,
                            pool=device.pool,
                            share=device.share or "",
                            exporter_ids=hardware.exporter_ids(device_id_of(device)),
                            amounts=held_results[0].consumed_capacity if held_results else {},
                        )


def _requests(pod: Pod, container: str, claim: str) -> Requests | None:
    """Return the requests of a claim that a container gets; None for all of them."""
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name == claim:
        container_mappings = [
            request_mapping
            for request_mapping in extended.request_mappings
            if request_mapping.container_name == container
        ]
        return frozenset(status.request_name for status in container_mappings)
    entries = {
        resource_claim.name for resource_claim in pod.spec.resource_claims if claim_name(pod, resource_claim) == claim
    }
    containers = *pod.spec.containers, *pod.spec.init_containers
    names = {
        container_claim.request
        for candidate in containers
        if candidate.name == container
        for container_claim in candidate.resources.claims
        if container_claim.name in entries
    }
    gets_all = not names or "" in names
    return None if gets_all else frozenset(names)
