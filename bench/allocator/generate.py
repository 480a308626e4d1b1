"""Generates workloads for comparing strategies: a fleet, and pods that arrive and end.

There are three kinds of workloads, like real requests for accelerators: partitions of GPUs by profile (MIG), shares of GPU memory, and GPUs
with a NIC on the same PCIe root. The caller passes the function that draws random numbers from [0, 1). With equal numbers the workloads are
equal.
"""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, NamedTuple

from bench.allocator.replay import Arrival
from dra.objects import DeviceClass, Node, ResourceClaim, ResourceSlice
from dra.quantity import parse
from dra.stock import Stock
from dra.wire import convert

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dra.raw import Object

    Draw = Callable[[], float]
    Mix = Sequence[tuple[float, str]]


class Workload(NamedTuple):
    """A fleet, and the pods that arrive."""

    stock: Stock
    arrivals: tuple[Arrival, ...]


GPU, NIC = "gpu.example.com", "nic.example.com"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"

# Profile → (memory slices, multiprocessors, possible starts), on a GPU with seven compute and eight memory slices.
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
    """Make nodes of four partitionable GPUs, and pods that request one partition each."""
    slices: list[ResourceSlice] = []
    for number in range(nodes):
        node = f"node-{number:02}"
        gpus = [f"gpu-{at}" for at in range(4)]
        sets = [{"name": gpu, "counters": _mig_counters(range(8), 98)} for gpu in gpus]
        devices: list[Object] = [
            {
                "name": f"{gpu}-{profile}-{start}",
                "attributes": {"profile": {"string": profile}},
                "consumesCounters": [
                    {
                        "counterSet": gpu,
                        "counters": _mig_counters(range(start, start + memory), multiprocessors),
                    }
                ],
            }
            for gpu in gpus
            for profile, (memory, multiprocessors, starts) in PROFILES.items()
            for start in starts
        ]
        slices.append(_slice(node, GPU, [], counters=sets, page="counters", pages=2))
        slices.append(_slice(node, GPU, devices, pages=2))

    def claim(profile: str) -> Object:
        return {"requests": [request("gpu", f'device.attributes["{GPU}"].profile == "{profile}"')]}

    sizes = {profile: memory / 8 for profile, (memory, _, _) in PROFILES.items()}
    arriving = _ArrivingPods(MIG_MIX, sizes, claim, hardware=nodes * 4)
    return arriving.workload(draw, slices, nodes=nodes, pods=pods, load=load)


def shares(draw: Draw, *, nodes: int, pods: int, load: float = 1.0) -> Workload:
    """Make nodes of four shareable GPUs of 80Gi, and pods that request a share of memory each."""
    devices: list[Object] = [
        {"name": f"gpu-{at}", "capacity": {"memory": {"value": "80Gi"}}, "allowMultipleAllocations": True}
        for at in range(4)
    ]
    slices = [_slice(f"node-{number:02}", GPU, devices) for number in range(nodes)]

    def claim(memory: str) -> Object:
        return {"requests": [request("gpu", capacity={"requests": {"memory": memory}})]}

    sizes = {name: parse(name).as_float() / parse("80Gi").as_float() for _, name in SHARES_MIX}
    arriving = _ArrivingPods(SHARES_MIX, sizes, claim, hardware=nodes * 4)
    return arriving.workload(draw, slices, nodes=nodes, pods=pods, load=load)


def pairs(draw: Draw, *, nodes: int, pods: int, load: float = 1.0) -> Workload:
    """Make nodes of eight GPUs and four NICs on four PCIe roots; pods request a GPU, a NIC, both, or all devices of a root."""

    def devices(node: str, kind: str, count: int, per_root: int) -> list[Object]:
        return [
            {"name": f"{kind}-{at}", "attributes": {PCIE_ROOT: {"string": f"pci-{node}-{at // per_root}"}}}
            for at in range(count)
        ]

    slices: list[ResourceSlice] = []
    for number in range(nodes):
        node = f"node-{number:02}"
        slices += [_slice(node, GPU, devices(node, "gpu", 8, 2)), _slice(node, NIC, devices(node, "nic", 4, 1))]

    def claim(kind: str) -> Object:
        if kind in ("gpu", "nic"):
            return {"requests": [request(kind)]}
        gpu = request("gpu", count=2 if kind == "quad" else 1)
        return {"requests": [gpu, request("nic")], "constraints": [{"matchAttribute": PCIE_ROOT}]}

    sizes = {"gpu": 1 / 12, "nic": 1 / 12, "pair": 2 / 12, "quad": 3 / 12}
    arriving = _ArrivingPods(PAIRS_MIX, sizes, claim, hardware=nodes)
    return arriving.workload(draw, slices, nodes=nodes, pods=pods, load=load)


KINDS: dict[str, Callable[..., Workload]] = {"mig": mig, "shares": shares, "pairs": pairs}


class _ArrivingPods:
    """The pods that arrive. Each kind of pod has a weight (how often it arrives), a share of the hardware, and a claim."""

    def __init__(self, mix: Mix, sizes: dict[str, float], claim: Callable[[str], Object], *, hardware: float) -> None:
        self.mix = mix
        self.sizes = sizes
        self.claim = claim
        self.hardware = hardware

    def workload(self, draw: Draw, slices: Sequence[ResourceSlice], *, nodes: int, pods: int, load: float) -> Workload:
        """Let pods arrive so often that the running pods would request `load` times the hardware. A pod runs for 100 time units on average."""
        classes = [
            convert(
                {
                    "metadata": {"name": kind},
                    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]},
                },
                DeviceClass,
            )
            for kind, driver in (("gpu", GPU), ("nic", NIC))
        ]
        node_objects = [convert({"metadata": {"name": f"node-{number:02}"}}, Node) for number in range(nodes)]
        total_weight = sum(weight for weight, _ in self.mix)
        mean_size = sum(weight * self.sizes[kind] for weight, kind in self.mix) / total_weight
        mean_interval = 100 * mean_size / (load * self.hardware)
        arrivals: list[Arrival] = []
        now = 0.0
        for number in range(pods):
            now += _exponential(draw, mean_interval)
            pod = f"pod-{number:05}"
            point = draw() * total_weight
            chosen_kind = self.mix[-1][1]
            for weight, kind in self.mix:
                point -= weight
                if point < 0:
                    chosen_kind = kind
                    break
            spec = {"metadata": {"name": pod, "namespace": "default"}, "spec": {"devices": self.claim(chosen_kind)}}
            arrivals.append(Arrival(pod, now, (convert(spec, ResourceClaim),), _exponential(draw, 100)))
        return Workload(Stock.of(slices=slices, classes=classes, nodes=node_objects), tuple(arrivals))


def _mig_counters(slices: range, multiprocessors: int) -> Object:
    counters = {f"memory-slice-{at}": {"value": "1"} for at in slices}
    return {**counters, "multiprocessors": {"value": str(multiprocessors)}}


def request(kind: str, selector: str = "", *, count: int = 1, capacity: Object | None = None) -> Object:
    exactly: Object = {"deviceClassName": kind, "allocationMode": "ExactCount", "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    if capacity:
        exactly["capacity"] = capacity
    return {"name": kind, "exactly": exactly}


def _slice(
    node: str,
    driver: str,
    devices: Sequence[Object],
    *,
    counters: Sequence[Object] = (),
    page: str = "devices",
    pages: int = 1,
) -> ResourceSlice:
    spec = {
        "driver": driver,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": pages},
        "nodeName": node,
        "devices": devices,
        "sharedCounters": counters,
    }
    return convert({"metadata": {"name": f"{node}-{driver}-{page}"}, "spec": spec}, ResourceSlice)


def _exponential(draw: Draw, mean: float) -> float:
    return round(-mean * log(1.0 - draw()), 3)
