"""Pods with constraints on nodes, in a partly migrated fleet: pools of clouds, hosts, labels of GPU feature discovery, fields."""

from typing import Any

from tests.corpus.move import Case, Object, asking, moved, node

WHOLE = {"meanings": {"nvidia.com/gpu": "whole"}}
SPOT = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}


def required(*terms: Object) -> Object:
    """Return a required node affinity."""
    return {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [*terms]}}
        }
    }


def wanting(key: str, operator: str, *values: str) -> Object:
    """Return a term of one expression."""
    return {"matchExpressions": [{"key": key, "operator": operator} | ({"values": [*values]} if values else {})]}


def named(operator: str, name: str) -> Object:
    """Return a term on the node's name, as the DaemonSet controller writes it."""
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [name]}]}


def pool(key: str, stays: str, goes: str, **more: Any) -> tuple[Object, ...]:
    """Return a fleet of three migrated nodes and two others, which differ in one label."""
    olds = [node(name, {key: stays}, gpu=8) | more for name in ("old-1", "old-2")]
    return (*olds, *moved("new-1", "new-2", "new-3", labels={key: goes}))


def both(name: str, place: Object, goes_to: str, around: tuple[Object, ...]) -> tuple[Case, ...]:
    """Return two cases of a pod: one without a configuration, and one that declares the key whole."""
    becomes = "left" if goes_to == "old" else "translated"
    told = "by a device plugin" if goes_to == "old" else ""
    return (
        Case(name, asking(**place), becomes, told, around),
        Case(f"{name}, declared whole", asking(**place), becomes, told, around, WHOLE),
    )


TYPE, GKE = "node.kubernetes.io/instance-type", "cloud.google.com/gke-accelerator"
TYPES, CARDS = pool(TYPE, "g6.2xlarge", "p5.48xlarge"), pool(GKE, "nvidia-l4", "nvidia-h100-80gb")
KARPENTER, AKS = pool("karpenter.sh/nodepool", "gpu", "gpu-dra"), pool("agentpool", "gpunp", "dranp")
PRODUCTS = pool("nvidia.com/gpu.product", "NVIDIA-L4", "NVIDIA-H100-80GB-HBM3")
NUMBERS, TEAMS = pool("nvidia.com/cuda.driver.major", "550", "580"), pool("team.example.com/pool", "a", "b")
FREE, HOST = pool("x", "y", "z"), "kubernetes.io/hostname"
TAINTED = pool("x", "y", "z", spec={"taints": [SPOT]})
SHARED = {"nvidia.com/gpu.sharing-strategy": "mps", "team.example.com/pool": "cheap"}
REPLICAS = (*(node(f"s-{i}", SHARED, gpu=10) for i in range(2)), *moved("new-1", "new-2", "new-3"))


CASES = (
    *both("an instance type that stays", {"nodeSelector": {TYPE: "g6.2xlarge"}}, "old", TYPES),
    *both("an instance type that moved", {"nodeSelector": {TYPE: "p5.48xlarge"}}, "new", TYPES),
    *both("an accelerator of GKE that stays", {"nodeSelector": {GKE: "nvidia-l4"}}, "old", CARDS),
    *both("an accelerator of GKE that moved", {"nodeSelector": {GKE: "nvidia-h100-80gb"}}, "new", CARDS),
    *both("a pool of Karpenter's", {"nodeSelector": {"karpenter.sh/nodepool": "gpu"}}, "old", KARPENTER),
    *both("a pool of AKS", required(wanting("agentpool", "In", "gpunp", "gone")), "old", AKS),
    *both("a product", {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}, "old", PRODUCTS),
    *both("not a product", required(wanting("nvidia.com/gpu.product", "NotIn", "NVIDIA-L4")), "new", PRODUCTS),
    *both("a pool of the admin's", {"nodeSelector": {"team.example.com/pool": "a"}}, "old", TEAMS),
    *both("a driver that is newer", required(wanting("nvidia.com/cuda.driver.major", "Gt", "570")), "new", NUMBERS),
    *both("a driver that is older", required(wanting("nvidia.com/cuda.driver.major", "Lt", "570")), "old", NUMBERS),
    *both("a host", {"nodeSelector": {HOST: "old-2"}}, "old", FREE),
    *both("a host that moved", required(wanting(HOST, "In", "new-2")), "new", FREE),
    *both("the pod of a DaemonSet", required(named("In", "old-1")), "old", FREE),
    *both("the pod of a DaemonSet on a node that moved", required(named("In", "new-1")), "new", FREE),
    *both("several terms of one kind", required(named("In", "old-1"), wanting(HOST, "In", "old-2")), "old", FREE),
    *both("a term that Kubernetes cannot parse", required(wanting(HOST, "Gt", "many"), named("In", "old-1")), "old", FREE),
    *both("a taint that is not tolerated", {}, "new", TAINTED),
    *both("a taint beside a host", {"nodeSelector": {HOST: "old-1"}, "tolerations": [SPOT | {"operator": "Equal"}]}, "old", TAINTED),
    Case("free in both", asking(), "translated", "3 of 5 reachable nodes serve claims", FREE),
    Case("a pool of replicas by another label", asking(nodeSelector={"team.example.com/pool": "cheap"}), "left", "labelled nvidia.com/gpu.sharing-strategy=mps", REPLICAS),
    Case("a pool of replicas, declared whole", asking(nodeSelector={"team.example.com/pool": "cheap"}), "left", "all 2 nodes that the pod can run on hand out parts", REPLICAS, WHOLE),
    Case("no inventory", asking(nodeSelector={GKE: "nvidia-l4"}), "translated", f"nodes with {GKE}=nvidia-l4 serve claims"),
    Case("a DaemonSet of both kinds of node", {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": asking()["spec"]}}}, "left", "3 of 5 reachable nodes serve claims, and the webhook decides for each pod of the DaemonSet when the pod is created", FREE),
    Case("a pool that an autoscaler makes with a plugin", asking(nodeSelector={"pool": "burst"}), "left", "0 of 1 reachable nodes serve claims", FREE, WHOLE | {"nodeTemplates": [{"name": "burst", "labels": {"pool": "burst"}, "allocatable": {"nvidia.com/gpu": "8"}}]}),
    Case("a pool that an autoscaler makes with a driver", asking(nodeSelector={"pool": "burst"}), "translated", "1 of 1 nodes that the pod can run on publish", (*(node(f"o-{i}", gpu=8) for i in range(2)), *moved("new-1")), {"nodeTemplates": [{"name": "burst", "labels": {"pool": "burst"}, "devices": [{"driver": "gpu.nvidia.com", "count": 8, "attributes": {"type": {"string": "gpu"}}}]}]}),
)  # fmt: skip
