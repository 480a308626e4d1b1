"""Settings of device plugins, in files and on nodes: whether a unit of a key is a whole device or a replica."""

import json

from tests import objects
from tests.corpus.move import GPU, Case, migrated_fleet, node, requesting_pod

LABEL = "nvidia.com/device-plugin.config"
SHARES_CONFIGURATION = {"nvidia": {"consumableShares": True}}
MIG_KEY = "nvidia.com/mig-1g.5gb"


def sharing(replicas=4, name=GPU, strategy="timeSlicing", **more):
    """Return a configuration of the NVIDIA plugin. `config_map` writes it as JSON, which is also YAML."""
    return {"version": "v1", "sharing": {strategy: {"resources": [{"name": name, "replicas": replicas}], **more}}}


def config_map(name="plugin", namespace="gpu-operator", **configurations):
    data = {
        key.replace("_", "-"): value if isinstance(value, str) else json.dumps(value)
        for key, value in configurations.items()
    }
    return objects.config_map(name, namespace, **data)


def policy(default="", name="plugin"):
    """Return a ClusterPolicy that gives the plugin a ConfigMap."""
    config = {"name": name, **({"default": default} if default else {})}
    return objects.obj("ClusterPolicy", "cluster-policy", "nvidia.com/v1", devicePlugin={"config": config})


def node_overlay(amount="4", key=GPU, **labels):
    """Return a NodeOverlay of Karpenter, which announces units of a key for nodes with the labels."""
    requirements = [{"key": name, "operator": "In", "values": [text]} for name, text in labels.items()]
    fields = {"requirements": requirements, "capacity": {key: amount}}
    return objects.obj("NodeOverlay", "slices", "karpenter.sh/v1alpha1", **fields)


def gpu_cluster(state="ready"):
    """Return a GPUCluster: the GPU operator runs the DRA driver and no device plugin."""
    driver = {"computeDomains": {"enabled": True}}
    return objects.obj("GPUCluster", "gpu-cluster", "nvidia.com/v1alpha1", draDriver=driver, status={"state": state})


def device_config(plugin=None, driver=None, name="default"):
    """Return a DeviceConfig of AMD's GPU operator that turns the device plugin and the DRA driver on or off; None is the default."""
    spec = {"selector": {"feature.node.kubernetes.io/amd-gpu": "true"}}
    if plugin is not None:
        spec["devicePlugin"] = {"enableDevicePlugin": plugin, "devicePluginImage": "rocm/k8s-device-plugin:latest"}
    if driver is not None:
        spec["draDriver"] = {"enable": driver}
    return objects.obj("DeviceConfig", name, "amd.com/v1alpha1", namespace="kube-amd-gpu", **spec)


def container_of(image, *args, **env):
    """Return a container with these arguments and variables."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return {"name": "c", "image": image, "args": list(args), "env": variables}


def daemon_set(
    image="nvcr.io/nvidia/k8s-device-plugin:v0.17.1", name="plugin", args=(), selector=None, volume=None, **env
):
    """Return a DaemonSet of a device plugin; `volume` is the ConfigMap that the DaemonSet mounts."""
    volumes = [{"name": "configs", "configMap": {"name": volume}}] if volume else []
    pod = {"containers": [container_of(image, *args, **env)], "volumes": volumes}
    pod |= {"nodeSelector": selector} if selector else {}
    return objects.workload("DaemonSet", name, pod, namespace="gpu-operator", selector={})


# The DaemonSet of the NVIDIA plugin's Helm chart.
CHART = daemon_set(volume="plugin", CONFIG_FILE="/config/config.yaml", NODE_LABEL=LABEL, DEFAULT_CONFIG="slow")
TIME_SLICING_YAML = """\
version: v1
flags:
  migStrategy: none
sharing:
  timeSlicing:
    renameByDefault: false
    failRequestsGreaterThanOne: true
    resources:
    - name: nvidia.com/gpu
      replicas: 10
"""
VFS_KEY = "openshift.io/vfs"
POOLS = {"resourceList": [{"resourceName": "vfs", "selectors": {"vendors": ["15b3"]}}]}
PLAIN = {"version": "v1", "flags": {"migStrategy": "none"}}
FOUR_REPLICAS = "ConfigMap gpu-operator/plugin (any) makes 4 time-sliced replicas of each device"
NO_CLAIM_FOR_REPLICAS = "a claim cannot request a replica of a shared device"
ANY_CONFIGURATION_LABELS = {LABEL: "any"}
SHARING_AND_PLAIN = config_map(any=sharing(), plain=PLAIN)
TWO_MIGRATED_NODES_OF_THREE = (*migrated_fleet("a", "b"), node("c", ANY_CONFIGURATION_LABELS, gpu=32))
SHARING_LABELS = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}


def pod_selecting(labels, key=GPU):
    return requesting_pod(key=key, nodeSelector=labels)


CASES = [
    # Files without nodes.
    Case("files without a device plugin", requesting_pod(), "translated"),
    Case("files with a time-slicing ConfigMap", requesting_pod(), "left", (FOUR_REPLICAS, NO_CLAIM_FOR_REPLICAS), [config_map(any=sharing())]),
    Case("a time-slicing ConfigMap with the YAML of the documentation", requesting_pod(), "left", "10 time-sliced replicas", [config_map(any=TIME_SLICING_YAML)]),
    Case("a time-slicing ConfigMap that rejects requests for two replicas", requesting_pod(2), "left", "rejects pods that request two", [config_map(any=TIME_SLICING_YAML)]),
    Case("files with an MPS ConfigMap", requesting_pod(), "left", ("4 MPS replicas", "rejects pods"), [config_map(any=sharing(strategy="mps"))]),
    Case("MPS that accepts requests for two replicas", requesting_pod(), "left", "4 MPS", [config_map(any=sharing(strategy="mps", failRequestsGreaterThanOne=False))], never="fails"),
    Case("MPS overrides time-slicing", requesting_pod(), "left", "3 MPS", [config_map(any={"version": "v1", "sharing": {**sharing()["sharing"], **sharing(3, strategy="mps")["sharing"]}})]),
    Case("sharing under the short name of a resource", requesting_pod(), "left", FOUR_REPLICAS, [config_map(any=sharing(name="gpu"))]),
    Case("a configuration without sharing", requesting_pod(), "translated", (), [config_map(plain=PLAIN)]),
    Case("one replica of each device is no sharing", requesting_pod(), "translated", (), [config_map(any=sharing(1))]),
    Case("a number of replicas as a text is no sharing", requesting_pod(), "translated", (), [config_map(any=sharing("4"))]),
    Case("replicas have another name: the original name is a whole device", requesting_pod(), "translated", (), [config_map(any=sharing(renameByDefault=True))]),
    Case("replicas have another name: a request for a replica", requesting_pod(key="nvidia.com/gpu.shared"), "left", NO_CLAIM_FOR_REPLICAS, [config_map(any=sharing(renameByDefault=True))]),
    Case("an unknown version of the configuration", requesting_pod(), "translated", (), [config_map(any=sharing() | {"version": "v2"})]),
    Case("files with a NodeOverlay that announces several units", requesting_pod(), "left", "NodeOverlay slices announces 4 units for a node, which can be replicas of one device: declare under `meanings`", [node_overlay()]),
    Case("files with a NodeOverlay that announces one unit", requesting_pod(), "translated", (), [node_overlay(1)]),
    Case("a NodeOverlay that announces units of another key", requesting_pod(), "translated", (), [node_overlay(key="smarter-devices/fuse")]),
    Case("the meaning whole overrides the NodeOverlay", requesting_pod(), "translated", "meanings", [node_overlay()], {"meanings": {GPU: "whole"}}),
    Case("a NodeOverlay for other nodes than there are", requesting_pod(), "translated", (), [*migrated_fleet("a"), node_overlay(pool="slices")]),
    Case("a NodeOverlay for most nodes that have the key", requesting_pod(), "left", "NodeOverlay slices", [*migrated_fleet("a"), node("c", {"pool": "slices"}, gpu=4), node_overlay(pool="slices")]),
    Case("files with the SR-IOV plugin's ConfigMap", requesting_pod(key=VFS_KEY), "left", ("selects vendors=15b3 in ConfigMap", "nics: {pools: [openshift.io/vfs]}"), [config_map("device-plugin-config", a=POOLS)]),
    Case("files with the shared RDMA plugin's ConfigMap", requesting_pod(key="rdma/a"), "left", "all pods share ifNames=ib0", [config_map(a={"configList": [{"resourceName": "a", "devices": ["ib0"]}]})]),
    Case("a pool with a target", requesting_pod(key=VFS_KEY), "translated", "target vf", [config_map("device-plugin-config", a=POOLS)], {"nics": {"targets": {VFS_KEY: "vf"}}}),
    Case("a ConfigMap of another program", requesting_pod(), "translated", (), [config_map(any="sharing: {public: true}\nother: 1\n")]),
    Case("a ConfigMap that is not YAML", requesting_pod(), "translated", (), [config_map(any="version: [v1\nsharing:")]),
    Case("a ConfigMap without data", requesting_pod(), "translated", (), [config_map()]),
    Case("a ConfigMap whose data is a list", requesting_pod(), "translated", (), [{**config_map(), "data": ["version: v1"]}]),
    Case("the meaning whole overrides the ConfigMap", requesting_pod(), "translated", "meanings", [config_map(any=sharing())], {"meanings": {GPU: "whole"}}),
    Case("a request for a replica, with shares in the configuration", requesting_pod(), "translated", "one unit of `shares`", [config_map(any=sharing())], SHARES_CONFIGURATION),
    Case("a request for two replicas, with shares in the configuration", requesting_pod(2), "left", "ask for 1", [config_map(any=sharing())], SHARES_CONFIGURATION),
    Case("a request for an MPS replica, with shares in the configuration", requesting_pod(), "left", "4 MPS", [config_map(any=sharing(strategy="mps"))], SHARES_CONFIGURATION),
    Case("a replica of a MIG device", requesting_pod(key=MIG_KEY), "left", "replicas of MIG devices", [config_map(any=sharing(name=MIG_KEY))]),
    Case("a MIG device where only whole GPUs are shared", requesting_pod(key=MIG_KEY), "translated", (), [config_map(any=sharing())]),
    # Several configurations; one is in use.
    Case("the ClusterPolicy's default is a sharing configuration", requesting_pod(), "left", FOUR_REPLICAS, [policy("any"), SHARING_AND_PLAIN]),
    Case("the ClusterPolicy's default is a plain configuration", requesting_pod(), "translated", (), [policy("plain"), SHARING_AND_PLAIN]),
    Case("the ClusterPolicy has no default", requesting_pod(), "left", FOUR_REPLICAS, [policy(), SHARING_AND_PLAIN]),
    Case("the ClusterPolicy names another ConfigMap", requesting_pod(), "left", FOUR_REPLICAS, [policy("plain", "other"), config_map(any=sharing())]),
    Case("the DaemonSet's default is a sharing configuration", requesting_pod(), "left", "makes 2", [CHART, config_map(slow=sharing(2), any=sharing())]),
    Case("the DaemonSet's default is missing", requesting_pod(), "translated", (), [CHART, config_map(any=sharing())]),
    Case("the DaemonSet's argument names one file of the ConfigMap", requesting_pod(), "left", "makes 3", [daemon_set(volume="plugin", args=["--config-file=/etc/x/config.yaml"]), config_map(**{"config.yaml": sharing(3)})]),
    Case("a configuration named default", requesting_pod(), "translated", (), [config_map(default=PLAIN, any=sharing())]),
    Case("the pod selects nodes of a sharing configuration", pod_selecting(ANY_CONFIGURATION_LABELS), "left", (FOUR_REPLICAS, NO_CLAIM_FOR_REPLICAS), [policy("plain"), SHARING_AND_PLAIN]),
    Case("the pod selects nodes of a plain configuration", pod_selecting({LABEL: "plain"}), "translated", (), [policy("any"), config_map(any=sharing(), plain=PLAIN)], {"meanings": {}}),
    Case("the pod selects nodes of a missing configuration", pod_selecting({LABEL: "x"}), "left", "may be a replica", [SHARING_AND_PLAIN]),
    # Nodes.
    Case("most nodes are migrated", requesting_pod(), "translated", "2 of 3", [*TWO_MIGRATED_NODES_OF_THREE, policy("plain"), SHARING_AND_PLAIN]),
    Case("all nodes are migrated, the ConfigMap is left over", requesting_pod(), "translated", (), [*migrated_fleet("a", "b"), policy("any"), SHARING_AND_PLAIN]),
    Case("nodes with the device plugin only", requesting_pod(), "left", FOUR_REPLICAS, [node("c", ANY_CONFIGURATION_LABELS, gpu=32), policy(), SHARING_AND_PLAIN]),
    Case("nodes with the device plugin, and the driver's class", requesting_pod(), "left", (FOUR_REPLICAS, NO_CLAIM_FOR_REPLICAS), [*migrated_fleet(), node("c", ANY_CONFIGURATION_LABELS, gpu=32), policy(), SHARING_AND_PLAIN]),
    Case("most nodes share their GPUs", requesting_pod(), "left", FOUR_REPLICAS, [*migrated_fleet("a"), node("c", ANY_CONFIGURATION_LABELS, gpu=32), node("d", ANY_CONFIGURATION_LABELS, gpu=32), policy(), SHARING_AND_PLAIN]),
    Case("pinned to nodes that share their GPUs", pod_selecting(ANY_CONFIGURATION_LABELS), "left", (FOUR_REPLICAS, NO_CLAIM_FOR_REPLICAS), [*TWO_MIGRATED_NODES_OF_THREE, policy("plain"), SHARING_AND_PLAIN]),
    Case("pinned to migrated nodes of a plain configuration", pod_selecting({LABEL: "plain"}), "translated", (), [*migrated_fleet("a", "b", labels={LABEL: "plain"}), policy("any"), SHARING_AND_PLAIN]),
    Case("replicas count even if `mixed` prefers DRA", requesting_pod(), "left", FOUR_REPLICAS, [*migrated_fleet("a"), node("c", ANY_CONFIGURATION_LABELS, gpu=32), node("d", ANY_CONFIGURATION_LABELS, gpu=32), policy(), SHARING_AND_PLAIN], {"mixed": {GPU: {"prefer": "dra"}}}),
    Case("MIG devices on nodes that share MIG devices", requesting_pod(key=MIG_KEY), "left", "makes 4", [*migrated_fleet("a"), node("c", ANY_CONFIGURATION_LABELS, **{MIG_KEY: 28}), policy(), config_map(any=sharing(name=MIG_KEY))]),
    Case("the DaemonSet's node selector excludes the nodes", requesting_pod(), "left", "still serves it", [*migrated_fleet("a"), node("c", gpu=8), node("d", gpu=8), daemon_set(volume="plugin", CONFIG_FILE="/x", DEFAULT_CONFIG="any", NODE_LABEL=LABEL, selector={"pool": "shared"}), SHARING_AND_PLAIN], never="replicas"),
    # The GPU operator with a GPUCluster, which runs no device plugin.
    Case("files with a GPUCluster and a ConfigMap that no object names", requesting_pod(), "translated", (), [gpu_cluster(), config_map(any=sharing())], never="replica"),
    Case("a ConfigMap that a DaemonSet names beside a GPUCluster", requesting_pod(), "left", "makes 2", [gpu_cluster(), CHART, config_map(slow=sharing(2))]),
    Case("a GPUCluster and left-over sharing labels of migrated nodes", requesting_pod(), "translated", "2 of 2 nodes", [gpu_cluster(), *migrated_fleet("a", "b", labels=SHARING_LABELS)]),
    Case("a GPUCluster and sharing labels of nodes with a device plugin", requesting_pod(), "left", "sharing-strategy", [gpu_cluster(), *migrated_fleet("a"), node("c", SHARING_LABELS, gpu=32), node("d", SHARING_LABELS, gpu=32)]),
    Case("a GPUCluster, a ClusterPolicy and sharing labels of migrated nodes", requesting_pod(), "left", "sharing-strategy", [policy("plain"), gpu_cluster(), *migrated_fleet("a", "b", labels=SHARING_LABELS)]),
    # Intel.
    Case("Intel shares by an argument", requesting_pod(key="gpu.intel.com/i915"), "left", "DaemonSet gpu-operator/intel makes 10", [daemon_set("intel/intel-gpu-plugin:0.34.0", "intel", ["-shared-dev-num", "10"])]),
    Case("Intel shares by an argument with =", requesting_pod(key="gpu.intel.com/xe"), "left", "makes 5", [daemon_set("intel/intel-gpu-plugin", "intel", ["-shared-dev-num=5"])]),
    Case("Intel shares nothing", requesting_pod(key="gpu.intel.com/i915"), "translated", (), [daemon_set("intel/intel-gpu-plugin", "intel", ["-shared-dev-num=1"])]),
    Case("Intel's operator shares devices", requesting_pod(key="gpu.intel.com/i915"), "left", "GpuDevicePlugin shared makes 3", [{"apiVersion": "deviceplugin.intel.com/v1", "kind": "GpuDevicePlugin", "metadata": {"name": "shared"}, "spec": {"sharedDevNum": 3}}]),
    Case("Intel's argument is not a number", requesting_pod(key="gpu.intel.com/i915"), "translated", (), [daemon_set("intel/intel-gpu-plugin", "intel", ["-shared-dev-num", "many"])]),
]  # fmt: skip
