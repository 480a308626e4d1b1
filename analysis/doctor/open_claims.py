"""Lists requests that wait for devices: those of claims without an allocation, and those of the claims that kube-scheduler will create for
pods whose extended resources a DeviceClass serves.

Such a pod has no claim while it waits, because kube-scheduler creates the claim once a node is chosen. If a node offers the resource
through a device plugin, the pod may run there without a claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from allocator.decisions import find_claims, plugin_nodes
from dra.objects import IMPLICIT, asks_by_name, requests_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.doctor.observed import DoctorInput
    from dra.objects import DeviceRequest, Pod


def open_claims(observed: DoctorInput) -> Iterator[tuple[str, tuple[DeviceRequest, ...]]]:
    """Yield the claims that wait for devices, and the pods for which kube-scheduler has not created one yet, by name, with their requests."""
    for claim in observed.reading.stock.claims.values():
        if claim.status.allocation is None and not claim.metadata.deletion_timestamp:
            yield f"ResourceClaim/{claim.metadata.key}", claim.spec.devices.requests
    for pod in _waiting_by_name(observed):
        # If a claim that the pod names is missing, another finding says so.
        without_claims = replace(pod, spec=replace(pod.spec, resource_claims=()))
        pod_claims = find_claims(without_claims, observed.reading.stock)
        if pod_claims.uncreated is not None and not plugin_nodes(without_claims, pod_claims, observed.reading.stock):
            yield f"Pod/{pod.metadata.key}", pod_claims.uncreated.claim.spec.devices.requests


def classes_named(observed: DoctorInput) -> Iterator[tuple[str, str]]:
    """Yield each DeviceClass that a waiting pod names in a request (`deviceclass.resource.kubernetes.io/NAME`), and the pod."""
    for pod in _waiting_by_name(observed):
        for container in pod.spec.all_containers:
            for name, amount in requests_of(container).items():
                if name.startswith(IMPLICIT) and amount.nano:
                    yield name.removeprefix(IMPLICIT), f"Pod/{pod.metadata.key}"


def _waiting_by_name(observed: DoctorInput) -> Iterator[Pod]:
    for pod in observed.reading.pods.values():
        placed = pod.spec.node_name or pod.has_ended or pod.status.extended_resource_claim_status is not None
        if not placed and not pod.metadata.deletion_timestamp and asks_by_name(pod):
            yield pod
