"""The charts and kinds that a plan knows: DRA drivers, exporters, and kinds with a place for claims.

Follows intel/intel-resource-drivers-for-kubernetes 1ec8d68: charts/intel-gpu-resource-driver; kubernetes-sigs/dra-driver-nvidia-gpu 95932046:
deployments/helm; NVIDIA/gpu-operator a22dbf671, which installs 0.5.0 of it; ROCm/k8s-gpu-dra-driver and ROCm/gpu-operator 009f334: helm-charts-k8s; kubernetes-sigs/dranet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dra.raw import Object


class Shares(NamedTuple):
    """How a driver shares a device among claims. Each claim gets a share without requesting a capacity."""

    values: Object
    number: str  # the value with the number of claims of a device, or `unlimited`
    needs: str


class DriverChart(NamedTuple):
    """The chart of a DRA driver, with the values that most clusters need, and notes for the person who installs it."""

    name: str
    url: str
    version: str
    values: Object = {}
    # On Talos Linux, /etc is read-only, and the GPU driver is not in the root of the file system.
    values_on_talos: Object = {}
    notes: tuple[str, ...] = ()
    shares: Shares | None = None
    by_name: Mapping[
        str, str
    ] = {}  # by key of whole devices: the selector of a DeviceClass with this `extendedResourceName`
    has_named_class: bool = False  # the chart creates such a DeviceClass
    exporter: str = ""  # what an exporter of metrics needs to see the pods of claims


DRIVERS: Final = {
    "gpu.intel.com": DriverChart(
        "intel-gpu-resource-driver",
        "oci://ghcr.io/intel/intel-resource-drivers-for-kubernetes/intel-gpu-resource-driver-chart",
        "0.11.0",
        {"kubeletPlugin": {"privileged": True, "healthMonitoring": {"enabled": False}}},
        {"cdi": {"staticPath": "/run/cdi", "dynamicPath": "/run/cdi"}},
        (
            "since chart 0.10.0 health monitoring is on by default and needs xpumd, without which no device is published; the values turn it off",
            "with `nodeFeatureRules.enabled: true`, the chart labels nodes `intel.feature.node.kubernetes.io/gpu`, as the operator of the device plugin does",
        ),
        by_name={
            f"gpu.intel.com/{module}": f"device.driver == 'gpu.intel.com' && device.attributes['gpu.intel.com'].?driver.orValue('') == '{module}'"
            for module in ("i915", "xe")
        },
    ),
    "gpu.nvidia.com": DriverChart(
        "dra-driver-nvidia-gpu",
        "oci://registry.k8s.io/dra-driver-nvidia/charts/dra-driver-nvidia-gpu",
        "0.5.0",
        {"gpuResourcesEnabledOverride": True, "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}}},
        {"nvidiaDriverRoot": "/usr/local"},
        (
            "`nvidiaDriverRoot` is where the GPU driver is on the node: `/` if the host installs it, `/run/nvidia/driver` if the GPU operator does",
        ),
        Shares(
            {"featureGates": {"ConsumableShares": True}},
            "consumableShares",
            "nothing limits the memory and the compute of a share, and MPS is refused; the driver's gate ConsumableShares is alpha, and "
            "Kubernetes 1.34 and 1.35 need the gate DRAConsumableCapacity",
        ),
        {"nvidia.com/gpu": "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"},
        has_named_class=True,
        exporter="dcgm-exporter needs `kubernetesDRA.enabled: true` (chart 4.2.0), or KUBERNETES_ENABLE_DRA=true and the right to list ResourceSlices",
    ),
    "gpu.amd.com": DriverChart(
        "k8s-gpu-dra-driver",
        "https://rocm.github.io/k8s-gpu-dra-driver",
        "1.0.0",
        {},
        {"cdi": {"dynamicPath": "/run/cdi"}},
        ("the chart writes its DeviceClass as resource.k8s.io/v1beta1, which Kubernetes 1.37 does not serve by default",),
        by_name={"amd.com/gpu": "device.driver == 'gpu.amd.com' && device.attributes['gpu.amd.com'].type == 'amdgpu'"},
        has_named_class=True,
    ),
    "dra.net": DriverChart("dranet", "oci://registry.k8s.io/networking/charts/dranet", "1.4.0"),
}  # fmt: skip


# A release has the name of a chart in a repository, or the last part of its address.
DRIVER_CHARTS: Final = frozenset(
    name for chart in DRIVERS.values() for name in (chart.name, chart.url.rpartition("/")[2])
)


# By the group and kind of an object with a place for claims: what a person writes. defilantech/LLMKube 907ac8d: api/v1alpha1/model_types.go,
# internal/controller/deployment_builder.go. No edit removes `count`, because LLMKube derives options of the runtime from it.
_LLMKUBE: Final = "inference.llmkube.dev"
CONSUMER_KINDS: Final = {
    (_LLMKUBE, "Model"): (
        "with LLMKube 0.8.9 or newer, write `resourceClaims` with a claim template here and remove `count` and `resourceName`; "
        "LLMKube makes the runtime's options for several GPUs from `count`: write these options into `extraArgs`"
    ),
    (_LLMKUBE, "InferenceService"): "remove the number when its Model gets `spec.hardware.gpu.resourceClaims`",
}
# Prefixes of labels that the discovery of a device plugin puts on nodes, by driver.
DISCOVERY: Final = {
    "gpu.intel.com": ("intel.feature.node.kubernetes.io/", "gpu.intel.com/"),
    "gpu.nvidia.com": ("nvidia.com/gpu.", "nvidia.com/mig.", "nvidia.com/cuda."),
    "gpu.amd.com": ("amd.com/gpu.",),
}


class Exporter(NamedTuple):
    """A metrics exporter that reports the pods of devices. Its chart has a value that turns on claims."""

    driver: str
    switch: tuple[str, ...]
    since: str  # the first version of the chart with the switch
    field: str  # of an operator's settings, which runs the exporter by default


# By the name of a chart, and of an image. NVIDIA/dcgm-exporter 8fd6933: deployment/values.yaml.
EXPORTERS: Final = {"dcgm-exporter": Exporter("gpu.nvidia.com", ("kubernetesDRA", "enabled"), "4.2.0", "dcgmExporter")}
