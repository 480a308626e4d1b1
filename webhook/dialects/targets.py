"""Targets: the kinds of device a dialect can ask for, and what their drivers call things.

Data about drivers as they are published, used to find the right DeviceClass on a cluster and to spell a claim. What a
driver *really* publishes on the cluster at hand is in `webhook.state.inventory` and wins over what is written here. The
list is open: an administrator's `targets:` are the same structure.
"""

from __future__ import annotations

from collections.abc import Mapping

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

    name: str  # for tables: what rows ask for
    driver: str  # as its slices say it in spec.driver
    title: str = ""  # for people
    classes: tuple[str, ...] = ()  # as the vendor's chart names them, the preferred one first
    type: str = ""  # value of the driver's `type` attribute, for drivers that publish several kinds
    # What its devices publish of themselves, where the class takes in others: attributes of the driver's own domain.
    where: Mapping[str, str] = {}
    true: tuple[str, ...] = ()  # attributes of the driver's own domain that must be true
    # What else holds of its devices, in CEL as in a DeviceClass; attributes that a device may lack are guarded.
    selectors: tuple[str, ...] = ()
    unique: str = ""  # attribute that tells two devices apart
    product: str = ""  # attribute that says the model
    profile: str = "profile"  # attribute of a partition's kind
    memory: str = "memory"  # capacity of which a share takes a part
    cores: str = "cores"  # capacity of which a share takes a part
    # The devices of a container may be spread over several claims.
    separable: bool = True
    # What the driver's source says it publishes, for use where no slices can be looked at.
    attributes: tuple[str, ...] = ()
    request: str = "gpu"  # how its requests are called in claims
    # Whole devices may come from this target as well, where it serves better.
    instead: str = ""
    # Virtual functions come from this target where the cluster has no class for this one.
    virtual: str = ""
    # Truths that a device publishes about itself: that it is a virtual function, that it can do RDMA. The latter have
    # several names, and only those are asked for that are published.
    virtual_flag: str = ""
    rdma_flags: tuple[str, ...] = ()  # attributes that say that a network device can do RDMA
    # The legacy system puts its vendor's name before a product name that lacks it, so words may rely on that.
    vendor: str = ""
    # Several shares of one container must lie on cards of one product: the driver numbers limits in no fixed order.
    one_product: bool = False
    # The PCIe root may be published as the empty text, which would equal every other empty one.
    rootless: bool = False
    # Devices are published under the name of their pool, which is the resource name that asks for them.
    pooled: bool = False
    # Devices are moved into the network namespace of the pod, and a pod in the host's has none of its own.
    moved: bool = False
    # The driver prepares a claim once and refuses the kubelet when it asks again, which it does after a restart.
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
            # Each claim writes the container's limits into the same variables.
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
            # A claim serves one container.
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
