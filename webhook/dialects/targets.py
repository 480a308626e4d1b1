"""Targets: the kinds of device that legacy keys can request, with the names that their drivers use.

The data comes from the drivers' releases. Translation takes the DeviceClass of a target, and the names of attributes and capacities, from this
data. What a driver publishes on the cluster (`webhook.state.inventory`) takes precedence over this data. An administrator adds targets of the
same form under `targets` in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"
DRANET_NUMA_NODE = "dra.net/numaNode"
NETWORK_RESOURCE = "k8s.cni.cncf.io/resourceName"


class Target(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    rename="camel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """One kind of device: its driver, the classes its vendor installs, and the names in its slices."""

    name: str  # as rows of tables refer to it
    driver: Annotated[str, msgspec.Meta(min_length=1)]  # `spec.driver` of its slices
    title: str = ""  # for messages
    classes: tuple[str, ...] = ()  # the DeviceClasses of the vendor's chart, the preferred one first
    type: str = ""  # the kind among those that the driver publishes; "" if it publishes one kind
    # Attributes of the driver's domain, with the values that all devices of the target have. They are necessary if the class selects other
    # kinds of device too.
    where: Mapping[str, str] = {}
    true: tuple[str, ...] = ()  # attributes of the driver's domain that must be true
    # CEL selectors of its devices, as in a DeviceClass; attributes that a device may lack are guarded.
    selectors: Annotated[tuple[str, ...], msgspec.Meta(max_length=8)] = ()
    unique: str = ""  # attribute with a different value on each device
    product: str = ""  # attribute with the model
    profile: str = "profile"  # attribute with the profile of a partition
    memory: str = "memory"  # capacity for shares of the memory
    cores: str = "cores"  # capacity for shares of the compute
    # The devices of a container may be spread over several claims.
    separable: bool = True
    # The attributes that the driver publishes, according to its source code. They are used if no slices are known.
    attributes: tuple[str, ...] = ()
    request: str = "gpu"  # prefix of the request names in claims
    # Another target with the same devices. Whole devices are requested from it if this target cannot serve them, or if only the other target
    # publishes the attribute that the devices must share.
    instead: str = ""
    # The target that serves virtual functions if the cluster has no class for this target.
    virtual: str = ""
    # Attribute that is true for a virtual function.
    virtual_flag: str = ""
    # Attributes that are true for a network device with RDMA. Claims require only those that nodes publish.
    rdma_flags: tuple[str, ...] = ()
    # The vendor's name. Legacy systems put it before a product name that lacks it, so annotations that select models may contain it.
    vendor: str = ""
    # Several shares of one container must be on cards of one product: the driver assigns the containers' limits to the cards in no fixed order.
    one_product: bool = False
    # The PCIe root may be published as the empty text, which equals every other empty root.
    rootless: bool = False
    # A device publishes the name of its resource pool, which is the name of the extended resource that requests such a device.
    pooled: bool = False
    # The driver moves devices into the pod's network namespace, so pods with hostNetwork cannot have them.
    moved: bool = False
    # The driver prepares a claim only once, and fails when the kubelet prepares it again after a restart.
    prepares_once: bool = False


_NVIDIA = "gpu.nvidia.com"
_HAMI = "hami-core-gpu.project-hami.io"
_SRIOV = "sriovnetwork.k8snetworkplumbingwg.io"
_AMD = "gpu.amd.com"
_INTEL = "gpu.intel.com"
_NEURON = "neuron.aws.com"
_HYGON = "dra.hygon.com"
_QAT = "qat.intel.com"
_CPU = "dra.cpu"
_RBLN = "npu.rebellions.ai"
_ASCEND = "ascend.project-hami.io"
_HUAWEI = "npu.huawei.com"
_RDMA_FLAGS = ("rdma", "rdmaCapable")

TARGETS = {
    target.name: target
    for target in (
        Target(
            name="gpu",
            title="whole GPU",
            driver=_NVIDIA,
            classes=(_NVIDIA,),
            type="gpu",
            unique=f"{_NVIDIA}/uuid",
            product=f"{_NVIDIA}/productName",
            attributes=(PCIE_ROOT, NUMA_NODE, f"{_NVIDIA}/uuid", f"{_NVIDIA}/productName"),
            instead="vgpu",
            vendor="NVIDIA",
        ),
        Target(
            name="mig",
            title="MIG device",
            driver=_NVIDIA,
            classes=("mig.nvidia.com",),
            type="mig",
            product=f"{_NVIDIA}/productName",
            attributes=(PCIE_ROOT, NUMA_NODE, f"{_NVIDIA}/productName", f"{_NVIDIA}/profile"),
            request="mig",
            vendor="NVIDIA",
        ),
        Target(
            name="vgpu",
            title="share of a GPU",
            driver=_HAMI,
            classes=(_HAMI,),
            type="hami-gpu",
            unique=f"{_HAMI}/uuid",
            product=f"{_HAMI}/productName",
            separable=False,
            attributes=(PCIE_ROOT, f"{_HAMI}/uuid", f"{_HAMI}/productName"),
            instead="gpu",
            vendor="NVIDIA",
            one_product=True,
            prepares_once=True,
        ),
        Target(
            name="nic",
            title="network device",
            driver="dra.net",
            classes=("dranet", "dranet.net", "rdma-net", "multinic"),
            unique="dra.net/pciAddress",
            product="dra.net/pciDevice",
            attributes=(PCIE_ROOT, NUMA_NODE, DRANET_NUMA_NODE),
            request="nic",
            virtual="vf",
            virtual_flag="isSriovVf",
            rdma_flags=_RDMA_FLAGS,
            moved=True,
        ),
        Target(
            name="efa",
            title="Elastic Fabric Adapter",
            driver="dra.net",
            classes=("efa.networking.k8s.aws",),
            type="efa",
            unique="dra.net/pciAddress",
            attributes=(PCIE_ROOT, NUMA_NODE, DRANET_NUMA_NODE),
            request="efa",
            moved=True,
        ),
        Target(
            name="vf",
            title="virtual function",
            driver=_SRIOV,
            classes=(_SRIOV,),
            unique=f"{_SRIOV}/pciAddress",
            product=f"{_SRIOV}/deviceID",
            attributes=(PCIE_ROOT, DRANET_NUMA_NODE),
            request="nic",
            rdma_flags=_RDMA_FLAGS,
            rootless=True,
            pooled=True,
        ),
        Target(
            name="amdGpu",
            title="whole AMD GPU",
            driver=_AMD,
            classes=(_AMD,),
            type="amdgpu",
            where={"type": "amdgpu"},
            unique=f"{_AMD}/deviceID",
            product=f"{_AMD}/productName",
            profile="partitionProfile",
            attributes=(PCIE_ROOT, f"{_AMD}/productName"),
        ),
        Target(
            name="amdPartition",
            title="partition of an AMD GPU",
            driver=_AMD,
            classes=(_AMD,),
            type="amdgpu-partition",
            product=f"{_AMD}/productName",
            profile="partitionProfile",
            attributes=(PCIE_ROOT,),
            request="partition",
        ),
        *(
            Target(
                name=name,
                title=f"GPU on {kernel}",
                driver=_INTEL,
                classes=(_INTEL,),
                type=kernel,
                where={"type": "gpu", "driver": kernel},
                unique="resource.kubernetes.io/pciBusID",
                product=f"{_INTEL}/model",
                attributes=(PCIE_ROOT, f"{_INTEL}/model"),
            )
            for name, kernel in (("intelI915", "i915"), ("intelXe", "xe"))
        ),
        Target(
            name="gaudi",
            title="Gaudi accelerator",
            driver="gaudi.intel.com",
            classes=("gaudi.intel.com",),
            true=("healthy",),
            unique="gaudi.intel.com/serial",
            product="gaudi.intel.com/model",
            attributes=(PCIE_ROOT,),
            request="gaudi",
        ),
        Target(
            name="qat",
            title="QAT virtual function",
            driver=_QAT,
            classes=(_QAT,),
            profile="services",
            request="qat",
        ),
        Target(
            name="hcu",
            title="whole Hygon HCU",
            driver=_HYGON,
            classes=(_HYGON,),
            type="hcu",
            where={"type": "hcu"},
            unique=f"{_HYGON}/uuid",
            product=f"{_HYGON}/productName",
            request="hcu",
        ),
        Target(
            name="rbln",
            title="Rebellions NPU",
            driver=_RBLN,
            classes=(_RBLN,),
            unique=f"{_RBLN}/uuid",
            product=f"{_RBLN}/productName",
            attributes=(PCIE_ROOT, NUMA_NODE, f"{_RBLN}/productName"),
            request="npu",
        ),
        Target(
            name="ascend",
            title="share of an Ascend card",
            driver=_ASCEND,
            classes=("hami-vnpu-core.project-hami.io",),
            type="HAMivNPUCore",
            unique=f"{_ASCEND}/uuid",
            product=f"{_ASCEND}/productName",
            # The driver writes the limits of each claim into the same variables of the container.
            separable=False,
            attributes=(f"{_ASCEND}/uuid", f"{_ASCEND}/productName"),
            request="npu",
        ),
        Target(
            name="ascendNpu",
            title="whole Ascend NPU",
            driver=_HUAWEI,
            classes=(_HUAWEI,),
            unique=f"{_HUAWEI}/physicId",
            product=f"{_HUAWEI}/deviceType",
            attributes=(f"{_HUAWEI}/deviceType", f"{_HUAWEI}/physicId"),
            request="npu",
        ),
        Target(
            name="cpu",
            title="CPU",
            driver=_CPU,
            classes=(_CPU,),
            unique=f"{_CPU}/cpuID",
            cores=f"{_CPU}/cpu",
            # The driver allows a claim in only one container.
            separable=False,
            attributes=(DRANET_NUMA_NODE, f"{_CPU}/numaNodeID", f"{_CPU}/socketID"),
            request="cpus",
        ),
        Target(
            name="tpu",
            title="TPU chip",
            driver="tpu.google.com",
            classes=("tpu.google.com",),
            unique="tpu.google.com/index",
            request="tpu",
        ),
        Target(
            name="neuron",
            title="Neuron device",
            driver=_NEURON,
            classes=(_NEURON,),
            type="neuron_device",
            where={"resourceType": "neuron_device"},
            unique=f"{_NEURON}/deviceId",
            attributes=tuple(f"resource.aws.com/devicegroup{size}_id" for size in (1, 4, 8, 16)),
            request="neuron",
        ),
    )
}
