"""The device plugins that vendors' operators and clouds run, and how to keep them off nodes.

An operator undoes edits of the DaemonSets that it creates, so a remedy names the operator's own object. This follows NVIDIA/gpu-operator
v26.7; ROCm/gpu-operator 6df13c1: internal/validator, docs/dra; intel/intel-device-plugins-for-kubernetes 94a91bc: pkg/controllers;
Mellanox/network-operator b06827e: api/v1alpha1, its chart of k8snetworkplumbingwg/sriov-network-operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from analysis.loading import host_paths, identity_of, inside, owner_of
from dra.finding import Finding, make_finding
from dra.raw import mapping
from webhook.names import PLUGIN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from analysis.loading import Object
    from analysis.rules import Observed

# The device plugins that GKE runs in kube-system, by the prefix of their names, and the label that keeps each off a node pool.
_OF_GKE: Final = {
    "nvidia-gpu-device-plugin": "gke-no-default-nvidia-gpu-device-plugin=true",
    "tpu-device-plugin": "gke-no-default-tpu-device-plugin=true",
}
_INTEL: Final = {"GpuDevicePlugin": "gpu.intel.com", "QatDevicePlugin": "qat.intel.com"}


def plugins(surveyed: Observed) -> Iterator[Finding]:
    """Yield a finding for each device plugin, with the way to keep it off a node."""
    for daemon_set in (*surveyed.reading.of_kinds("DaemonSet"), *surveyed.reading.made):
        if daemon_set.get("kind") != "DaemonSet":
            continue
        # A device plugin mounts the folder of the kubelet's socket.
        mounted = host_paths(inside(daemon_set, "spec", "template", "spec"))
        if not any(path.startswith(PLUGIN_FOLDER) for path in mounted):
            continue
        name, owner = identity_of(daemon_set), owner_of(daemon_set)
        managed = [label for begin, label in _OF_GKE.items() if name.name.startswith(begin)]
        remedy = "keep the DaemonSet off a node (node selector, affinity) once the pods there have moved"
        if owner is not None:
            remedy = f"keep the DaemonSet off a node by {owner.kind} {owner.name}, which creates it and reverts edits"
        elif name.namespace == "kube-system" and managed:
            remedy = f"make a node pool with the label `{managed[0]}`, on which GKE does not run it"
        status = mapping(daemon_set.get("status"))
        ready = f", and is ready on {status.get('numberReady') or 0} nodes" if status else ""
        message = f"it registers with kubelet as a device plugin{ready}"
        yield make_finding("S015", f"DaemonSet/{name.namespace}/{name.name}", message, remedy)


def gpu_operator(surveyed: Observed) -> Iterator[Finding]:
    """Yield the obstacles in an object of NVIDIA's GPU operator: it installs the device plugin or the DRA driver, never both."""
    operator = surveyed.reading.state.fleet.installed.gpu_operator
    if operator.policies and operator.clusters:
        yield make_finding(
            "S017",
            f"GPUCluster/{operator.clusters[0]}",
            f"the GPU operator reconciles neither it nor ClusterPolicy {operator.policies[0]} while both exist",
            "delete the ClusterPolicy to run the DRA driver, or the GPUCluster to keep the device plugin",
        )
        return
    for name in operator.plugins:
        yield make_finding(
            "S016",
            f"ClusterPolicy/{name}",
            "it runs the device plugin on all GPU nodes, and never the DRA driver; a GPUCluster cannot exist together with it",
            "install the driver's own chart, and set the label `nvidia.com/gpu.deploy.device-plugin=false` on nodes that move",
        )
    for name, reported in operator.unready:
        yield make_finding(
            "S018",
            f"GPUCluster/{name}",
            f"its state is {reported}: its driver may publish no devices",
            f"read the conditions of the GPUCluster: `kubectl describe gpucluster {name}`",
        )


def other_operators(surveyed: Observed) -> Iterator[Finding]:
    """Yield a finding for each object of another operator that runs a device plugin."""
    for obj in surveyed.reading.installed:
        name = identity_of(obj)
        spec = inside(obj, "spec")
        object_name = f"{name.kind}/{name.namespace}/{name.name}"
        match name.group, name.kind:
            case "amd.com", "DeviceConfig":
                yield from _amd(spec, object_name)
            case "deviceplugin.intel.com", kind if kind in _INTEL:
                yield make_finding(
                    "S016",
                    f"{kind}/{name.name}",
                    "it runs the device plugin, and its operator has no DRA driver",
                    f"install the chart of {_INTEL[kind]}, and take nodes that move out of its `nodeSelector`",
                )
            case "mellanox.com", "NicClusterPolicy" if "sriovDevicePlugin" in spec:
                yield make_finding(
                    "S016",
                    f"NicClusterPolicy/{name.name}",
                    "it runs the SR-IOV device plugin, and no DRA driver; its `nodeAffinity` also applies to its network drivers",
                    "install the chart of dranet or of the SR-IOV driver, and remove `sriovDevicePlugin` when all its pods can move",
                )
            case "sriovnetwork.openshift.io", "SriovOperatorConfig":
                if inside(spec, "featureGates").get("dynamicResourceAllocation") is not True:
                    yield make_finding(
                        "S016",
                        object_name,
                        "it runs the device plugin on all nodes with SR-IOV policies, and can run the DRA driver only instead of the plugin",
                        "once all pods of the operator's nodes can move, set `featureGates.dynamicResourceAllocation`, which newer operators have",
                    )


def _amd(spec: Object, object_name: str) -> Iterator[Finding]:
    # The plugin is on by the API's default.
    has_plugin = inside(spec, "devicePlugin").get("enableDevicePlugin") is not False
    has_driver = inside(spec, "draDriver").get("enable") is True
    if has_plugin and has_driver:
        yield make_finding(
            "S017",
            object_name,
            "the operator refuses it: device plugin and DRA driver are both on, the plugin by default",
            "set `devicePlugin.enableDevicePlugin: false`",
        )
    elif has_plugin:
        yield make_finding(
            "S016",
            object_name,
            "it runs the device plugin on the nodes of its `selector`, and can run the DRA driver only instead of the plugin",
            "move nodes from the `selector` of this DeviceConfig to a DeviceConfig with `enableDevicePlugin: false` and `draDriver.enable: true`",
        )
