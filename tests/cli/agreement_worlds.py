"""Draws random clusters for the tests that compare the answers of the commands: quotas, taints, full nodes, claims in use, running pods."""

import random

from tests.agreement import Scene
from tests.cli.agreement_scenes import (
    FPGA,
    NOT_IN_POOL_X,
    REQUIRED_AFFINITY,
    TRANSLATING_CONFIGURATION,
    WARNING_CONFIGURATION,
    WHOLE_GPU_CONFIGURATION,
    WORKLOAD_KINDS,
    namespace,
    object_of_kind,
)
from tests.corpus.move import GPU, migrated_fleet, node

# An entry that is repeated, here and below, is drawn more often.
CONFIGURATIONS = (
    *(
        None,
        None,
        WHOLE_GPU_CONFIGURATION,
        TRANSLATING_CONFIGURATION,
        WHOLE_GPU_CONFIGURATION | TRANSLATING_CONFIGURATION,
    ),
    *(WHOLE_GPU_CONFIGURATION | {"approximations": "leave"}, WHOLE_GPU_CONFIGURATION | WARNING_CONFIGURATION),
)
KEYS = (*(GPU,) * 6, FPGA, "nvidia.com/mig-1g.5gb", "amd.com/gpu", "rdma/hca_shared", "nvidia.com/gpumem")
QUOTA_NAMES = (
    f"requests.{GPU}",
    "limits.cpu",
    "gpu.nvidia.com.deviceclass.resource.k8s.io/devices",
    "count/resourceclaims.resource.k8s.io",
)
NODE_SELECTORS = (
    {"pool": "x"},
    {"pool": "y"},
    {"kubernetes.io/hostname": "a"},
    {"nvidia.com/gpu.present": "true"},
)
ANTI_AFFINITY = {
    REQUIRED_AFFINITY: [{"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}]
}
TAINT = {"key": "gpu", "value": "x"}


class RandomCluster:
    """Each method draws a part of the cluster."""

    def __init__(self, number):
        self.draw = random.Random(f"world {number}")

    def seldom(self, value, share=0.1):
        """Return the value in this share of the draws, and otherwise an empty value of the same type."""
        return value if self.draw.random() < share else type(value)()

    def pod_template(self):
        """Return the template of the pods that the commands decide about."""
        key, containers = self.draw.choice(KEYS), []
        for name in ("c0", "c1")[: self.draw.choice((1, 1, 2))]:
            amounts = {key: self.draw.choice(("1", "1", "2", "4", "9"))}
            amounts |= self.seldom({"cpu": self.draw.choice(("1", "9", "100"))}, 0.2)
            parts = self.draw.choice((("limits",), ("limits",), ("limits", "requests")))
            containers.append({"name": name, "image": "i", "resources": dict.fromkeys(parts, amounts)})
        affinity = self.seldom({"nodeAffinity": NOT_IN_POOL_X})
        affinity |= self.seldom({"podAntiAffinity": ANTI_AFFINITY})
        spec = {"containers": containers, "affinity": affinity}
        spec |= self.seldom({"nodeSelector": self.draw.choice(NODE_SELECTORS)}, 0.2)
        spec |= self.seldom({"tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]}, 0.3)
        spec |= self.seldom({"overhead": {"cpu": "1"}})
        if own_claim := self.seldom({"resourceClaims": [{"name": "x", "resourceClaimName": "own"}]}, 0.15):
            spec |= own_claim
            containers[0]["resources"]["claims"] = [{"name": "x"}]
        return {"metadata": {"labels": {"a": "b"}}, "spec": spec}

    def fleet(self):
        """Return nodes with devices of drivers or device plugins. Some nodes are full, tainted or not ready."""
        kind = self.draw.choice(("driver", "driver", "served", "plugin", "separate nodes", "same node"))
        served_key = GPU if kind in ("served", "same node") else ""
        nodes_and_devices = () if kind == "plugin" else migrated_fleet("a", "b", extended=served_key)
        plugin_node = node("p", {"pool": self.draw.choice(("x", "z"))}, gpu=4, **{FPGA: 2})
        nodes_and_devices = (*nodes_and_devices, *([plugin_node] if kind in ("plugin", "separate nodes") else ()))
        return [
            self.node(obj, has_plugin_too=kind == "same node") if obj["kind"] == "Node" else obj
            for obj in nodes_and_devices
        ]

    def node(self, obj, *, has_plugin_too):
        allocatable = {"memory": "16Gi", "cpu": self.draw.choice(("8", "8", "2"))}
        allocatable |= {"pods": self.draw.choice(("110", "110", "2", "0"))} | ({GPU: "8"} if has_plugin_too else {})
        spec = self.seldom({"taints": [TAINT | {"effect": self.draw.choice(("NoSchedule", "PreferNoSchedule"))}]}, 0.15)
        spec |= self.seldom({"unschedulable": True})
        status = {"allocatable": obj["status"]["allocatable"] | allocatable}
        status["conditions"] = [{"type": "Ready", "status": self.draw.choice(("True",) * 9 + ("False",))}]
        labels = obj["metadata"].get("labels", {}) | self.seldom({"pool": "x"}, 0.2)
        return obj | {"metadata": obj["metadata"] | {"labels": labels}, "spec": spec, "status": status}

    def surroundings(self):
        """Return quotas, a namespace with a mode, the claim `own`, and running pods with their claims."""
        hard = {self.draw.choice(QUOTA_NAMES): self.draw.choice(("0", "1", "100"))}
        devices = {self.draw.choice(("*/devices", "gpu.nvidia.com/devices")): self.draw.choice((0, 1, 3, 100))}
        objects = self.seldom([namespace(self.draw.choice(("enforce", "observe", "warn", "off")))], 0.25)
        objects += self.seldom([namespaced_object("v1", "ResourceQuota", "rq") | {"spec": {"hard": hard}}], 0.15)
        objects += self.seldom(
            [namespaced_object("drawbridge.dev/v1alpha1", "DeviceQuota", "dq") | {"spec": {"hard": devices}}], 0.15
        )
        objects.append(claim("own", self.draw.choice((1, 9))))
        for number in range(self.draw.choice((0, 0, 1, 3))):
            limits = self.draw.choice(({"cpu": "4"}, {}, {GPU: "2"}))
            spec = {"nodeName": "a", "containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}
            pod = object_of_kind("v1", "Pod", {"metadata": {}, "spec": spec}, name=f"run{number}", uid=f"run{number}")
            objects.append(pod | {"status": {"phase": "Running"}})
            objects += self.seldom([claim(f"held{number}", 1, device=f"gpu-{number}", holder=f"run{number}")], 0.6)
        return objects


def namespaced_object(version, kind, name):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "n", "uid": name}}


def claim(name, count, *, device="", holder=""):
    """Return a claim for devices. If `device` is given, the claim has it on node a and is reserved for the pod `holder`."""
    request = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": count}
    obj = namespaced_object("resource.k8s.io/v1", "ResourceClaim", name)
    obj["spec"] = {"devices": {"requests": [{"name": "r", "exactly": request}]}}
    if device:
        result = {"request": "r", "driver": "gpu.nvidia.com", "pool": "a", "device": device}
        reserved = [{"resource": "pods", "name": holder, "uid": holder}]
        obj["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    return obj


def random_cluster_scene(number):
    """Return a random pod or workload in a random cluster."""
    cluster = RandomCluster(number)
    obj = object_of_kind(
        *cluster.draw.choice((("v1", "Pod"), ("v1", "Pod"), *WORKLOAD_KINDS)), cluster.pod_template(), labels={"a": "b"}
    )
    configuration, minor = cluster.draw.choice(CONFIGURATIONS), cluster.draw.choice((0, 0, 34, 36))
    return Scene(obj, cluster.surroundings(), cluster.fleet(), configuration, minor)
