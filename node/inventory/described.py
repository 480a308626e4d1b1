"""The schema of the DeviceInventory file, which describes a machine. `node.inventory.machine` turns it into devices."""

from __future__ import annotations

from typing import Literal

import msgspec

from dra.objects import DeviceAttribute, ObjectMeta
from dra.quantity import Quantity

KIND = "DeviceInventory"
VERSION = "drawbridge.dev/v1alpha1"


class _Described(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of all types in a DeviceInventory."""


class DevicePlace(_Described, frozen=True, kw_only=True):
    """A device's location and its files in /dev. `pciBusId` is like 0000:3b:00.0, `pcieRoot` like pci0000:3a."""

    pci_bus_id: str = ""
    pcie_root: str = ""
    numa_node: int | None = None
    device_nodes: tuple[str, ...] = ()


class Steps(_Described, frozen=True, kw_only=True):
    """The amounts of a capacity that a claim can get: `minimum` plus any number of steps. A request without an amount gets `default`."""

    minimum: Quantity
    step: Quantity | None = None
    default: Quantity | None = None


class Sharing(_Described, frozen=True, kw_only=True):
    """How pods share a GPU's memory and cores. Without Steps, a request can have any amount of a capacity."""

    memory: Steps | None = None
    cores: Steps | None = None
    groups: tuple[str, ...] = ()


class Partition(_Described, frozen=True, kw_only=True):
    """A partition profile: how many memory slices a partition takes, at which slices it can start (`at`), and how much compute it takes."""

    profile: str
    memory: Quantity
    slices: int
    compute: int
    at: tuple[int, ...]
    groups: tuple[str, ...] = ()


class Layout(_Described, frozen=True, kw_only=True):
    """How a GPU can be partitioned: its numbers of memory slices and compute units, and the profiles of the partitions that share them."""

    name: str
    slices: int
    compute: int
    partitions: tuple[Partition, ...]


class Gpu(_Described, frozen=True, kw_only=True):
    """A GPU. It is offered as a whole unless `whole` is false, in partitions if it has a layout, and in shares if it has `sharing`."""

    name: str
    uuid: str
    memory: Quantity
    product: str = ""
    cores: int = 100
    whole: bool = True
    groups: tuple[str, ...] = ()
    layout: str = ""
    sharing: Sharing | None = None
    place: DevicePlace = DevicePlace()
    attributes: dict[str, DeviceAttribute] = {}


class VirtualFunction(_Described, frozen=True, kw_only=True):
    name: str
    interface: str = ""
    rdma_device: str = ""
    bandwidth: Quantity | None = None
    place: DevicePlace = DevicePlace()


class Nic(_Described, frozen=True, kw_only=True):
    """A network card. With `sharing` its bandwidth is allocated in shares. The whole card excludes its virtual functions."""

    name: str
    interface: str = ""
    rdma_device: str = ""
    product: str = ""
    bandwidth: Quantity | None = None
    sharing: Steps | None = None
    virtual_functions: tuple[VirtualFunction, ...] = ()
    place: DevicePlace = DevicePlace()
    attributes: dict[str, DeviceAttribute] = {}


class NumaNode(_Described, frozen=True, kw_only=True):
    """The CPUs of a NUMA node, as `0-3,8`, and its number of huge pages by size."""

    number: int
    cpus: str = ""
    hugepages: dict[str, int] = {}


class DeviceInventory(_Described, frozen=True, kw_only=True):
    api_version: Literal["drawbridge.dev/v1alpha1"]
    kind: Literal["DeviceInventory"]
    metadata: ObjectMeta = ObjectMeta()
    driver: str
    visible_devices: str = ""  # an extra variable for the UUIDs of a request's GPUs, such as NVIDIA_VISIBLE_DEVICES
    layouts: tuple[Layout, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
