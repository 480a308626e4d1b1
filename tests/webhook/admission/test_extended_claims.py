"""Pods with extended resources that a DeviceClass serves: the webhook and the files judge the claim that the scheduler will make."""

import msgspec
import pytest

from tests.webhook.admission.extended_resources import (
    CLASS,
    DRIVER,
    FENCED,
    GPU,
    IMPLICIT,
    at_webhook,
    plugin,
    pod_asking_for,
    with_mode,
    world,
)
from tests.webhook.admission.reviews import answer, review
from webhook.admission import decide_object
from webhook.admission import review as admission
from webhook.claims import taint_rule
from webhook.translate.unanswered_requests import unanswered_requests


@pytest.mark.parametrize("key", [GPU, IMPLICIT])
def test_an_impossible_request_is_refused_with_a_remedy(key):
    state = world()
    response = at_webhook(pod_asking_for(3, key), state)
    assert not response["allowed"]
    message = response["status"]["message"]
    assert (
        f"container main ({key}: 3) requests 3 devices of class {DRIVER} on one node, but the largest node has 2"
        in message
    )
    assert "request at most 2 devices in container main" in message
    assert "[R023]" in message
    [refusal] = decide_object(pod_asking_for(3, key), state).refusals
    assert str(refusal) in message
    for count in (0, 1, 2):
        served = at_webhook(pod_asking_for(count, key), state)
        assert (served["allowed"], served.get("patch"), served.get("warnings")) == (True, None, None)


def test_a_sufficient_device_plugin_prevents_a_refusal():
    assert not at_webhook(pod_asking_for(3), world(nodes=[plugin("b", "2")]))["allowed"]
    assert at_webhook(pod_asking_for(3), world(nodes=[plugin("b", "3")]))["allowed"]
    assert not at_webhook(pod_asking_for(3, IMPLICIT), world(nodes=[plugin("b", "3")]))["allowed"]


def test_without_a_usable_device_plugin_devices_decide():
    item = pod_asking_for(3)
    beside = plugin("b", "4")
    assert "warnings" not in at_webhook(item, world(nodes=[beside]))
    waits = "no node has the devices for this pod: it waits until the device plugin of a node such as b can serve it"
    assert at_webhook(item, used(world(nodes=[beside]), "b", 2))["warnings"] == [waits]
    assert "warnings" not in at_webhook(item, used(world(nodes=[beside]), "b", 1))
    item["spec"]["nodeSelector"] = {"of": "a"}
    assert at_webhook(item, world(nodes=[beside]))["warnings"] == [waits]
    del item["spec"]["nodeSelector"]
    shut = beside | {"spec": {"taints": [{"key": "of", "value": "others", "effect": "NoSchedule"}]}}
    assert at_webhook(item, world(nodes=[shut]))["warnings"] == [waits]
    item["spec"]["tolerations"] = [{"key": "of", "operator": "Exists"}]
    assert "warnings" not in at_webhook(item, world(nodes=[shut]))
    few = pod_asking_for(1)
    few["spec"]["nodeSelector"] = {"of": "a"}
    [tainted] = at_webhook(few, world(nodes=[beside], rules=[taint_rule(DRIVER)]))["warnings"][:1]
    assert tainted.startswith("no node can serve this pod now")


def used(state, node, count):
    return msgspec.structs.replace(state, uses={node: {GPU: count * 10**9}})


def test_an_autoscaled_node_may_have_a_device_plugin():
    for amount, allowed in (("2", False), ("3", True)):
        template = {"name": "plugins", "labels": {"pool": "plugins"}, "allocatable": {GPU: amount}}
        assert at_webhook(pod_asking_for(3), world(nodeTemplates=[template]))["allowed"] is allowed


def test_a_full_fleet_causes_a_warning_and_no_refusal():
    results = [{"request": "r", "driver": DRIVER, "pool": "a", "device": f"gpu-{at}"} for at in range(2)]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
    held = {
        "metadata": {"name": "c", "namespace": "other", "uid": "1"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER, "count": 2}}]}},
        "status": {"allocation": {"devices": {"results": results}, "nodeSelector": selector}},
    }
    response = at_webhook(pod_asking_for(1), world(claims=[held]))
    assert response["allowed"]
    assert response["warnings"][0].startswith("this pod waits until devices are free: on node a, ")
    assert response["warnings"][0].endswith("held by a claim of another namespace")
    assert response["auditAnnotations"]["outcome"] == "left"


def test_warn_and_observe_report_impossible_requests():
    state = world()
    warned = with_mode(state, "warn")
    response = at_webhook(pod_asking_for(3), warned)
    assert response["allowed"]
    refusal = "drawbridge would refuse this Pod in mode enforce: the only node cannot serve"
    assert response["warnings"][0].startswith(refusal)
    observed = with_mode(state, "observe")
    outcome = admission.decide_review("mutate", review(pod_asking_for(3)), observed)
    assert "warnings" not in answer(outcome)
    assert outcome.record.outcome == "would refuse"


def test_init_containers_share_the_devices_of_containers():
    item = pod_asking_for(1)
    first = {"name": "first", "resources": {"limits": {GPU: "2"}, "requests": {GPU: "2"}}}
    item["spec"]["initContainers"] = [first]
    assert at_webhook(item, world())["allowed"]
    item["spec"]["initContainers"] = [first | {"restartPolicy": "Always"}]
    message = at_webhook(item, world())["status"]["message"]
    assert f"container first ({GPU}: 2); container main ({GPU}: 1) together request 3 devices" in message
    assert "request at most 2 devices in total" in message


def test_all_containers_of_an_excessive_sum_are_named():
    item = pod_asking_for(2)
    item["spec"]["containers"] += [{"name": "beside", "resources": {"limits": {IMPLICIT: "1"}}}]
    start = {"name": "first", "resources": {"limits": {GPU: "3"}}}
    item["spec"]["initContainers"] = [start]
    [refusal] = decide_object(item, world()).refusals
    message = (
        f"container main ({GPU}: 2); container beside ({IMPLICIT}: 1); container first ({GPU}: 1) together request 4"
    )
    assert refusal.code == "R023"
    for part in message.removesuffix(" together request 4").split("; "):
        assert part in str(refusal)
    assert "together request 4 devices" in str(refusal)


def test_the_remedy_offers_the_larger_device_plugin_amount():
    for amount, offer in (
        ("4", "4 in container main, which a device plugin offers"),
        ("1", "2 devices in container main"),
    ):
        [refusal] = decide_object(pod_asking_for(5), world(nodes=[plugin("b", amount)])).refusals
        assert refusal.remedy == f"request at most {offer}"


def test_a_request_within_device_plugin_capacity_is_never_refused():
    sick = plugin("b", "4")
    assert decide_object(pod_asking_for(5), world(nodes=[sick])).refusals
    sick["status"]["capacity"] = {GPU: "5"}
    assert not decide_object(pod_asking_for(5), world(nodes=[sick])).refusals


@pytest.mark.parametrize("counts", [[33], [20, 20], [1] * 33], ids=str)
def test_an_extended_resource_serves_at_most_32_devices(counts):
    def asking(*each):
        item = pod_asking_for(1)
        resources = [{"limits": {GPU: str(count)}} for count in each]
        item["spec"]["containers"] = [
            {"name": f"c{at}", "resources": resource} for at, resource in enumerate(resources)
        ]
        return item

    state = world(devices=64)
    [refusal] = decide_object(asking(*counts), state).refusals
    assert refusal.message.endswith(f" {sum(counts)} devices, but one claim can hold at most 32")
    assert refusal.code == "R023"
    assert not at_webhook(asking(*counts), state)["allowed"]
    assert at_webhook(asking(*counts), world(devices=64, nodes=[plugin("b", "64")]))["allowed"]
    fewer = counts[:-1] if len(counts) > 2 else [*counts[:-1], counts[-1] - sum(counts) + 32]
    assert not decide_object(asking(*fewer), state).refusals


@pytest.mark.parametrize(
    "passed",
    [
        {"scheduler": "of-another-team"},
        {"labels": {"drawbridge.dev/skip": "true"}},
        {"classes": ()},
        {"devices": 0},
    ],
    ids=str,
)
def test_a_request_that_may_succeed_is_not_refused(passed):
    item = pod_asking_for(3, labels=passed.get("labels", {}))
    if "scheduler" in passed:
        item["spec"]["schedulerName"] = passed["scheduler"]
    state = world(classes=passed.get("classes", (CLASS,)), devices=passed.get("devices", 2))
    if "devices" in passed:
        state = msgspec.structs.replace(state, incomplete=frozenset({"ResourceSlice"}))
    assert at_webhook(item, state)["allowed"]


def test_a_workload_is_warned_about_its_pods():
    template = {"spec": pod_asking_for(3)["spec"]}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"template": template},
    }
    state = world()
    [refusal] = decide_object(workload, state).refusals
    assert "[R023]" in str(refusal)
    response = answer(
        admission.decide_review("validate", review(workload, resource="deployments", group="apps"), state)
    )
    assert response["allowed"]
    assert response["warnings"][0].startswith("its pods will be refused: the only node cannot serve")


def test_an_implicit_name_of_no_class_waits_for_one():
    key = f"{IMPLICIT}.typo"
    [decision] = unanswered_requests(pod_asking_for(1, key), world(), ())
    assert decision.detail == f"there is no DeviceClass {DRIVER}.typo: the pod waits until there is one"


def test_a_tie_of_nodes_that_prevents_a_claim_is_reported():
    tie = "set which nodes are preferred under `mixed`"
    nodes = [plugin("b", "4")]
    left = decide_object(pod_asking_for(1), world(nodes=nodes))
    assert [decision.detail for decision in left.decisions] == [
        f"DeviceClass {DRIVER} serves it through extendedResourceName"
    ]
    assert not left.warnings
    [decision] = decide_object(
        pod_asking_for(1), world(nodes=nodes, extendedResources={"default": "translate"})
    ).decisions
    assert tie in decision.detail
    beside = pod_asking_for(1, annotations={"drawbridge.dev/extended-resources": "translate"})
    [decision] = decide_object(beside, world(nodes=nodes)).decisions
    assert tie in decision.detail


@pytest.mark.parametrize("name", [None, 3, ["x"], {}], ids=str)
def test_a_container_name_that_is_no_string_gets_an_answer(name):
    item = pod_asking_for(1)
    item["spec"]["containers"][0]["name"] = name
    for state in (world(), world(bridge=FENCED)):
        assert at_webhook(item, state)["allowed"]
