"""With random mixed fleets and policies, no translated pod waits if its original would have run. kube-scheduler's own plugins judge both pods."""

import random
from collections import Counter
from copy import deepcopy

import pytest

from cluster import manifests
from tests.webhook.placement.mixed_nodes import CLASS, DRIVER, GPU, published
from tests.webhook.pods import configured, state_of_files
from webhook.admission import decide_object

pytestmark = pytest.mark.oracle
CASES = 100
TAINTS = [
    {"key": GPU, "value": "present", "effect": "NoSchedule"},
    {"key": "team", "value": "ml", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    {"key": "soft", "effect": "PreferNoSchedule"},
]
PRODUCTS, POOLS = ("NVIDIA-L4", "NVIDIA-A100-SXM4-40GB"), ("a", "b", "gpu_pool", "")


def drawn_fleet(rng):
    """Draw nodes with a device plugin, a driver, both or neither; nodes have labels and taints, and some are cordoned."""
    objects = [CLASS]
    for index in range(rng.randrange(3, 9)):
        name = f"n{index}"
        kind = rng.choice(["plugin", "plugin", "driver", "driver", "driver", "both", "neither", "pool"])
        labels = {"kubernetes.io/hostname": name, "pool": rng.choice(POOLS), "kind": kind}
        if rng.random() < 0.7:
            labels["nvidia.com/gpu.product"] = rng.choice(PRODUCTS)
        if rng.random() < 0.5:
            labels["nvidia.com/gpu.count"] = rng.choice(["1", "4", "8", "many"])
        allocatable = {"cpu": rng.choice(["4", "64"]), "memory": "256Gi", "pods": "110"}
        if kind in ("plugin", "both"):
            allocatable[GPU] = rng.choice(["1", "2", "4"])
        elif rng.random() < 0.5:
            allocatable[GPU] = "0"
        spec = {"taints": rng.sample(TAINTS, rng.choice([0, 0, 0, 1, 1, 2])), "unschedulable": rng.random() < 0.1}
        metadata = {"name": name, "labels": labels}
        status = {"allocatable": allocatable}
        objects.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status})
        if kind in ("driver", "both"):
            objects.append(published(name, rng.choice([1, 2, 4])))
    if rng.random() < 0.3:  # devices without a node: for all nodes, or for those that their slice selects
        network = published("network", 2)
        del network["spec"]["nodeName"]
        term = {"matchExpressions": [{"key": "kind", "operator": "In", "values": ["pool"]}]}
        network["spec"] |= rng.choice([{"allNodes": True}, {"nodeSelector": {"nodeSelectorTerms": [term]}}])
        objects.append(network)
    return objects


def requirement(rng):
    """Draw an expression of a required affinity."""
    key, values = rng.choice(
        [("pool", POOLS), ("nvidia.com/gpu.product", PRODUCTS), ("kubernetes.io/hostname", ("n0", "n1", "n9"))]
    )
    operator = rng.choice(["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    if operator in ("Gt", "Lt"):
        return {"key": "nvidia.com/gpu.count", "operator": operator, "values": [rng.choice(["1", "3", "8"])]}
    chosen_values = list(rng.sample(values, rng.choice([1, 2])))
    return {"key": key, "operator": operator} | ({"values": chosen_values} if operator in ("In", "NotIn") else {})


def drawn_pod(rng):
    """Draw a pod that requests GPUs. Selectors or affinities may restrict its nodes."""
    resources = {"limits": {GPU: rng.choice(["1", "1", "1", "2", "4"]), "cpu": rng.choice(["1", "1", "8"])}}
    resources["requests"] = dict(resources["limits"])
    spec = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    pinning = rng.choice(["free", "free", "selector", "terms", "terms", "fields", "both"])
    if pinning in ("selector", "both"):
        key, value = rng.choice(
            [
                ("pool", rng.choice(POOLS)),
                ("kubernetes.io/hostname", "n1"),
                ("nvidia.com/gpu.product", rng.choice(PRODUCTS)),
            ]
        )
        spec["nodeSelector"] = {key: value}
    terms = []
    for _ in range(rng.choice([1, 1, 2]) if pinning in ("terms", "fields", "both") else 0):
        term = {"matchExpressions": [requirement(rng) for _ in range(rng.choice([1, 2]))]}
        if pinning == "fields":
            field = {
                "key": "metadata.name",
                "operator": rng.choice(["In", "NotIn"]),
                "values": [f"n{rng.randrange(3)}"],
            }
            term = {"matchFields": [field]} | rng.choice([{}, term])
        terms.append(term)
    if terms:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    tolerations = [
        {"key": GPU, "operator": "Exists"},
        {"key": "team", "value": "ml", "effect": rng.choice(["NoSchedule", "NoExecute"])},
        {"operator": "Exists", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
    ]
    spec["tolerations"] = rng.sample(tolerations, rng.choice([0, 1, 1, 2]))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "spec": spec}


def without_key(pod):
    """Return the pod without the key that a claim replaces."""
    copied_pod = deepcopy(pod)
    for amounts in copied_pod["spec"]["containers"][0]["resources"].values():
        del amounts[GPU]
    return copied_pod


def question_of(pod, nodes, objects):
    """Return the question to kube-scheduler's allocator: which of these nodes have the pod's devices. The claim is not the one that drawbridge makes."""
    request = {
        "deviceClassName": DRIVER,
        "allocationMode": "ExactCount",
        "count": int(pod["spec"]["containers"][0]["resources"]["limits"][GPU]),
    }
    spec = {"devices": {"requests": [{"name": "r", "exactly": request}]}}
    claim = {"metadata": {"name": "c", "namespace": "n", "uid": "c"}, "spec": spec}
    slices = [obj for obj in objects if obj["kind"] == "ResourceSlice"]
    return {"nodes": nodes, "claims": [claim], "slices": slices, "classes": [CLASS]}


@pytest.mark.parametrize("settings", [{}, {"meanings": {GPU: "whole"}}, {"mixed": {GPU: {"prefer": "dra"}}}], ids=str)
def test_no_translated_pod_waits_where_its_original_would_have_run(settings, filter_oracle, allocate_oracle):
    counts = Counter()
    for seed in range(CASES):
        rng = random.Random(f"pins {seed}")
        objects, pod = drawn_fleet(rng), drawn_pod(rng)
        nodes = [obj for obj in objects if obj["kind"] == "Node"]
        state = state_of_files(manifests.parse(manifests.dump(objects)), configured(mode="enforce", **settings))
        verdict = decide_object(pod, state)
        original_answer, translated_answer = filter_oracle.ask_all(
            [{"pod": variant, "nodes": nodes} for variant in (pod, without_key(pod))]
        )
        reachable_nodes = [node for node in nodes if node["metadata"]["name"] in translated_answer["nodes"]]
        question = question_of(pod, reachable_nodes, objects)
        nodes_with_devices = allocate_oracle.ask(**question).get("fits", []) if reachable_nodes else []
        if not verdict.operations:
            counts["left", bool(original_answer["nodes"])] += 1
            continue
        counts["translated", bool(original_answer["nodes"]), bool(nodes_with_devices)] += 1
        assert nodes_with_devices or not original_answer["nodes"], (
            f"{seed}: {original_answer} {verdict.decisions} {pod['spec']}"
        )
        [template] = verdict.templates.values()
        [request] = template["spec"]["devices"]["requests"]
        translated_request, expected_request = (
            request["exactly"],
            question["claims"][0]["spec"]["devices"]["requests"][0]["exactly"],
        )
        assert {key: translated_request[key] for key in expected_request} == expected_request
    assert counts["translated", True, True] > CASES / 20, counts
    assert counts["translated", False, True] > CASES / 20, counts
    assert counts["left", True] > CASES / 20, counts
