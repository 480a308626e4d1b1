"""Settings of device plugins, in files and on nodes: whether a unit of a key is a whole device or a replica."""

import json

from tests.corpus.move import GPU, Case, asking, moved, node

LABEL = "nvidia.com/device-plugin.config"
SHARES = {"nvidia": {"consumableShares": True}}
MIG = "nvidia.com/mig-1g.5gb"


def sharing(replicas=4, name=GPU, strategy="timeSlicing", **more):
    """Return a configuration of the NVIDIA plugin. `config_map` writes it as JSON, which is also YAML."""
    return {"version": "v1", "sharing": {strategy: {"resources": [{"name": name, "replicas": replicas}], **more}}}


def config_map(name="plugin", namespace="gpu-operator", **configurations):
    data = {
        key.replace("_", "-"): value if isinstance(value, str) else json.dumps(value)
        for key, value in configurations.items()
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


def policy(default="", name="plugin"):
    """Return a ClusterPolicy that gives the plugin a ConfigMap."""
    config = {"name": name, **({"default": default} if default else {})}
    return {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": {"devicePlugin": {"config": config}},
    }


def gpu_cluster(state="ready"):
    """Return a GPUCluster: the GPU operator runs the DRA driver and no device plugin."""
    return {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "GPUCluster",
        "metadata": {"name": "gpu-cluster"},
        "spec": {"draDriver": {"computeDomains": {"enabled": True}}},
        "status": {"state": state},
    }


def device_config(plugin=None, driver=None, name="default"):
    """Return a DeviceConfig of AMD's GPU operator that turns the device plugin and the DRA driver on or off; None is the default."""
    spec = {"selector": {"feature.node.kubernetes.io/amd-gpu": "true"}}
    if plugin is not None:
        spec["devicePlugin"] = {"enableDevicePlugin": plugin, "devicePluginImage": "rocm/k8s-device-plugin:latest"}
    if driver is not None:
        spec["draDriver"] = {"enable": driver}
    metadata = {"name": name, "namespace": "kube-amd-gpu"}
    return {"apiVersion": "amd.com/v1alpha1", "kind": "DeviceConfig", "metadata": metadata, "spec": spec}


def daemon_set(
    image="nvcr.io/nvidia/k8s-device-plugin:v0.17.1", name="plugin", args=(), selector=None, volume=None, **env
):
    """Return a DaemonSet of a device plugin; `volume` is the ConfigMap that the DaemonSet mounts."""
    container = {
        "name": "c",
        "image": image,
        "args": list(args),
        "env": [{"name": k, "value": v} for k, v in env.items()],
    }
    volumes = [{"name": "configs", "configMap": {"name": volume}}] if volume else []
    pod = {"containers": [container], "volumes": volumes, **({"nodeSelector": selector} if selector else {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "gpu-operator"},
        "spec": {"selector": {}, "template": {"metadata": {}, "spec": pod}},
    }


CHART = daemon_set(volume="plugin", CONFIG_FILE="/config/config.yaml", NODE_LABEL=LABEL, DEFAULT_CONFIG="slow")
YAML = """\
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
VFS = "openshift.io/vfs"
POOLS = {"resourceList": [{"resourceName": "vfs", "selectors": {"vendors": ["15b3"]}}]}
PLAIN = {"version": "v1", "flags": {"migStrategy": "none"}}
FOUR = "ConfigMap gpu-operator/plugin (any) makes 4 time-sliced replicas of each device"
NO = "a claim cannot request a replica of a shared device"
ANY = {LABEL: "any"}
BOTH = config_map(any=sharing(), plain=PLAIN)
HALF = (*moved("a", "b"), node("c", ANY, gpu=32))


SHARED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}


def selecting(labels, key=GPU):
    return asking(key=key, nodeSelector=labels)


CASES = [
    # Files without nodes.
    Case("files without a plugin", asking(), "translated"),
    Case("files with a time-slicing ConfigMap", asking(), "left", (FOUR, NO), [config_map(any=sharing())]),
    Case("as YAML, as the documentation has it", asking(), "left", "10 time-sliced replicas", [config_map(any=YAML)]),
    Case("which fails two", asking(2), "left", "rejects pods that request two", [config_map(any=YAML)]),
    Case("files with an MPS ConfigMap", asking(), "left", ("4 MPS replicas", "rejects pods"), [config_map(any=sharing(strategy="mps"))]),
    Case("MPS that takes two", asking(), "left", "4 MPS", [config_map(any=sharing(strategy="mps", failRequestsGreaterThanOne=False))], never="fails"),
    Case("MPS counts before time-slicing", asking(), "left", "3 MPS", [config_map(any={"version": "v1", "sharing": {**sharing()["sharing"], **sharing(3, strategy="mps")["sharing"]}})]),
    Case("a short name", asking(), "left", FOUR, [config_map(any=sharing(name="gpu"))]),
    Case("a configuration that shares nothing", asking(), "translated", (), [config_map(plain=PLAIN)]),
    Case("one replica shares nothing", asking(), "translated", (), [config_map(any=sharing(1))]),
    Case("a number as a text shares nothing", asking(), "translated", (), [config_map(any=sharing("4"))]),
    Case("renamed: the bare name is whole", asking(), "translated", (), [config_map(any=sharing(renameByDefault=True))]),
    Case("the renamed name", asking(key="nvidia.com/gpu.shared"), "left", NO, [config_map(any=sharing(renameByDefault=True))]),
    Case("an unknown version of the configuration", asking(), "translated", (), [config_map(any=sharing() | {"version": "v2"})]),
    Case("files with the SR-IOV plugin's ConfigMap", asking(key=VFS), "left", ("selects vendors=15b3 in ConfigMap", "nics: {pools: [openshift.io/vfs]}"), [config_map("device-plugin-config", a=POOLS)]),
    Case("files with the shared RDMA plugin's ConfigMap", asking(key="rdma/a"), "left", "all pods share ifNames=ib0", [config_map(a={"configList": [{"resourceName": "a", "devices": ["ib0"]}]})]),
    Case("a pool with a target", asking(key=VFS), "translated", "target vf", [config_map("device-plugin-config", a=POOLS)], {"nics": {"targets": {VFS: "vf"}}}),
    Case("another ConfigMap", asking(), "translated", (), [config_map(any="sharing: {public: true}\nother: 1\n")]),
    Case("a ConfigMap that is not YAML", asking(), "translated", (), [config_map(any="version: [v1\nsharing:")]),
    Case("a ConfigMap without data", asking(), "translated", (), [config_map()]),
    Case("data that is a list", asking(), "translated", (), [{**config_map(), "data": ["version: v1"]}]),
    Case("declared whole counts for more", asking(), "translated", "meanings", [config_map(any=sharing())], {"meanings": {GPU: "whole"}}),
    Case("replicas with shares", asking(), "translated", "one unit of `shares`", [config_map(any=sharing())], SHARES),
    Case("two replicas with shares", asking(2), "left", "ask for 1", [config_map(any=sharing())], SHARES),
    Case("MPS with shares", asking(), "left", "4 MPS", [config_map(any=sharing(strategy="mps"))], SHARES),
    Case("a replica of a MIG device", asking(key=MIG), "left", "replicas of MIG devices", [config_map(any=sharing(name=MIG))]),
    Case("a MIG device beside shared GPUs", asking(key=MIG), "translated", (), [config_map(any=sharing())]),
    # Several configurations; one is in use.
    Case("the ClusterPolicy's default shares", asking(), "left", FOUR, [policy("any"), BOTH]),
    Case("the ClusterPolicy's default is plain", asking(), "translated", (), [policy("plain"), BOTH]),
    Case("the ClusterPolicy has no default", asking(), "left", FOUR, [policy(), BOTH]),
    Case("another ClusterPolicy's ConfigMap", asking(), "left", FOUR, [policy("plain", "other"), config_map(any=sharing())]),
    Case("the DaemonSet's default", asking(), "left", "makes 2", [CHART, config_map(slow=sharing(2), any=sharing())]),
    Case("the DaemonSet's default is not there", asking(), "translated", (), [CHART, config_map(any=sharing())]),
    Case("one file that is mounted", asking(), "left", "makes 3", [daemon_set(volume="plugin", args=["--config-file=/etc/x/config.yaml"]), config_map(**{"config.yaml": sharing(3)})]),
    Case("a configuration named default", asking(), "translated", (), [config_map(default=PLAIN, any=sharing())]),
    Case("the pod chooses what shares", selecting(ANY), "left", (FOUR, NO), [policy("plain"), BOTH]),
    Case("the pod chooses what does not", selecting({LABEL: "plain"}), "translated", (), [policy("any"), config_map(any=sharing(), plain=PLAIN)], {"meanings": {}}),
    Case("the pod chooses what does not exist", selecting({LABEL: "x"}), "left", "may be a replica", [BOTH]),
    # Nodes.
    Case("most nodes have moved", asking(), "translated", "2 of 3", [*HALF, policy("plain"), BOTH]),
    Case("all nodes have moved, the ConfigMap is left over", asking(), "translated", (), [*moved("a", "b"), policy("any"), BOTH]),
    Case("nodes with the plugin alone", asking(), "left", FOUR, [node("c", ANY, gpu=32), policy(), BOTH]),
    Case("nodes with the plugin and the driver's class", asking(), "left", (FOUR, NO), [*moved(), node("c", ANY, gpu=32), policy(), BOTH]),
    Case("most nodes share", asking(), "left", FOUR, [*moved("a"), node("c", ANY, gpu=32), node("d", ANY, gpu=32), policy(), BOTH]),
    Case("pinned to the nodes that share", selecting(ANY), "left", (FOUR, NO), [*HALF, policy("plain"), BOTH]),
    Case("pinned to nodes of a plain configuration", selecting({LABEL: "plain"}), "translated", (), [*moved("a", "b", labels={LABEL: "plain"}), policy("any"), BOTH]),
    Case("under `mixed`, replicas tell", asking(), "left", FOUR, [*moved("a"), node("c", ANY, gpu=32), node("d", ANY, gpu=32), policy(), BOTH], {"mixed": {GPU: {"prefer": "dra"}}}),
    Case("MIG devices of nodes that share them", asking(key=MIG), "left", "makes 4", [*moved("a"), node("c", ANY, **{MIG: 28}), policy(), config_map(any=sharing(name=MIG))]),
    Case("a selector of the DaemonSet leaves nodes out", asking(), "left", "still serves it", [*moved("a"), node("c", gpu=8), node("d", gpu=8), daemon_set(volume="plugin", CONFIG_FILE="/x", DEFAULT_CONFIG="any", NODE_LABEL=LABEL, selector={"pool": "shared"}), BOTH], never="replicas"),
    # The GPU operator with a GPUCluster, which runs no device plugin.
    Case("files with a GPUCluster and a ConfigMap that no object names", asking(), "translated", (), [gpu_cluster(), config_map(any=sharing())], never="replica"),
    Case("a ConfigMap that a DaemonSet names beside a GPUCluster", asking(), "left", "makes 2", [gpu_cluster(), CHART, config_map(slow=sharing(2))]),
    Case("labels that are left over under a GPUCluster", asking(), "translated", "2 of 2 nodes", [gpu_cluster(), *moved("a", "b", labels=SHARED)]),
    Case("labels of nodes that hand the name out", asking(), "left", "sharing-strategy", [gpu_cluster(), *moved("a"), node("c", SHARED, gpu=32), node("d", SHARED, gpu=32)]),
    Case("labels beside a ClusterPolicy", asking(), "left", "sharing-strategy", [policy("plain"), gpu_cluster(), *moved("a", "b", labels=SHARED)]),
    # Intel.
    Case("Intel shares by an argument", asking(key="gpu.intel.com/i915"), "left", "DaemonSet gpu-operator/intel makes 10", [daemon_set("intel/intel-gpu-plugin:0.34.0", "intel", ["-shared-dev-num", "10"])]),
    Case("Intel shares by an argument with =", asking(key="gpu.intel.com/xe"), "left", "makes 5", [daemon_set("intel/intel-gpu-plugin", "intel", ["-shared-dev-num=5"])]),
    Case("Intel shares nothing", asking(key="gpu.intel.com/i915"), "translated", (), [daemon_set("intel/intel-gpu-plugin", "intel", ["-shared-dev-num=1"])]),
    Case("Intel's operator", asking(key="gpu.intel.com/i915"), "left", "GpuDevicePlugin shared makes 3", [{"apiVersion": "deviceplugin.intel.com/v1", "kind": "GpuDevicePlugin", "metadata": {"name": "shared"}, "spec": {"sharedDevNum": 3}}]),
    Case("not a number", asking(key="gpu.intel.com/i915"), "translated", (), [daemon_set("intel/intel-gpu-plugin", "intel", ["-shared-dev-num", "many"])]),
]  # fmt: skip
