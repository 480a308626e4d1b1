"""Targets: the kinds of device a dialect can ask for, and what their drivers call things.

Data about drivers as they are published, used to find the right DeviceClass on a cluster and to spell a claim. What a
driver *really* publishes on the cluster at hand is in `webhook.state.inventory` and wins over what is written here.
"""

from __future__ import annotations

import msgspec

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"
DRANET_NUMA_NODE = "dra.net/numaNode"
NETWORK_RESOURCE = "k8s.cni.cncf.io/resourceName"


class Target(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One kind of device: its driver, the classes its vendor installs, and the names in its slices."""

    name: str
    title: str
    driver: str
    classes: tuple[str, ...]  # as the vendor's chart names them, the preferred one first
    type: str = ""  # value of the driver's `type` attribute, for drivers that publish several kinds
    unique: str = ""  # attribute that tells two devices apart
    product: str = ""
    memory: str = "memory"
    cores: str = "cores"
    # Devices are given out in shares, and what a request leaves out is taken whole.
    shared: bool = False
    # What a container is given may be spread over several claims.
    separable: bool = True
    # What the driver's source says it publishes, for use where no slices can be looked at.
    attributes: frozenset[str] = frozenset()
    request: str = "gpu"


TARGETS = {
    target.name: target
    for target in (
        Target(
            name="gpu",
            title="whole GPU",
            driver="gpu.nvidia.com",
            classes=("gpu.nvidia.com",),
            type="gpu",
            unique="gpu.nvidia.com/uuid",
            product="gpu.nvidia.com/productName",
            attributes=frozenset({PCIE_ROOT, NUMA_NODE, "gpu.nvidia.com/uuid", "gpu.nvidia.com/productName"}),
        ),
        Target(
            name="mig",
            title="MIG device",
            driver="gpu.nvidia.com",
            classes=("mig.nvidia.com",),
            type="mig",
            product="gpu.nvidia.com/productName",
            attributes=frozenset({PCIE_ROOT, NUMA_NODE, "gpu.nvidia.com/productName", "gpu.nvidia.com/profile"}),
            request="mig",
        ),
        Target(
            name="vgpu",
            title="share of a GPU",
            driver="hami-core-gpu.project-hami.io",
            classes=("hami-core-gpu.project-hami.io",),
            type="hami-gpu",
            unique="hami-core-gpu.project-hami.io/uuid",
            product="hami-core-gpu.project-hami.io/productName",
            shared=True,
            separable=False,
            attributes=frozenset(
                {PCIE_ROOT, "hami-core-gpu.project-hami.io/uuid", "hami-core-gpu.project-hami.io/productName"}
            ),
        ),
        Target(
            name="nic",
            title="network device",
            driver="dra.net",
            classes=("dranet", "dranet.net", "rdma-net", "multinic"),
            unique="dra.net/pciAddress",
            product="dra.net/pciDevice",
            attributes=frozenset({PCIE_ROOT, NUMA_NODE, DRANET_NUMA_NODE}),
            request="nic",
        ),
        Target(
            name="vf",
            title="virtual function",
            driver="sriovnetwork.k8snetworkplumbingwg.io",
            classes=("sriovnetwork.k8snetworkplumbingwg.io",),
            unique="sriovnetwork.k8snetworkplumbingwg.io/pciAddress",
            product="sriovnetwork.k8snetworkplumbingwg.io/deviceID",
            attributes=frozenset({PCIE_ROOT, DRANET_NUMA_NODE}),
            request="nic",
        ),
    )
}
