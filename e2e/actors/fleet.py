"""ResourceSlices and DeviceClasses shaped like those of real drivers, as plain dicts.

Attributes and capacities have the names that drivers publish according to their documentation and charts, so selectors for real drivers
work here. On a real node the DRA test driver runs under the driver's name and without devices of its own (`Node.driver(name)`). The
test driver prepares devices that were allocated from these slices.

A slice selects its node by a nodeSelector, because the test driver removes slices with the nodeName of its node. For nodes without a
driver use `by_name=True`: then slices have a nodeName, like those of node-local drivers.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from e2e.actors.client import Object

NVIDIA = "gpu.nvidia.com"
HAMI = "hami-core-gpu.project-hami.io"
DRANET = "dra.net"
SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"
A100 = "NVIDIA A100-SXM4-40GB"
DEVICES_PER_SLICE = 64  # the API's limit for slices whose devices have counters or taints, used for all slices here
STANDARD = "resource.kubernetes.io/"
MIG_SLICES = {
    "1g.5gb": (14, "4864Mi"),
    "2g.10gb": (28, "9856Mi"),
    "3g.20gb": (42, "19968Mi"),
    "7g.40gb": (98, "40192Mi"),
}


class Version(str):
    """A string that is published as a version attribute."""

    __slots__ = ()


# Slices and classes


def slices(driver: str, node: str, devices: Sequence[Object], *, pool: str = "", by_name: bool = False) -> list[Object]:
    """Make the slices of one complete pool with the devices of one node."""
    parts = [devices[start : start + DEVICES_PER_SLICE] for start in range(0, len(devices), DEVICES_PER_SLICE)] or [()]
    return complete(driver, node, [{"devices": list(part)} for part in parts], pool=pool, by_name=by_name)


def counted_slices(
    driver: str,
    node: str,
    counters: dict[str, Object],
    devices: Sequence[Object],
    *,
    pool: str = "",
    by_name: bool = False,
) -> list[Object]:
    """Make the slices of partitionable devices: one with counter sets (`{set: {counter: value}}`) and one with devices."""
    sets = [{"name": name, "counters": amounts(values)} for name, values in counters.items()]
    parts: list[Object] = [{"sharedCounters": sets}, {"devices": list(devices)}]
    return complete(driver, node, parts, pool=pool, by_name=by_name)


def complete(driver: str, node: str, parts: Sequence[Object], *, pool: str, by_name: bool) -> list[Object]:
    """Make the slices of one pool."""
    pool = pool or f"{node}-fleet"
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    node_selection = (
        {"nodeName": node} if by_name else {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
    )
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{pool}-{driver}-{index}"},
            "spec": {
                "driver": driver,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": len(parts)},
                **node_selection,
                **part,
            },
        }
        for index, part in enumerate(parts)
    ]


def device_class(name: str, expression: str, extended: str = "", **spec: Any) -> Object:
    """Make a DeviceClass that selects by one CEL expression; `extended` is its extended resource name."""
    fields = {"selectors": [{"cel": {"expression": expression}}]} | spec
    if extended:
        fields["extendedResourceName"] = extended
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": fields,
    }


def classes(*, extended: bool = True) -> list[Object]:
    """The DeviceClasses that the drivers' charts install. With `extended`, whole GPUs have an extended resource name, as in NVIDIA's chart."""
    gpu = f"device.driver == '{NVIDIA}' && device.attributes['{NVIDIA}'].type == "
    hami = f"device.driver == '{HAMI}' && device.attributes['{HAMI}'].type == 'hami-gpu'"
    return [
        device_class(NVIDIA, f"{gpu}'gpu'", "nvidia.com/gpu" if extended else ""),
        device_class("mig.nvidia.com", f"{gpu}'mig'"),
        device_class(HAMI, hami),
        device_class("dranet", f"device.driver == '{DRANET}'"),
        device_class(SRIOV, f"device.driver == '{SRIOV}'"),
    ]


# Devices


def whole_gpus(count: int, *, product: str = A100, memory: str = "40Gi", roots: int = 0) -> list[Object]:
    """Whole GPUs as dra-driver-nvidia-gpu publishes them; `roots` spreads them over that many PCIe roots."""
    return [
        device(
            f"gpu-{index}",
            {
                "type": "gpu",
                "uuid": f"GPU-{index:08x}-0000-4000-8000-000000000000",
                **nvidia_attributes(product),
                **bus_attributes(index, count, roots or count, bus=True),
            },
            {"memory": memory},
        )
        for index in range(count)
    ]


def static_mig(gpu: int, profiles: Sequence[str], *, product: str = A100) -> list[Object]:
    """The partitions of one GPU in static MIG mode, by profile: `static_mig(0, ["3g.20gb", "1g.5gb"])`."""
    devices = []
    start = 0
    for profile in profiles:
        width = {"1": 1, "2": 2, "3": 4, "7": 8}[profile[0]]
        processors, memory = MIG_SLICES[profile]
        engines = {"copyEngines": 1, "decoders": 0, "encoders": 0, "jpegEngines": 0, "ofaEngines": 0}
        memory_slices = {f"memorySlice{start + offset}": 1 for offset in range(width)}
        devices.append(
            device(
                f"gpu-{gpu}-mig-{profile.replace('.', '-')}-{start}",
                {
                    "type": "mig",
                    "uuid": f"MIG-{gpu:08x}-0000-4000-8000-{start:012x}",
                    "parentUUID": f"GPU-{gpu:08x}-0000-4000-8000-000000000000",
                    "profile": profile,
                    **nvidia_attributes(product),
                    **bus_attributes(gpu, gpu + 1, gpu + 1, bus=True),
                },
                {"memory": memory, "multiprocessors": processors, **engines, **memory_slices},
            )
        )
        start += width
    return devices


def hami_gpus(count: int, *, product: str = A100, memory: str = "40Gi", roots: int = 0) -> list[Object]:
    """GPUs that are shared by memory and cores, as HAMi's DRA driver publishes them."""
    return [
        device(
            f"hami-gpu-{index}",
            {
                "type": "hami-gpu",
                "uuid": f"GPU-{index:08x}-0000-4000-8000-000000000000",
                "minor": index,
                **nvidia_attributes(product),
                "pcieBusID": f"0000:{0x10 + index:02x}:00.0",
                f"{STANDARD}pcieRoot": bus_attributes(index, count, roots or count)[f"{STANDARD}pcieRoot"],
            },
            {
                "cores": shared("100", minimum="0", step="1", default="100"),
                "memory": shared(memory, minimum="1Mi", step="1Mi", default=memory),
            },
            allowMultipleAllocations=True,
        )
        for index in range(count)
    ]


def dranet_nics(count: int, *, rdma: bool = True, roots: int = 0) -> list[Object]:
    """Network interfaces as dranet publishes them."""
    return [
        device(
            f"net{index}",
            {
                f"{DRANET}/ifName": f"eth{index + 1}",
                f"{DRANET}/mac": f"02:00:00:00:00:{index:02x}",
                f"{DRANET}/pciAddress": f"0000:{0x80 + index:02x}:00.0",
                f"{DRANET}/pciVendor": "Mellanox Technologies",
                f"{DRANET}/pciDevice": "MT2892 Family [ConnectX-6 Dx]",
                f"{DRANET}/mtu": 1500,
                f"{DRANET}/encapsulation": "ether",
                f"{DRANET}/alias": "",
                f"{DRANET}/state": "up",
                f"{DRANET}/type": "device",
                f"{DRANET}/rdma": rdma,
                **({f"{DRANET}/rdmaDevice": f"mlx5_{index}"} if rdma else {}),
                f"{DRANET}/virtual": False,
                f"{DRANET}/sriov": False,
                f"{DRANET}/ebpf": False,
                **bus_attributes(index, count, roots or count),
            },
        )
        for index in range(count)
    ]


# The parts of a device


def device(name: str, attributes: Object, capacity: Object | None = None, **fields: Any) -> Object:
    """Make a device from plain Python values."""
    result: Object = {"name": name, "attributes": {key: attribute(value) for key, value in attributes.items()}}
    if capacity:
        result["capacity"] = amounts(capacity)
    return result | fields


def attribute(value: Any) -> Object:
    """Wrap a value as an attribute of its type; lists need the feature gate DRAListTypeAttributes."""
    match value:
        case bool():
            return {"bool": value}
        case int():
            return {"int": value}
        case Version():
            return {"version": str(value)}
        case str():
            return {"string": value}
        case [first, *_]:
            [kind] = attribute(first)
            return {f"{kind}s": list(value)}
    raise TypeError(f"no attribute can hold {value!r}")


def amounts(values: Object) -> Object:
    """Wrap quantities as `{value: ...}`; dicts, such as the results of shared(), stay as they are."""
    return {key: value if isinstance(value, dict) else {"value": str(value)} for key, value in values.items()}


def shared(value: str, *, minimum: str, step: str, default: str) -> Object:
    """Make a capacity that many allocations share; requests are rounded to steps."""
    valid = {"min": minimum, "max": value, "step": step}
    return {"value": value, "requestPolicy": {"default": default, "validRange": valid}}


def consumes(counter_set: str, groups: Iterable[str] = (), **counters: Any) -> Object:
    """Make one consumesCounters entry, with its compatibility groups."""
    entry: Object = {"counterSet": counter_set, "counters": amounts(counters)}
    return entry | ({"compatibilityGroups": list(groups)} if groups else {})


def bus_attributes(index: int, count: int, roots: int, *, bus: bool = False) -> Object:
    """Return a device's PCIe and NUMA attributes: devices are spread evenly over PCIe roots, and the roots over two NUMA nodes."""
    root = index * roots // count
    attributes: Object = {f"{STANDARD}pcieRoot": f"pci0000:{root * 0x10:02x}", f"{STANDARD}numaNode": 2 * root // roots}
    return attributes | ({f"{STANDARD}pciBusID": f"0000:{0x10 + index:02x}:00.0"} if bus else {})


def nvidia_attributes(product: str) -> Object:
    return {
        "productName": product,
        "brand": "Nvidia",
        "architecture": "Ampere",
        "cudaComputeCapability": Version("8.0.0"),
        "driverVersion": Version("570.86.15"),
        "cudaDriverVersion": Version("12.8.0"),
    }
