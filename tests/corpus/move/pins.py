"""Pods with constraints on nodes, in a partly migrated fleet: pools of clouds, hosts, labels of GPU feature discovery, fields."""

from typing import Any

from tests.corpus.move import Case, Object, migrated_fleet, node, requesting_pod

WHOLE_GPU_CONFIGURATION = {"meanings": {"nvidia.com/gpu": "whole"}}
SPOT = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}


def required_affinity(*terms: Object) -> Object:
    """Return a required node affinity."""
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
        }
    }


def expression_term(key: str, operator: str, *values: str) -> Object:
    """Return a term of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator} | ({"values": [*values]} if values else {})]}


def name_term(operator: str, name: str) -> Object:
    """Return a term for a node's name, as the DaemonSet controller writes it."""
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}


def pool(key: str, old_value: str, migrated_value: str, **fields: Any) -> tuple[Object, ...]:
    """Return two old nodes with a device plugin and three migrated nodes. The old and the migrated nodes differ in one label."""
    old_nodes = [node(name, {key: old_value}, gpu=8) | fields for name in ("old-1", "old-2")]
    return (*old_nodes, *migrated_fleet("new-1", "new-2", "new-3", labels={key: migrated_value}))


def two_cases(
    name: str, constraints: Object, expected_nodes: str, cluster_objects: tuple[Object, ...]
) -> tuple[Case, ...]:
    """Return two cases of a pod with constraints: without a configuration, and with one that declares the key whole."""
    becomes = "left" if expected_nodes == "old" else "translated"
    message = "by a device plugin" if expected_nodes == "old" else ""
    return (
        Case(name, requesting_pod(**constraints), becomes, message, cluster_objects),
        Case(
            f"{name}, declared whole",
            requesting_pod(**constraints),
            becomes,
            message,
            cluster_objects,
            WHOLE_GPU_CONFIGURATION,
        ),
    )


INSTANCE_TYPE = "node.kubernetes.io/instance-type"
GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
HOST_NAME = "kubernetes.io/hostname"
# Fleets whose old and migrated nodes differ in the label that the name tells.
INSTANCE_TYPE_FLEET = pool(INSTANCE_TYPE, "g6.2xlarge", "p5.48xlarge")
ACCELERATOR_FLEET = pool(GKE_ACCELERATOR, "nvidia-l4", "nvidia-h100-80gb")
KARPENTER_FLEET = pool("karpenter.sh/nodepool", "gpu", "gpu-dra")
AKS_FLEET = pool("agentpool", "gpunp", "dranp")
PRODUCT_FLEET = pool("nvidia.com/gpu.product", "NVIDIA-L4", "NVIDIA-H100-80GB-HBM3")
DRIVER_VERSION_FLEET = pool("nvidia.com/cuda.driver.major", "550", "580")
TEAM_FLEET = pool("team.example.com/pool", "a", "b")
PLAIN_FLEET = pool("x", "y", "z")
TAINTED_FLEET = pool("x", "y", "z", spec={"taints": [SPOT]})
SHARING_LABELS = {"nvidia.com/gpu.sharing-strategy": "mps", "team.example.com/pool": "cheap"}
SHARING_FLEET = (
    *(node(f"s-{i}", SHARING_LABELS, gpu=10) for i in range(2)),
    *migrated_fleet("new-1", "new-2", "new-3"),
)


CASES = (
    *two_cases("an instance type of old nodes", {"nodeSelector": {INSTANCE_TYPE: "g6.2xlarge"}}, "old", INSTANCE_TYPE_FLEET),
    *two_cases("an instance type of migrated nodes", {"nodeSelector": {INSTANCE_TYPE: "p5.48xlarge"}}, "new", INSTANCE_TYPE_FLEET),
    *two_cases("a GKE accelerator of old nodes", {"nodeSelector": {GKE_ACCELERATOR: "nvidia-l4"}}, "old", ACCELERATOR_FLEET),
    *two_cases("a GKE accelerator of migrated nodes", {"nodeSelector": {GKE_ACCELERATOR: "nvidia-h100-80gb"}}, "new", ACCELERATOR_FLEET),
    *two_cases("a Karpenter pool of old nodes", {"nodeSelector": {"karpenter.sh/nodepool": "gpu"}}, "old", KARPENTER_FLEET),
    *two_cases("an AKS pool of old nodes", required_affinity(expression_term("agentpool", "In", "gpunp", "gone")), "old", AKS_FLEET),
    *two_cases("a GPU product of old nodes", {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}, "old", PRODUCT_FLEET),
    *two_cases("any GPU product but that of old nodes", required_affinity(expression_term("nvidia.com/gpu.product", "NotIn", "NVIDIA-L4")), "new", PRODUCT_FLEET),
    *two_cases("an administrator's pool of old nodes", {"nodeSelector": {"team.example.com/pool": "a"}}, "old", TEAM_FLEET),
    *two_cases("a newer driver than that of old nodes", required_affinity(expression_term("nvidia.com/cuda.driver.major", "Gt", "570")), "new", DRIVER_VERSION_FLEET),
    *two_cases("an older driver than that of migrated nodes", required_affinity(expression_term("nvidia.com/cuda.driver.major", "Lt", "570")), "old", DRIVER_VERSION_FLEET),
    *two_cases("the host name of an old node", {"nodeSelector": {HOST_NAME: "old-2"}}, "old", PLAIN_FLEET),
    *two_cases("the host name of a migrated node", required_affinity(expression_term(HOST_NAME, "In", "new-2")), "new", PLAIN_FLEET),
    *two_cases("the pod of a DaemonSet on an old node", required_affinity(name_term("In", "old-1")), "old", PLAIN_FLEET),
    *two_cases("the pod of a DaemonSet on a migrated node", required_affinity(name_term("In", "new-1")), "new", PLAIN_FLEET),
    *two_cases("two terms, each for an old node", required_affinity(name_term("In", "old-1"), expression_term(HOST_NAME, "In", "old-2")), "old", PLAIN_FLEET),
    *two_cases("a term that Kubernetes cannot parse, and a term for an old node", required_affinity(expression_term(HOST_NAME, "Gt", "many"), name_term("In", "old-1")), "old", PLAIN_FLEET),
    *two_cases("old nodes with a taint that the pod does not tolerate", {}, "new", TAINTED_FLEET),
    *two_cases("the host name of an old node with a tolerated taint", {"nodeSelector": {HOST_NAME: "old-1"}, "tolerations": [SPOT | {"operator": "Equal"}]}, "old", TAINTED_FLEET),
    Case("a pod that may run on all nodes", requesting_pod(), "translated", "3 of 5 reachable nodes serve claims", PLAIN_FLEET),
    Case("an administrator's pool of nodes that share GPUs", requesting_pod(nodeSelector={"team.example.com/pool": "cheap"}), "left", "labelled nvidia.com/gpu.sharing-strategy=mps", SHARING_FLEET),
    Case("an administrator's pool of nodes that share GPUs, declared whole", requesting_pod(nodeSelector={"team.example.com/pool": "cheap"}), "left", "all 2 nodes that the pod can run on hand out parts", SHARING_FLEET, WHOLE_GPU_CONFIGURATION),
    Case("an accelerator of GKE without an inventory of nodes", requesting_pod(nodeSelector={GKE_ACCELERATOR: "nvidia-l4"}), "translated", f"nodes with {GKE_ACCELERATOR}=nvidia-l4 serve claims"),
    Case("a DaemonSet on old and on migrated nodes", {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": requesting_pod()["spec"]}}}, "left", "3 of 5 reachable nodes serve claims, and the webhook decides for each pod of the DaemonSet when the pod is created", PLAIN_FLEET),
    Case("a node template with a device plugin", requesting_pod(nodeSelector={"pool": "burst"}), "left", "0 of 1 reachable nodes serve claims", PLAIN_FLEET, WHOLE_GPU_CONFIGURATION | {"nodeTemplates": [{"name": "burst", "labels": {"pool": "burst"}, "allocatable": {"nvidia.com/gpu": "8"}}]}),
    Case("a node template with a DRA driver", requesting_pod(nodeSelector={"pool": "burst"}), "translated", "1 of 1 nodes that the pod can run on publish", (*(node(f"o-{i}", gpu=8) for i in range(2)), *migrated_fleet("new-1")), {"nodeTemplates": [{"name": "burst", "labels": {"pool": "burst"}, "devices": [{"driver": "gpu.nvidia.com", "count": 8, "attributes": {"type": {"string": "gpu"}}}]}]}),
)  # fmt: skip
