"""No false denial of pods with extended resources: the scheduler's own code makes the claim for each node, and its allocator serves it."""

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
        handed_out = {name: str(rng.randrange(0, 7)) for name in rng.sample(NAMES[:2], rng.choice([0, 0, 1, 2]))}
        nodes.append({"metadata": {"name": name}, "status": {"allocatable": handed_out}})
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


def could_serve(case, node, made, allocate_oracle):
    """Return whether the scheduler could place the pod there: the device plugin has enough, and the allocator serves the rest."""
    handed_out = {name: int(amount) for name, amount in node["status"]["allocatable"].items()}
    short = [name for name, amount in made["totals"].items() if 0 < handed_out.get(name, 0) < amount]
    unknown = [name for container in case["pod"]["spec"]["containers"] + case["pod"]["spec"]["initContainers"] for name, amount in container["resources"]["requests"].items() if amount != "0" and name not in made["classes"] and not handed_out.get(name)]  # fmt: skip
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
    """Return the amount that the kubelet counts for a pod: init containers run one after the other, and sidecars keep running."""
    most = sidecars = 0
    for container in item["spec"]["initContainers"]:
        amount = int(container["resources"]["requests"].get(name, 0))
        most = max(most, sidecars + amount)
        sidecars += amount if container.get("restartPolicy") == "Always" else 0
    return max(
        most,
        sidecars
        + sum(int(container["resources"]["requests"].get(name, 0)) for container in item["spec"]["containers"]),
    )


def refused(case):
    """Return whether the webhook refuses the pod, and whether the webhook translates its requests into a claim."""
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
    met = Counter()
    for seed in range(CASES):
        case = case_of(seed)
        questions = [{"pod": case["pod"], "classes": case["classes"], "allocatable": node["status"]["allocatable"]} for node in case["nodes"]]  # fmt: skip
        answers = zip(case["nodes"], extended_oracle.ask_all(questions), strict=True)
        served = any(could_serve(case, node, made, allocate_oracle) for node, made in answers)
        denied, translated = refused(case)
        if translated:  # no class serves the name
            continue
        met[denied, served] += 1
        assert not (denied and served), f"{seed}: {case}"
    assert met[True, False] >= CASES / 10
    assert met[False, True] >= CASES / 4
    # The webhook admits few pods that no node serves: a pod with a name of no class, or a pod that needs a device plugin and a claim.
    assert met[False, False] <= met[True, False]
