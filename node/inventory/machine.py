"""The devices that the driver publishes for an inventory, and what a container gets of each device.

Devices on the same hardware share a counter set, so that an allocator cannot allocate the hardware twice: a GPU as a whole, its shares and
its partitions; a NIC and its virtual functions. Devices are listed from small to large, because an allocator takes the first that fits.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from dra.objects import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceCounterConsumption,
    DeviceTaint,
)
from dra.quantity import Quantity, parse
from node.inventory.described import Steps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from node.inventory.described import DeviceInventory, DevicePlace, Gpu, Layout, Nic, NumaNode

STANDARD = "resource.kubernetes.io"
FUNCTIONS = "functions"
COMPUTE = "compute"
_INVALID_IN_LABEL = re.compile(r"[^a-z0-9-]+")
MAX_CPUS = 8192  # the limit of Linux (NR_CPUS)
_PART = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?").fullmatch
Attributes = dict[str, DeviceAttribute]
Capacities = dict[str, DeviceCapacity]


class DeviceAccess(msgspec.Struct, frozen=True):
    """What a container gets of a device: the name that programs use (`value`), the files in /dev, and the CPUs to choose from."""

    value: str
    files: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()
    is_visible: bool = False  # whether the `visibleDevices` variable lists the device
    interface: str = ""  # the network interface's name, if the device is one


class Machine(msgspec.Struct, frozen=True):
    """A machine as its driver publishes it. `offers` are what containers get, by device name."""

    driver: str
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()
    offers: dict[str, DeviceAccess] = {}
    visible_devices: str = ""


UNHEALTHY = "unhealthy"


def taints_of(driver: str, why: str) -> tuple[DeviceTaint, ...]:
    """Return the taint for the problem `why`; no taint if `why` is "". Running pods keep a tainted device, and new pods do not get it."""
    return (DeviceTaint(key=f"{driver}/{why}", effect="NoSchedule"),) if why else ()


def tainted(machine: Machine, failed: Collection[str]) -> Machine:
    """Return the machine with its `failed` devices tainted."""
    if not failed:
        return machine
    taints = taints_of(machine.driver, UNHEALTHY)
    devices = (replace(device, taints=taints) if device.name in failed else device for device in machine.devices)
    return replace(machine, devices=tuple(devices))


class _OfferedDevice(msgspec.Struct, frozen=True):
    device: Device
    offer: DeviceAccess


def machine_of(inventory: DeviceInventory) -> Machine:
    """Return the devices of an inventory, which `node.inventory.reading` has validated."""
    layouts = {layout.name: layout for layout in inventory.layouts}
    offered_devices: list[_OfferedDevice] = []
    counter_sets: list[CounterSet] = []
    for gpu in inventory.gpus:
        layout = layouts.get(gpu.layout)
        offered_devices += _gpu(gpu, layout)
        if is_counted(gpu):
            counter_sets.append(CounterSet(name=gpu.name, counters=_whole(layout)))
    for nic in inventory.nics:
        offered_devices += _nic(nic)
        if nic.virtual_functions:
            counter_sets.append(CounterSet(name=nic.name, counters={FUNCTIONS: _count(len(nic.virtual_functions))}))
    for numa_node in inventory.numa_nodes:
        offered_devices += _numa_node(numa_node)
    return Machine(
        inventory.driver,
        tuple(offered.device for offered in offered_devices),
        tuple(counter_sets),
        {offered.device.name: offered.offer for offered in offered_devices},
        inventory.visible_devices,
    )


# GPUs


def is_counted(gpu: Gpu) -> bool:
    """Report whether several devices are published for a GPU, so that they need a counter set."""
    return bool(gpu.layout) or (gpu.whole and gpu.sharing is not None)


def _gpu(gpu: Gpu, layout: Layout | None) -> Iterator[_OfferedDevice]:
    """Yield the devices of a GPU, from small to large: its partitions, its shares, then the whole GPU."""
    location = {**_placed(gpu.place), **gpu.attributes}
    files = gpu.place.device_nodes
    if layout is not None:
        in_order = sorted(
            layout.partitions, key=lambda partition: (partition.slices, partition.compute, partition.profile)
        )
        for partition in in_order:
            for start in partition.at:
                uuid = f"{gpu.uuid}/{partition.profile}/{start}"
                counters = {_slice(start + number): _count(1) for number in range(partition.slices)}
                counters[COMPUTE] = _count(partition.compute)
                texts = _texts(
                    type="mig",
                    uuid=uuid,
                    parentUUID=gpu.uuid,
                    profile=partition.profile,
                    productName=gpu.product,
                )
                device = Device(
                    name=f"{gpu.name}-{label(partition.profile)}-{start}",
                    attributes={**texts, **location},
                    capacity={"memory": DeviceCapacity(value=partition.memory)},
                    consumes_counters=_consumption(gpu.name, counters, partition.groups),
                )
                yield _OfferedDevice(device, DeviceAccess(uuid, files, is_visible=True))
    counters = _whole(layout) if is_counted(gpu) else {}
    offer = DeviceAccess(gpu.uuid, files, is_visible=True)
    if gpu.sharing is not None:
        cores = parse(str(gpu.cores))
        device = Device(
            name=f"{gpu.name}-shared",
            attributes={**_texts(type="shared", uuid=gpu.uuid, productName=gpu.product), **location},
            capacity={
                "memory": _capacity(gpu.memory, gpu.sharing.memory),
                "cores": _capacity(cores, gpu.sharing.cores),
            },
            consumes_counters=_consumption(gpu.name, counters, gpu.sharing.groups),
            allow_multiple_allocations=True,
        )
        yield _OfferedDevice(device, offer)
    if gpu.whole:
        device = Device(
            name=gpu.name,
            attributes={**_texts(type="gpu", uuid=gpu.uuid, productName=gpu.product), **location},
            capacity={"memory": DeviceCapacity(value=gpu.memory)},
            consumes_counters=_consumption(gpu.name, counters, gpu.groups),
        )
        yield _OfferedDevice(device, offer)


def _whole(layout: Layout | None) -> dict[str, Counter]:
    """Return all counters of a GPU; without a layout, a single counter."""
    if layout is None:
        return {COMPUTE: _count(1)}
    counters = {_slice(number): _count(1) for number in range(layout.slices)}
    counters[COMPUTE] = _count(layout.compute)
    return counters


def _slice(number: int) -> str:
    return f"slice-{number}"


# Network cards


def _nic(nic: Nic) -> Iterator[_OfferedDevice]:
    """Yield the devices of a network card: its virtual functions, then the whole card."""
    for function in nic.virtual_functions:
        device = Device(
            name=function.name,
            attributes={
                **_texts(type="vf", parent=nic.name, productName=nic.product),
                **_connected(function.interface, function.rdma_device),
                **_placed(function.place),
                **nic.attributes,
            },
            capacity=_bandwidth(function.bandwidth, None),
            consumes_counters=_consumption(nic.name, {FUNCTIONS: _count(1)}, ()),
        )
        name = function.interface or function.name
        yield _OfferedDevice(device, DeviceAccess(name, function.place.device_nodes, interface=function.interface))
    count = len(nic.virtual_functions)
    counters = {FUNCTIONS: _count(count)} if count else {}
    device = Device(
        name=nic.name,
        attributes={
            **_texts(type="nic", productName=nic.product),
            **_connected(nic.interface, nic.rdma_device),
            **_placed(nic.place),
            **nic.attributes,
        },
        capacity=_bandwidth(nic.bandwidth, nic.sharing),
        consumes_counters=_consumption(nic.name, counters, ()),
        allow_multiple_allocations=True if nic.sharing is not None else None,
    )
    yield _OfferedDevice(
        device, DeviceAccess(nic.interface or nic.name, nic.place.device_nodes, interface=nic.interface)
    )


def _connected(interface: str, rdma_device: str) -> Attributes:
    attributes = _texts(interface=interface, rdmaDevice=rdma_device)
    attributes["rdma"] = DeviceAttribute(bool_=bool(rdma_device))
    return attributes


def _bandwidth(amount: Quantity | None, sharing: Steps | None) -> Capacities:
    return {} if amount is None else {"bandwidth": _capacity(amount, sharing)}


# CPUs and huge pages


def _numa_node(numa_node: NumaNode) -> Iterator[_OfferedDevice]:
    where = {f"{STANDARD}/numaNode": DeviceAttribute(int_=numa_node.number)}
    cpus = numbers_of(numa_node.cpus)
    if cpus:
        step = parse("1")
        number = parse(str(len(cpus)))
        device = Device(
            name=f"cpus-numa-{numa_node.number}",
            attributes={**_texts(type="cpus"), **where},
            capacity={"cpus": _capacity(number, Steps(minimum=step, step=step, default=step))},
            allow_multiple_allocations=True,
        )
        yield _OfferedDevice(device, DeviceAccess("", cpus=cpus))
    for size, count in numa_node.hugepages.items():
        page = parse(size)
        total = Quantity.from_nano(page.nano * count, "BinarySI")
        device = Device(
            name=f"hugepages-{label(size)}-numa-{numa_node.number}",
            attributes={**_texts(type="hugepages", pageSize=size), **where},
            capacity={"size": _capacity(total, Steps(minimum=page, step=page, default=page))},
            allow_multiple_allocations=True,
        )
        yield _OfferedDevice(device, DeviceAccess(size))


# All devices


class InvalidCpuList(ValueError):  # noqa: N818  names the problem
    """The text is not a list of CPUs."""


def numbers_of(text: str) -> tuple[int, ...]:
    """Parse a list of CPUs as Linux writes it: `0-3,8`."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        match = _PART(part.strip())
        if match is None:
            raise InvalidCpuList(f"{part!r} is not a valid CPU or range of CPUs (expected 3 or 0-7)")
        first = int(match[1])
        last = int(match[2] or match[1])
        if last < first or last >= MAX_CPUS:
            raise InvalidCpuList(f"{part!r} is not a valid range of CPUs (expected ascending, up to {MAX_CPUS - 1})")
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def ranges_of(numbers: Iterable[int]) -> str:
    """Format numbers as Linux does, the reverse of `numbers_of`."""
    parts: list[str] = []
    # Within a range, number minus position is constant.
    for _, run in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        part = str(members[0])
        if len(members) > 1:
            part = f"{part}-{members[-1]}"
        parts.append(part)
    return ",".join(parts)


def label(text: str) -> str:
    """Turn text such as 1g.10gb into a valid part of a device name."""
    return _INVALID_IN_LABEL.sub("-", text.lower()).strip("-")


def _texts(**named: str) -> Attributes:
    return {name: DeviceAttribute(string=text) for name, text in named.items() if text}


def _placed(place: DevicePlace) -> Attributes:
    attributes: Attributes = {}
    if place.pci_bus_id:
        attributes[f"{STANDARD}/pciBusID"] = DeviceAttribute(string=place.pci_bus_id)
    if place.pcie_root:
        attributes[f"{STANDARD}/pcieRoot"] = DeviceAttribute(string=place.pcie_root)
    if place.numa_node is not None:
        attributes[f"{STANDARD}/numaNode"] = DeviceAttribute(int_=place.numa_node)
    return attributes


def _capacity(value: Quantity, steps: Steps | None) -> DeviceCapacity:
    if steps is None:
        return DeviceCapacity(value=value)
    # Only the minimum plus whole steps can be allocated, so the maximum is the last step up to the value.
    largest = value
    if steps.step is not None and steps.step.nano > 0:
        steps_that_fit = (value.nano - steps.minimum.nano) // steps.step.nano
        nano = steps.minimum.nano + steps_that_fit * steps.step.nano
        largest = Quantity.from_nano(nano, value.format)
    policy = CapacityRequestPolicy(
        default=steps.default or steps.minimum,
        valid_range=CapacityRequestPolicyRange(min=steps.minimum, max=largest, step=steps.step),
    )
    return DeviceCapacity(value=value, request_policy=policy)


def _count(number: int) -> Counter:
    return Counter(value=parse(str(number)))


def _consumption(
    name: str, counters: dict[str, Counter], groups: tuple[str, ...]
) -> tuple[DeviceCounterConsumption, ...]:
    if not counters:
        return ()
    return (DeviceCounterConsumption(counter_set=name, counters=counters, compatibility_groups=groups),)
