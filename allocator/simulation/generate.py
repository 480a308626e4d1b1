"""Workloads to try strategies on: fleets, and pods that come and go. Equal draws give equal workloads.

Three kinds, after what shared accelerators are asked for: partitions of GPUs by profile (MIG), shares of GPU memory, and
GPUs with a NIC on the same PCIe root. Randomness comes from the caller, as a function that draws from [0, 1).
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

from allocator.simulation.replay import Arrival
from allocator.simulation.workload import Workload
from dra.objects import (
    CapacityRequirements,
    CELDeviceSelector,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceSelector,
    ExactDeviceRequest,
    Node,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimSpec,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from dra.quantity import parse
from dra.stock import Stock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Draw = Callable[[], float]
    Mix = Sequence[tuple[float, str]]

GPU, NIC = "gpu.example.com", "nic.example.com"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"

# Profile → (memory slices, multiprocessors, where it may start), as a GPU with seven compute and eight memory slices has it.
PROFILES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "1g": (1, 14, (0, 1, 2, 3, 4, 5, 6)),
    "2g": (2, 28, (0, 2, 4)),
    "3g": (4, 42, (0, 4)),
    "4g": (4, 56, (0,)),
    "7g": (8, 98, (0,)),
}
MIG_MIX = ((0.40, "1g"), (0.25, "2g"), (0.20, "3g"), (0.05, "4g"), (0.10, "7g"))
SHARES_MIX = ((0.25, "6Gi"), (0.20, "10Gi"), (0.15, "16Gi"), (0.15, "24Gi"), (0.10, "40Gi"), (0.15, "80Gi"))
PAIRS_MIX = ((0.35, "gpu"), (0.15, "nic"), (0.35, "pair"), (0.15, "quad"))


def mig(draw: Draw, *, nodes: int, pods: int, load: float = 1.0) -> Workload:
    """Make nodes of four partitionable GPUs, and pods that ask for one partition each."""
    slices = [part for number in range(nodes) for part in _mig_node(f"node-{number:02}")]
    sizes = {profile: PROFILES[profile][0] / 8 for profile in PROFILES}
    return _workload(
        "mig",
        draw,
        slices=slices,
        nodes=nodes,
        pods=pods,
        load=load,
        mix=MIG_MIX,
        claim=_mig_claim,
        sizes=sizes,
        hardware=nodes * 4,
    )


def shares(draw: Draw, *, nodes: int, pods: int, load: float = 1.0) -> Workload:
    """Make nodes of four shareable GPUs of 80Gi, and pods that ask for a share of memory each."""
    gpu = DeviceCapacity(value=parse("80Gi"))
    slices = []
    for number in range(nodes):
        devices = tuple(
            Device(name=f"gpu-{at}", capacity={"memory": gpu}, allow_multiple_allocations=True) for at in range(4)
        )
        slices.append(_slice(f"node-{number:02}", GPU, devices))
    sizes = {name: parse(name).as_float() / parse("80Gi").as_float() for _, name in SHARES_MIX}
    return _workload(
        "shares",
        draw,
        slices=slices,
        nodes=nodes,
        pods=pods,
        load=load,
        mix=SHARES_MIX,
        claim=_share_claim,
        sizes=sizes,
        hardware=nodes * 4,
    )


def pairs(draw: Draw, *, nodes: int, pods: int, load: float = 1.0) -> Workload:
    """Make nodes of eight GPUs and four NICs on four PCIe roots; pods ask for a GPU, a NIC, both, or a root's worth."""
    slices = []
    for number in range(nodes):
        node = f"node-{number:02}"
        gpus = tuple(Device(name=f"gpu-{at}", attributes=_root(node, at // 2)) for at in range(8))
        nics = tuple(Device(name=f"nic-{at}", attributes=_root(node, at)) for at in range(4))
        slices += [_slice(node, GPU, gpus), _slice(node, NIC, nics)]
    sizes = {"gpu": 1 / 12, "nic": 1 / 12, "pair": 2 / 12, "quad": 3 / 12}
    return _workload(
        "pairs",
        draw,
        slices=slices,
        nodes=nodes,
        pods=pods,
        load=load,
        mix=PAIRS_MIX,
        claim=_pair_claim,
        sizes=sizes,
        hardware=nodes,
    )


KINDS: dict[str, Callable[..., Workload]] = {"mig": mig, "shares": shares, "pairs": pairs}


def _workload(
    name: str,
    draw: Draw,
    *,
    slices: Sequence[ResourceSlice],
    nodes: int,
    pods: int,
    load: float,
    mix: Mix,
    claim: Callable[[str, str], ResourceClaim],
    sizes: dict[str, float],
    hardware: float,
) -> Workload:
    """Let pods come so often that on average they ask for `load` times the hardware; each stays 100 on average."""
    classes = [
        DeviceClass(
            metadata=ObjectMeta(name=kind), spec=DeviceClassSpec(selectors=(_cel(f'device.driver == "{driver}"'),))
        )
        for kind, driver in (("gpu", GPU), ("nic", NIC))
    ]
    stock = Stock.of(
        slices=slices,
        classes=classes,
        nodes=[Node(metadata=ObjectMeta(name=f"node-{number:02}")) for number in range(nodes)],
    )
    mean_size = sum(weight * sizes[kind] for weight, kind in mix) / sum(weight for weight, _ in mix)
    between = 100 * mean_size / (load * hardware)
    arrivals, now = [], 0.0
    for number in range(pods):
        now += _exponential(draw, between)
        pod = f"pod-{number:05}"
        arrivals.append(Arrival(pod, now, (claim(pod, _pick(draw, mix)),), _exponential(draw, 100)))
    return Workload(name, stock, tuple(arrivals))


def _mig_counters(slices: range, multiprocessors: int) -> dict[str, Counter]:
    counters = {f"memory-slice-{at}": Counter(value=parse("1")) for at in slices}
    counters["multiprocessors"] = Counter(value=parse(str(multiprocessors)))
    return counters


def _mig_node(node: str) -> tuple[ResourceSlice, ResourceSlice]:
    sets: list[CounterSet] = []
    devices: list[Device] = []
    for gpu in range(4):
        name = f"gpu-{gpu}"
        counters = _mig_counters(range(8), 98)
        sets.append(CounterSet(name=name, counters=counters))
        for profile, (memory, multiprocessors, starts) in PROFILES.items():
            attributes = {"profile": DeviceAttribute(string=profile)}
            for start in starts:
                drawn = _mig_counters(range(start, start + memory), multiprocessors)
                consumption = DeviceCounterConsumption(counter_set=name, counters=drawn)
                device = Device(
                    name=f"{name}-{profile}-{start}",
                    attributes=attributes,
                    consumes_counters=(consumption,),
                )
                devices.append(device)
    return (
        _slice(node, GPU, (), counters=tuple(sets), page="counters", pages=2),
        _slice(node, GPU, tuple(devices), page="devices", pages=2),
    )


def _mig_claim(pod: str, profile: str) -> ResourceClaim:
    return _claim(pod, _request("gpu", "gpu", f'device.attributes["{GPU}"].profile == "{profile}"'))


def _share_claim(pod: str, memory: str) -> ResourceClaim:
    return _claim(pod, _request("gpu", "gpu", capacity=CapacityRequirements(requests={"memory": parse(memory)})))


def _pair_claim(pod: str, kind: str) -> ResourceClaim:
    if kind in ("gpu", "nic"):
        return _claim(pod, _request(kind, kind))
    count = 2 if kind == "quad" else 1
    gpu = _request("gpu", "gpu", count=count)
    nic = _request("nic", "nic")
    near = DeviceConstraint(match_attribute=PCIE_ROOT)
    return _claim(pod, gpu, nic, constraints=(near,))


def _claim(pod: str, *requests: DeviceRequest, constraints: tuple[DeviceConstraint, ...] = ()) -> ResourceClaim:
    return ResourceClaim(
        metadata=ObjectMeta(name=pod, namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=requests, constraints=constraints)),
    )


def _request(
    name: str, class_: str, selector: str = "", *, count: int = 1, capacity: CapacityRequirements | None = None
) -> DeviceRequest:
    exactly = ExactDeviceRequest(
        device_class_name=class_,
        selectors=(_cel(selector),) if selector else (),
        allocation_mode="ExactCount",
        count=count,
        capacity=capacity,
    )
    return DeviceRequest(name=name, exactly=exactly)


def _slice(
    node: str,
    driver: str,
    devices: tuple[Device, ...],
    *,
    counters: tuple[CounterSet, ...] = (),
    page: str = "devices",
    pages: int = 1,
) -> ResourceSlice:
    return ResourceSlice(
        metadata=ObjectMeta(name=f"{node}-{driver}-{page}"),
        spec=ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=node, generation=1, resource_slice_count=pages),
            node_name=node,
            devices=devices,
            shared_counters=counters,
        ),
    )


def _root(node: str, number: int) -> dict[str, DeviceAttribute]:
    return {PCIE_ROOT: DeviceAttribute(string=f"pci-{node}-{number}")}


def _cel(expression: str) -> DeviceSelector:
    return DeviceSelector(cel=CELDeviceSelector(expression=expression))


def _pick(draw: Draw, mix: Mix) -> str:
    point = draw() * sum(weight for weight, _ in mix)
    for weight, name in mix:
        point -= weight
        if point < 0:
            return name
    return mix[-1][1]


def _exponential(draw: Draw, mean: float) -> float:
    return round(-mean * log(1.0 - draw()), 3)
