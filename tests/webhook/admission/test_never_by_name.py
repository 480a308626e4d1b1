"""No false denial of pods that core serves by name: the scheduler's own code makes the claim for each node, its allocator serves it."""

import random
from collections import Counter

import pytest

from dra import wire
from dra.objects import DeviceClass, Node, ResourceSlice
from tests.dra.objects.test_extended_resources import GPU, requesting_pod, serving_class
from tests.webhook.admission.test_decide import answer, review
from tests.webhook.pods import configured
from webhook.admission import review as admission
from webhook.state import StateBuilder
from webhook.state.features import Features

DRIVERS = ("gpu.nvidia.com", "b")
NAMES = (GPU, "example.com/a", *(f"deviceclass.resource.kubernetes.io/{name}" for name in DRIVERS))
CASES = 400
pytestmark = [pytest.mark.oracle, pytest.mark.live]


def case_of(seed):
    """Up to three nodes with devices of two drivers or device plugins, two classes that may have one name, and a pod."""
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
    for at in range(rng.randrange(1, 4)):
        name = f"n{at}"
        handed_out = {one: str(rng.randrange(0, 7)) for one in rng.sample(NAMES[:2], rng.choice([0, 0, 1, 2]))}
        nodes.append({"metadata": {"name": name}, "status": {"allocatable": handed_out}})
        for driver in DRIVERS:
            devices = [{"name": f"d{number}"} for number in range(rng.randrange(0, 6))]
            pool = {"name": f"{name}-{driver}", "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": driver, "nodeName": name, "pool": pool, "devices": devices}
            slices.append({"metadata": {"name": f"{name}-{driver}"}, "spec": spec})
    item = requesting_pod(*[amounts() for _ in range(rng.randrange(1, 4))], init=init)
    item["kind"] = "Pod"
    for one in (*item["spec"]["containers"], *item["spec"]["initContainers"]):
        one["resources"]["limits"] = one["resources"]["requests"]
    return {"pod": item, "classes": classes, "nodes": nodes, "slices": slices}


def could_serve(case, node, made, allocate_oracle):
    """Whether the scheduler could place the pod there: what a device plugin hands out is enough, and its allocator serves the rest."""
    handed_out = {name: int(amount) for name, amount in node["status"]["allocatable"].items()}
    short = [name for name, asked in made["totals"].items() if 0 < handed_out.get(name, 0) < asked]
    unknown = [name for one in case["pod"]["spec"]["containers"] + case["pod"]["spec"]["initContainers"] for name, amount in one["resources"]["requests"].items() if amount != "0" and name not in made["classes"] and not handed_out.get(name)]  # fmt: skip
    by_plugin = [
        name for name in handed_out if name not in made["classes"] and total(case["pod"], name) > handed_out[name]
    ]
    if short or unknown or by_plugin:
        return False
    if not made["requests"]:
        return True
    claim = {
        "metadata": {"name": "c", "namespace": "n", "uid": "1"},
        "spec": {"devices": {"requests": made["requests"]}},
    }
    question = {"node": node, "claims": [claim], "slices": case["slices"], "classes": case["classes"]}
    return allocate_oracle.ask(**question)["verdict"] != "infeasible"


def total(item, name):
    """What a pod asks of a name as the kubelet counts it, which starts init containers one after the other, and sidecars for good."""
    most = sidecars = 0
    for one in item["spec"]["initContainers"]:
        asked = int(one["resources"]["requests"].get(name, 0))
        most = max(most, sidecars + asked)
        sidecars += asked if one.get("restartPolicy") == "Always" else 0
    return max(
        most, sidecars + sum(int(one["resources"]["requests"].get(name, 0)) for one in item["spec"]["containers"])
    )


def refused(case):
    """Whether the webhook refuses the pod, and whether it makes its own claim."""
    builder = StateBuilder(configured(mode="enforce"), keys=(b"key",))
    builder.learn(features=Features(minor=37))
    objects = [wire.convert(one, Node) for one in case["nodes"]]
    objects += [wire.convert(one, ResourceSlice) for one in case["slices"]]
    builder.take_in([*objects, *[wire.convert(one, DeviceClass) for one in case["classes"]]])
    builder.settle()
    state = builder.state(fresh=True)
    said = answer(admission.mutate(review(case["pod"]), state))
    return not said["allowed"], "patch" in said


def test_a_refused_pod_could_not_run_on_any_node(allocate_oracle, extended_oracle):
    met = Counter()
    for seed in range(CASES):
        case = case_of(seed)
        asked = [{"pod": case["pod"], "classes": case["classes"], "allocatable": node["status"]["allocatable"]} for node in case["nodes"]]  # fmt: skip
        answers = zip(case["nodes"], extended_oracle.ask_all(asked), strict=True)
        served = any(could_serve(case, node, made, allocate_oracle) for node, made in answers)
        denied, translated = refused(case)
        if translated:  # no class has the name
            continue
        met[denied, served] += 1
        assert not (denied and served), f"{seed}: {case}"
    assert met[True, False] >= CASES / 10
    assert met[False, True] >= CASES / 4
    # A pod that is not refused and cannot be served asks by a name of no class, or may be served by parts of both ways for all that is looked at.
    assert met[False, False] <= met[True, False]
