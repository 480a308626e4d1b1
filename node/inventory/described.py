"""The file that describes a machine: its shape, and what each word means. Data only; `node.inventory.machine` makes devices of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from dra.objects import DeviceAttribute, ObjectMeta
from dra.quantity import Quantity

KIND = "DeviceInventory"
VERSION = "drawbridge.dev/v1alpha1"


class _Described(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of everything in the file."""


class Place(_Described, frozen=True, kw_only=True):
    """Where a device is plugged in, and which files of /dev belong to it. `pciBusId` is like 0000:3b:00.0, `pcieRoot` like pci0000:3a."""

    pci_bus_id: str = ""
    pcie_root: str = ""
    numa_node: int | None = None
    device_nodes: tuple[str, ...] = ()


class Steps(_Described, frozen=True, kw_only=True):
    """Which shares of an amount can be allocated: from `minimum` on, in steps; `default` is the share of a request that names none."""

    minimum: Quantity
    step: Quantity | None = None
    default: Quantity | None = None


class Sharing(_Described, frozen=True, kw_only=True):
    """How a GPU is shared by memory and cores; an amount without steps is given out as it is asked for."""

    memory: Steps | None = None
    cores: Steps | None = None
    groups: tuple[str, ...] = ()


class Partition(_Described, frozen=True, kw_only=True):
    """A profile that a layout offers: how many slices of memory it takes, from which on, and how many of compute."""

    profile: str
    memory: Quantity
    slices: int
    compute: int
    at: tuple[int, ...]
    groups: tuple[str, ...] = ()


class Layout(_Described, frozen=True, kw_only=True):
    """How a GPU can be cut up: so many slices of memory and of compute, and the partitions that share them."""

    name: str
    slices: int
    compute: int
    partitions: tuple[Partition, ...]


class Gpu(_Described, frozen=True, kw_only=True):
    """A GPU. It is offered whole, unless `whole` is false; in partitions, if it has a layout; and in shares, if it has `sharing`."""

    name: str
    uuid: str
    memory: Quantity
    product: str = ""
    cores: int = 100
    whole: bool = True
    groups: tuple[str, ...] = ()
    layout: str = ""
    sharing: Sharing | None = None
    place: Place = Place()
    attributes: dict[str, DeviceAttribute] = {}


class VirtualFunction(_Described, frozen=True, kw_only=True):
    name: str
    interface: str = ""
    rdma_device: str = ""
    bandwidth: Quantity | None = None
    place: Place = Place()


class Nic(_Described, frozen=True, kw_only=True):
    """A network card. With `sharing` its bandwidth is given out in shares; with virtual functions either it is taken, or some of them."""

    name: str
    interface: str = ""
    rdma_device: str = ""
    product: str = ""
    bandwidth: Quantity | None = None
    sharing: Steps | None = None
    virtual_functions: tuple[VirtualFunction, ...] = ()
    place: Place = Place()
    attributes: dict[str, DeviceAttribute] = {}


class NumaNode(_Described, frozen=True, kw_only=True):
    """The CPUs of a NUMA node, as `0-3,8`, and its huge pages: how many of which size."""

    number: int
    cpus: str = ""
    hugepages: dict[str, int] = {}


class DeviceInventory(_Described, frozen=True, kw_only=True):
    api_version: Literal["drawbridge.dev/v1alpha1"]
    kind: Literal["DeviceInventory"]
    metadata: ObjectMeta = ObjectMeta()
    driver: str
    # A variable that gets the uuids of a request's GPUs, besides our own variables: NVIDIA_VISIBLE_DEVICES.
    visible_devices: str = ""
    layouts: tuple[Layout, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    nics: tuple[Nic, ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
