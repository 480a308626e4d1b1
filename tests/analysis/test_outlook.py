"""All commands and the dashboard give the same answer about where a pod can run, what it waits for, and which pods are evicted for it."""

import random

import pytest

from analysis.loading import Unread, read_cluster, reading_of
from analysis.outlook import Queue, queue_of
from cluster.embedded import Embedded
from cluster.errors import Forbidden
from dashboard.waiting import waiting
from tests.agreement import NO_ROOM, ROOM
from tests.allocator.service.sidecar import device_class, gpus, node
from tests.cli.explain.scenes import (
    claim,
    dump,
    explain,
    explain_json,
    fleet,
    full_fleet,
    held_claim,
    in_phase,
    pod,
)
from tests.cli.running import manifest, run, run_json
from tests.corpus.move.plugins import config_map, sharing
from tests.limits import draws
from tests.objects import container, obj
from webhook.state import Features

CLAIM_AND_POD_A, CLAIM_AND_POD_B = (claim("a"), pod("a", "a")), (claim("b"), pod("b", "b"))


def message_of(answer):
    return answer["pod"]["state"]["reasons"][0]["text"]


def test_explain_and_dashboard_place_pods_in_simulated_order(tmp_path):
    objects = [*fleet(1, 1), *CLAIM_AND_POD_A, *CLAIM_AND_POD_B]
    file = dump(tmp_path, *objects)
    simulated = {outcome["pod"]: outcome["node"] for outcome in run_json("simulate", "-f", file)[1]["pods"]}
    answers = {name: explain_json(tmp_path, f"pod {name}", *objects)[1] for name in ("a", "b")}
    assert simulated == {f"default/{name}": answer["pod"]["roomOn"] or None for name, answer in answers.items()}
    assert simulated == {"default/a": "n0", "default/b": None}
    assert message_of(answers["a"]).startswith("devices for it are free, and")
    assert "pods before it in the queue" in message_of(answers["b"])
    rows = {row.pod: row.reason for row in waiting(reading_of(objects, Features()))}
    assert rows == {f"default/{name}": message_of(answer) for name, answer in answers.items()}


def test_each_pod_beyond_the_bound_is_placed_next(monkeypatch):
    monkeypatch.setattr("analysis.outlook.MAX_PLACED", 1)
    reading = reading_of([*fleet(1, 2), *CLAIM_AND_POD_A, *CLAIM_AND_POD_B, claim("c"), pod("c", "c")], Features())
    queue = queue_of(reading)
    by_pod = {name: queue.place(f"default/{name}").devices for name in "abc"}
    assert [len(devices) for devices in by_pod.values()] == [1, 1, 1]
    assert by_pod["b"] != by_pod["a"]


def test_pods_ahead_cost_a_bounded_number_of_steps(monkeypatch):
    """A tenant with 1,000 expensive pods would otherwise delay answers about other pods by minutes."""
    monkeypatch.setattr("dra.step_limits.OUTLOOK", 1)
    reading = reading_of([*fleet(1, 2), *CLAIM_AND_POD_A, *CLAIM_AND_POD_B, claim("c"), pod("c", "c")], Features())
    queue = queue_of(reading)
    devices_of_c = queue.place("default/c").devices
    assert queue._outcomes["default/a"].devices != devices_of_c
    assert "default/b" not in queue._outcomes
    assert queue.place("default/b").devices == devices_of_c


def test_no_pod_is_placed_after_the_steps_for_reasons_are_spent(monkeypatch):
    monkeypatch.setattr("dashboard.waiting.REASONS", 1)
    objects = [*fleet(1, 2), *CLAIM_AND_POD_A, *CLAIM_AND_POD_B, claim("c"), pod("c", "c")]
    placed_keys, place = [], Queue.place
    monkeypatch.setattr(Queue, "place", lambda queue, key: placed_keys.append(key) or place(queue, key))
    rows = list(waiting(reading_of(objects, Features())))
    assert set(placed_keys) == {"default/a"}
    assert [row.pod for row in rows] == ["default/a", "default/b", "default/c"]


async def test_explain_names_the_victims_that_simulate_names(tmp_path):
    """Of the two pods that could be evicted, a PodDisruptionBudget protects p0."""
    objects = [*fleet(2, 1)]
    for number in (0, 1):
        objects.append(held_claim(f"c{number}", f"p{number}", on=f"n{number}/gpu-0"))
        victim = in_phase(pod(f"p{number}", f"c{number}", nodeName=f"n{number}", priority=1), "Running")
        victim["metadata"]["labels"] = {"app": f"p{number}"}
        objects.append(victim)
    status = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    selector = {"matchLabels": {"app": "p0"}}
    budget = obj("PodDisruptionBudget", "keep", "policy/v1", namespace="default", selector=selector, status=status)
    objects += [claim("new"), pod("new", "new", priority=9), budget]
    file = dump(tmp_path, *objects)
    [simulated] = run_json("simulate", "-f", file)[1]["pods"]
    assert simulated["victims"] == ["default/p1"]
    for reading in (reading_of(objects, Features()), await read_cluster(Embedded.holding(objects))):
        assert queue_of(reading).explain("default/new").victims == ("default/p1",)


async def test_disruption_budgets_that_cannot_be_listed_are_named():
    class ClusterWithoutBudgets(Embedded):
        async def list(self, resource, *arguments, **keywords):
            if resource.kind == "PodDisruptionBudget":
                raise Forbidden("that is not yours")
            return await super().list(resource, *arguments, **keywords)

    reading = await read_cluster(ClusterWithoutBudgets.holding([*fleet(1, 1), pod("p")]))
    assert reading.unread == (Unread("poddisruptionbudgets.policy", "that is not yours"),)
    assert reading.knows_pods
    assert reading.knows_claims


CONFIGURATION = {"apiVersion": "drawbridge.dev/v1alpha1", "kind": "DrawbridgeConfiguration", "metadata": {"name": "c"}}
CONFIGURATION_WITH_TEMPLATE = CONFIGURATION | {
    "nodeTemplates": [{"name": "big", "devices": [{"driver": "gpu.example.com", "count": 4}]}]
}


def test_explain_names_the_node_template_that_simulate_names(tmp_path):
    file = dump(tmp_path, *fleet(1, 1), claim("b", 4), pod("b", "b"))
    config = manifest(tmp_path / "config.yaml", CONFIGURATION_WITH_TEMPLATE)
    [simulated] = run_json("simulate", "-f", file, "--config", config)[1]["pods"]
    assert "a node of template big could serve it" in simulated["reason"]["text"]
    answer = run_json("explain", "pod", "b", "-f", file, "--config", config)[1]
    assert "template big could" in message_of(answer)


WAITING_CLAIM_AND_POD = (claim("c"), pod("new", "c"))
RUNNING_POD = in_phase(pod("runs", nodeName="n0"), "Running")


def test_simulate_and_explain_name_all_that_a_node_lacks(tmp_path):
    containers = [container(limits={"b.example/y": 1, "a.example/x": 1})]
    objects = [*fleet(1, 1), claim("c"), pod("p", "c", containers=containers)]
    [simulated] = run_json("simulate", "-f", dump(tmp_path, *objects))[1]["pods"]
    answer = explain_json(tmp_path, "pod p", *objects)[1]["pod"]
    [reason] = answer["prospect"]["otherReasons"]
    assert reason["text"] == "Insufficient a.example/x and Insufficient b.example/y"
    assert reason["text"] in simulated["reason"]["text"]


# The claim that holds the device, whether the pods of its namespace are read, and whether no pod uses the claim.
HOLDERS = {
    "claim of a running pod": (held_claim("held", "runs"), True, False),
    "claim of no pod": (held_claim("held"), True, True),
    "claim of a deleted pod": (held_claim("held", "gone"), True, True),
    "claim in a namespace whose pods were not read": (held_claim("held", "elsewhere"), False, False),
}


@pytest.mark.parametrize(("holder", "has_pods", "is_unused"), HOLDERS.values(), ids=HOLDERS)
def test_advice_distinguishes_claims_to_delete_from_claims_to_release(tmp_path, holder, has_pods, is_unused):
    namespace = "default" if has_pods else "n"
    waiting_objects = [obj | {"metadata": obj["metadata"] | {"namespace": namespace}} for obj in WAITING_CLAIM_AND_POD]
    objects = [*fleet(1, 1), holder, *[RUNNING_POD] * has_pods, *waiting_objects]
    code, answer = explain_json(tmp_path, "pod new", *objects)
    [obstacle] = answer["pod"]["prospect"]["wayOut"]["obstacles"]
    kind, remedy = ("unused claim", "delete claim default/held") if is_unused else ("holder", "")
    assert (code, obstacle["kind"], obstacle["remedy"]) == (0, kind, remedy)


PLUGIN_KEY, OTHER_KEY = "nvidia.com/gpu", "example.com/fpga"


def pod_by_keys(**amounts):
    """Return a pending pod of the default scheduler that requests these amounts by resource key."""
    pending_pod = in_phase(pod("w"), "Pending")
    del pending_pod["spec"]["schedulerName"]
    pending_pod["spec"]["containers"][0]["resources"] = {"limits": amounts, "requests": amounts}
    return pending_pod


def test_plugin_and_devices_of_a_node_serve_two_resources(tmp_path):
    classes = device_class(extendedResourceName=PLUGIN_KEY), device_class("fpga", extendedResourceName=OTHER_KEY)
    node_with_both = node("n0", allocatable={"cpu": "4", OTHER_KEY: "1"})
    objects = [*classes, node_with_both, gpus("n0", 1), pod_by_keys(**{PLUGIN_KEY: "1", OTHER_KEY: "1"})]
    [simulated] = run_json("simulate", "-f", dump(tmp_path, *objects))[1]["pods"]
    answer = explain_json(tmp_path, "pod w", *objects)[1]["pod"]
    assert (simulated["node"], answer["roomOn"], answer["prospect"]["outlook"]) == ("n0", "n0", "fits")
    assert "default-scheduler has not placed it" in message_of({"pod": answer})


def test_a_placed_pod_has_a_note_about_shared_devices(tmp_path):
    """kube-scheduler places the pod, because a time-sliced node offers 16 units, and the plugin then rejects the pod."""
    time_sliced_node = node("n0", allocatable={"cpu": "4", PLUGIN_KEY: "16"})
    plugin_configuration = config_map(any=sharing(failRequestsGreaterThanOne=True))
    file = dump(tmp_path, time_sliced_node, plugin_configuration, pod_by_keys(**{PLUGIN_KEY: "16"}))
    result = run("simulate", "-f", file)
    [simulated] = run_json("simulate", "-f", file)[1]["pods"]
    note = "ConfigMap gpu-operator/plugin (any) makes 4 time-sliced replicas of each device, and rejects pods that request two replicas"
    assert (simulated["node"], simulated["note"]) == ("n0", f"{PLUGIN_KEY}: {note}")
    assert note in " ".join(result.stdout.split())
    assert "ConfigMap" not in result.stderr
    assert note in run("explain", "pod", "w", "-f", file).stdout
    reading = reading_of([time_sliced_node, plugin_configuration, pod_by_keys(**{PLUGIN_KEY: "16"})], Features())
    assert queue_of(reading).place("default/w").note == simulated["note"]


@pytest.mark.parametrize(
    ("labels", "note"),
    [
        (
            {"nvidia.com/gpu.replicas": "4"},
            "the plugin (label nvidia.com/gpu.replicas) makes 4 time-sliced replicas of each device",
        ),
        (
            {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "mps"},
            "the plugin (label nvidia.com/gpu.replicas) makes 4 MPS replicas of each device, and rejects pods that request two replicas",
        ),
        *(({"nvidia.com/gpu.replicas": number}, "") for number in ("1", "0", "", "many", "9" * 400)),
        ({"nvidia.com/mig-1g.5gb.replicas": "4"}, ""),
    ],
)
def test_labels_of_shared_devices_cause_a_note_on_pods(labels, note, tmp_path):
    key = "nvidia.com/gpu"
    labelled_node = node("n0", allocatable={"cpu": "4", key: "16"})
    labelled_node["metadata"]["labels"] = labels
    file = dump(tmp_path, labelled_node, pod_by_keys(**{key: "16"}))
    [simulated] = run_json("simulate", "-f", file)[1]["pods"]
    assert (simulated["node"], simulated["note"]) == ("n0", f"{key}: {note}" if note else "")


@pytest.mark.parametrize("registered", ['[{"id": "a"}, {"id": "b"}]', "a,10,81920,100,A100,0,true:b,10,81920,100,A100,0,true:"])  # fmt: skip
@pytest.mark.parametrize(("count", "placed"), [("2", True), ("3", False)])
def test_a_container_gets_at_most_the_gpus_that_hami_has_registered(registered, count, placed, tmp_path):
    key = "nvidia.com/gpu"
    hami_node = node("n0", allocatable={"cpu": "4", key: "20"})
    hami_node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": registered}
    file = dump(tmp_path, hami_node, pod_by_keys(**{key: count}))
    [simulated] = run_json("simulate", "-f", file)[1]["pods"]
    assert simulated["node"] == ("n0" if placed else None)
    words = "HAMi announces several units for each of 2 GPUs" if placed else "the node has 2"
    assert words in (simulated["note"] if placed else simulated["reason"]["text"])


def test_a_free_plugin_device_alone_is_no_room(tmp_path):
    """The plugin has a free device, but none is free for the claim."""
    full_node = node("n0", allocatable={"cpu": "4", PLUGIN_KEY: "1"})
    pending_pod = pod_by_keys(**{PLUGIN_KEY: "1"})
    pending_pod["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
    objects = [
        device_class(extendedResourceName=PLUGIN_KEY),
        full_node,
        gpus("n0", 1),
        held_claim("h", "runs"),
        RUNNING_POD,
        claim("c"),
        pending_pod,
    ]
    [simulated] = run_json("simulate", "-f", dump(tmp_path, *objects))[1]["pods"]
    answer = explain_json(tmp_path, "pod w", *objects)[1]
    assert (simulated["node"], answer["pod"]["roomOn"]) == (None, "")
    assert "have room" not in message_of(answer)


def draw_objects(seed):
    """Draw nodes with DRA devices, some of them in use, nodes with device plugins, and a pod with a claim or extended resources."""
    rng = random.Random(seed)
    objects = [device_class(**({"extendedResourceName": PLUGIN_KEY} if rng.random() < 0.6 else {}))]
    if rng.random() < 0.3:
        objects.append(device_class("fpga", extendedResourceName=OTHER_KEY))
    running_count = 0
    for i in range(rng.randint(1, 3)):
        name = f"n{i}"
        amounts = {} if rng.random() < 0.2 else {"cpu": "4", "pods": "10"}
        amounts |= {
            key: str(rng.choice((0, 1, 2))) for key in (PLUGIN_KEY, OTHER_KEY) if amounts and rng.random() < 0.4
        }
        node_object = node(name, **({"allocatable": amounts} if amounts else {}))
        node_object["metadata"]["labels"] = {"zone": rng.choice("ab")}
        node_object["spec"] = {"taints": [{"key": "x", "effect": "NoSchedule"}]} if rng.random() < 0.2 else {}
        objects.append(node_object)
        devices = rng.choice((0, 1, 2, 3))
        objects += [gpus(name, devices)] if devices else []
        for device in range(devices):
            if rng.random() < 0.4:
                running_count += 1
                objects.append(held_claim(f"h{running_count}", f"r{running_count}", on=f"{name}/gpu-{device}"))
                objects.append(in_phase(pod(f"r{running_count}", f"h{running_count}", nodeName=name), "Running"))
    amounts = {PLUGIN_KEY: rng.choice("1124")} | ({OTHER_KEY: "1"} if rng.random() < 0.3 else {})
    pending_pod = pod_by_keys(**amounts)
    if rng.random() < 0.4:
        pending_pod["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "c"}]
        objects.append(claim("c", rng.choice((1, 2))))
    pending_pod["spec"]["nodeSelector"] = {"zone": "a"} if rng.random() < 0.2 else {}
    return [*objects, pending_pod]


@pytest.mark.parametrize("seed", range(draws(60)))
def test_explain_says_that_a_pod_fits_where_simulate_places_it(seed, tmp_path):
    objects = draw_objects(seed)
    [simulated] = [
        outcome
        for outcome in run_json("simulate", "-f", dump(tmp_path, *objects))[1]["pods"]
        if outcome["pod"] == "default/w"
    ]
    answer = explain_json(tmp_path, "pod w", *objects)[1]
    message, prospect = message_of(answer), answer["pod"].get("prospect")
    if answer["pod"]["state"]["reasons"][0]["actor"] != "user":
        assert (answer["pod"]["roomOn"] or None) == simulated["node"]
    has_room = True if ROOM.search(message) else False if NO_ROOM.search(message) else None
    if prospect and message == (prospect.get("wayOut") or {}).get("text"):
        has_room = False
    if has_room is None and prospect:
        has_room = {"fits": True, "full": False, "never": False}.get(prospect["outlook"])
    assert has_room in (None, simulated["node"] is not None), message


def test_of_equal_nodes_with_unused_claims_one_with_room_for_the_pod_is_advised(tmp_path):
    """Claims that no pod uses hold the devices of both nodes. Another pod uses the cpu of the first node."""
    objects = [obj for obj in fleet(2, 1) if obj["kind"] != "Node"]
    objects += [node(name, allocatable={"cpu": "4", "pods": "10"}) for name in ("n0", "n1")]
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]
    objects += [held_claim(f"c{number}", on=f"n{number}/gpu-0") for number in (0, 1)]
    objects += [in_phase(pod("busy", containers=containers, nodeName="n0"), "Running")]
    objects += [claim("c"), pod("p", "c", containers=containers)]
    [reason] = explain_json(tmp_path, "pod p", *objects)[1]["pod"]["state"]["reasons"]
    assert reason["remedies"] == ["delete claim default/c1"]


def test_a_claim_names_its_remedies(tmp_path):
    objects = [obj for obj in full_fleet() if obj["metadata"]["name"] != "p2"]
    text = explain(tmp_path, "claim c", *objects, claim("c")).stdout
    assert "  remedy      delete claim default/c2" in text
