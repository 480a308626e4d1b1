"""The state of one node at one moment, by source. It names the sources that could not be read: that they name no device proves nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from dra.objects import Device, Pod, ResourceClaim, ResourceSlice, claim_names
from dra.quantity import Quantity
from node.hardware import DeviceId
from node.messages import PodHoldings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra.objects import DeviceRequestAllocationResult
    from node.messages import ClaimDevice, ContainerHolding, PodHolding

KUBELET = "the kubelet"
MEMORY = "the kubelet's memory"  # its file
_LONGEST = 200
_LONGEST_NAME = 300
ClaimName = tuple[str, str]  # namespace, name
PodName = tuple[str, str]


def plain(text: str, max_length: int = _LONGEST_NAME) -> str:
    """Return untrusted text as one line of bounded length without control characters."""
    short = text[:max_length]
    return short if short.isprintable() else short.encode("unicode_escape").decode()


class NodePluginDevice(NamedTuple):
    """A device plugin's device that the kubelet gave to a container of a pod. A device that the plugin only offers has no pod."""

    resource: str
    id: str
    namespace: str = ""
    pod: str = ""

    def __str__(self) -> str:
        """Return resource and id, as one line of bounded length."""
        return plain(f"{self.resource} {self.id[:_LONGEST]}", _LONGEST)


class PreparedDeviceRecord(msgspec.Struct, frozen=True):
    """A device prepared for a claim according to a source (`by`). Fields that the source does not have are empty."""

    by: str
    namespace: str
    claim: str
    device_id: DeviceId
    uid: str = ""
    share: str = ""
    admin: bool = False
    consumed: dict[str, Quantity] = {}
    given: Device | None = None  # as the driver offered it when it was prepared


class NodeReservedDevice(msgspec.Struct, frozen=True, rename="camel"):
    """A device, or, if it has a `share_id`, a share of a device."""

    driver: str
    pool: str
    device: str
    share_id: str = ""

    @property
    def device_id(self) -> DeviceId:
        return DeviceId(self.driver, self.pool, self.device)


class NodeReservation(msgspec.Struct, frozen=True, rename="camel"):
    """Devices of a node that an allocator is writing into a claim's status. `in_doubt`: the write got no answer yet."""

    namespace: str
    claim: str
    uid: str
    in_doubt: bool
    devices: tuple[NodeReservedDevice, ...]


class NodeSnapshot(msgspec.Struct, frozen=True):
    node: str
    kubelet: PodHoldings | None = None
    offered: tuple[NodePluginDevice, ...] = ()
    prepared: tuple[PreparedDeviceRecord, ...] = ()  # from the files of the kubelet and of drivers
    files: tuple[str, ...] = ()  # names of CDI files
    pods: tuple[Pod, ...] | None = None
    slices: tuple[ResourceSlice, ...] = ()
    # Those in the allocator's answers before and after the other sources were read.
    reservations: tuple[NodeReservation, ...] = ()
    # None for a deleted claim; claims that could not be read are left out.
    claims: dict[ClaimName, ResourceClaim | None] = {}
    unread: dict[str, str] = {}  # sources that could not be read, and why
    unknown: dict[str, str] = {}  # files in an unknown format

    @property
    def allocated_to_pods(self) -> tuple[NodePluginDevice, ...]:
        """The plugins' devices that the kubelet has allocated to containers."""
        return tuple(
            NodePluginDevice(allocated.resource, id_, pod.namespace, pod.name)
            for pod, container in self._containers()
            for allocated in container.devices
            for id_ in allocated.ids
        )

    @property
    def prepared_by_kubelet(self) -> tuple[PreparedDeviceRecord, ...]:
        return tuple(
            PreparedDeviceRecord(KUBELET, claim.namespace, claim.claim, device_id_of(device), share=device.share or "")
            for _, container in self._containers()
            for claim in container.claims
            for device in claim.devices
        )

    @property
    def all_prepared(self) -> tuple[PreparedDeviceRecord, ...]:
        """The prepared devices of all sources."""
        return (*self.prepared_by_kubelet, *self.prepared)

    @property
    def left_by_pods(self) -> frozenset[str] | None:
        """The uids of unallocated claims that the kubelet has prepared; None if its file or a claim could not be read."""
        if any(source in ("files", "claims") or source.endswith("/dra_manager_state") for source in self.unread):
            return None
        left: set[str] = set()
        for record in self.prepared:
            claim = self.claims.get((record.namespace, record.claim)) if record.by == MEMORY else None
            if claim is not None and claim.metadata.uid == record.uid and claim.status.allocation is None:
                left.add(record.uid)
        return frozenset(left)

    @property
    def claim_names(self) -> frozenset[ClaimName]:
        """The claims for which devices are prepared."""
        return frozenset((record.namespace, record.claim) for record in self.all_prepared if record.claim)

    @property
    def pods_by_claim(self) -> dict[ClaimName, frozenset[PodName]]:
        """The pods that use each claim, from the pods' specs and from the kubelet's answer."""
        pods: dict[ClaimName, frozenset[PodName]] = {}
        uses: list[tuple[ClaimName, PodName]] = []
        for obj in self.pods or ():
            namespace = obj.metadata.namespace
            names = () if obj.has_ended else claim_names(obj)
            uses += (((namespace, name), (namespace, obj.metadata.name)) for name in names)
        for pod, container in self._containers():
            uses += (((claim.namespace, claim.claim), (pod.namespace, pod.name)) for claim in container.claims)
        for claim, user in uses:
            pods[claim] = pods.get(claim, frozenset()) | {user}
        return pods

    def _containers(self) -> Iterator[tuple[PodHolding, ContainerHolding]]:
        pods = self.kubelet.pods if self.kubelet is not None else ()
        for pod in pods:
            for container in pod.containers:
                yield pod, container


def device_id_of(device: ClaimDevice | DeviceRequestAllocationResult) -> DeviceId:
    return DeviceId(device.driver, device.pool, device.device)
