"""The webhook refuses no pod with extended resources that a node could serve.

For each node, the scheduler's own code makes the claim and its allocator tries to allocate the claim.
"""

import random
from collections import Counter

import pytest

from dra import wire
from dra.objects import DeviceClass, Node, ResourceSlice
from tests.dra.objects.test_extended_resources import GPU, requesting_pod, serving_class
from tests.webhook.admission.reviews import answer, review
from tests.webhook.pods import configured
from webhook.admission import review as admission
from webhook.state import StateBuilder
from webhook.state.features import Features

DRIVERS = ("gpu.nvidia.com", "b")
NAMES = (GPU, "example.com/a", *(f"deviceclass.resource.kubernetes.io/{name}" for name in DRIVERS))
CASES = 400
pytestmark = [pytest.mark.oracle, pytest.mark.live]


def case_of(seed):
    """Return up to three nodes with devices of two drivers and of device plugins, two classes that may have one resource name, and a pod."""
    rng = random.Random(f"by name {seed}")

    def amounts():
        return {name: str(rng.randrange(0, 4)) for name in rng.sample(NAMES, rng.choice([0, 1, 1, 1, 2]))}

    init = [
        (amounts(), {"restartPolicy": "Always"} if rng.random() < 0.3 else {}) for _ in range(rng.choice([0, 0, 1, 2]))
    ]
    dates = ["2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"]
    classes = [serving_class(name, rng.choice([None, GPU, "example.com/a"]), rng.choice(dates)) for name in DRIVERS]
    for device_class in classes:
        device_class["spec"]["selectors"] = [
            {"cel": {"expression": f"device.driver == '{device_class['metadata']['name']}'"}}
        ]
    nodes, slices = [], []
    for node_index in range(rng.randrange(1, 4)):
        name = f"n{node_index}"
        plugin_amounts = {key: str(rng.randrange(0, 7)) for key in rng.sample(NAMES[:2], rng.choice([0, 0, 1, 2]))}
        nodes.append({"metadata": {"name": name}, "status": {"allocatable": plugin_amounts}})
        for driver in DRIVERS:
            devices = [{"name": f"d{number}"} for number in range(rng.randrange(0, 6))]
            pool = {"name": f"{name}-{driver}", "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": driver, "nodeName": name, "pool": pool, "devices": devices}
            slices.append({"metadata": {"name": f"{name}-{driver}"}, "spec": spec})
    item = requesting_pod(*[amounts() for _ in range(rng.randrange(1, 4))], init=init)
    item["kind"] = "Pod"
    for container in (*item["spec"]["containers"], *item["spec"]["initContainers"]):
        container["resources"]["limits"] = container["resources"]["requests"]
    return {"pod": item, "classes": classes, "nodes": nodes, "slices": slices}


def could_serve(case, node, scheduler_answer, allocate_oracle):
    """Return whether the scheduler could place the pod on a node: by the amounts of device plugins, and by the allocator."""
    plugin_amounts = {name: int(amount) for name, amount in node["status"]["allocatable"].items()}
    short = [name for name, amount in scheduler_answer["totals"].items() if 0 < plugin_amounts.get(name, 0) < amount]
    unserved = [name for container in case["pod"]["spec"]["containers"] + case["pod"]["spec"]["initContainers"] for name, amount in container["resources"]["requests"].items() if amount != "0" and name not in scheduler_answer["classes"] and not plugin_amounts.get(name)]  # fmt: skip
    exceeded = [
        name
        for name in plugin_amounts
        if name not in scheduler_answer["classes"] and total(case["pod"], name) > plugin_amounts[name]
    ]
    if short or unserved or exceeded:
        return False
    if not scheduler_answer["requests"]:
        return True
    claim = {
        "metadata": {"name": "c", "namespace": "n", "uid": "1"},
        "spec": {"devices": {"requests": scheduler_answer["requests"]}},
    }
    question = {"node": node, "claims": [claim], "slices": case["slices"], "classes": case["classes"]}
    return allocate_oracle.ask(**question)["verdict"] != "infeasible"


def total(item, name):
    """Return the amount that the kubelet counts for a pod. Init containers run one after the other; sidecars keep running."""
    largest = sidecars = 0
    for container in item["spec"]["initContainers"]:
        amount = int(container["resources"]["requests"].get(name, 0))
        largest = max(largest, sidecars + amount)
        sidecars += amount if container.get("restartPolicy") == "Always" else 0
    return max(
        largest,
        sidecars
        + sum(int(container["resources"]["requests"].get(name, 0)) for container in item["spec"]["containers"]),
    )


def webhook_decision(case):
    """Return whether the webhook refuses the pod, and whether it translates the pod's requests into a claim."""
    builder = StateBuilder(configured(mode="enforce"), keys=(b"key",))
    builder.learn(features=Features(minor=37))
    objects = [wire.convert(node, Node) for node in case["nodes"]]
    objects += [wire.convert(slice_, ResourceSlice) for slice_ in case["slices"]]
    builder.update_objects([*objects, *[wire.convert(class_, DeviceClass) for class_ in case["classes"]]])
    builder.settle()
    state = builder.state(fresh=True)
    response = answer(admission.decide_review("mutate", review(case["pod"]), state))
    return not response["allowed"], "patch" in response


def test_a_refused_pod_could_not_run_on_any_node(allocate_oracle, extended_oracle):
    counts = Counter()
    for seed in range(CASES):
        case = case_of(seed)
        questions = [{"pod": case["pod"], "classes": case["classes"], "allocatable": node["status"]["allocatable"]} for node in case["nodes"]]  # fmt: skip
        answers = zip(case["nodes"], extended_oracle.ask_all(questions), strict=True)
        is_servable = any(
            could_serve(case, node, scheduler_answer, allocate_oracle) for node, scheduler_answer in answers
        )
        is_denied, is_translated = webhook_decision(case)
        if is_translated:  # the webhook translates a request only if no class serves the resource
            continue
        counts[is_denied, is_servable] += 1
        assert not (is_denied and is_servable), f"{seed}: {case}"
    assert counts[True, False] >= CASES / 10
    assert counts[False, True] >= CASES / 4
    # The webhook admits few pods that no node serves: pods with a name of no class, and pods that need a plugin and a claim.
    assert counts[False, False] <= counts[True, False]
