"""Pods with extended resources that a DeviceClass serves. For pods and files, the claim is judged that kube-scheduler will create."""

import msgspec
import pytest

from tests.objects import allocated, claim, exactly, result
from tests.webhook.admission.extended_resources import (
    CLASS,
    DRIVER,
    FENCED,
    GPU,
    IMPLICIT,
    plugin_node,
    pod_requesting,
    webhook_response,
    world,
)
from webhook.admission import decide_object
from webhook.claims import taint_rule
from webhook.unknown.unanswered_requests import unanswered_requests


@pytest.mark.parametrize("key", [GPU, IMPLICIT])
def test_an_impossible_request_is_refused_with_a_remedy(key):
    state = world()
    response = webhook_response(pod_requesting(3, key), state)
    assert not response["allowed"]
    message = response["status"]["message"]
    assert f"container main ({key}: 3)" in message
    assert "request at most 2 devices in container main" in message
    assert "[R023]" in message
    [refusal] = decide_object(pod_requesting(3, key), state).refusals
    assert str(refusal) in message
    for count in (0, 1, 2):
        possible = webhook_response(pod_requesting(count, key), state)
        assert possible["allowed"]
        assert not {"patch", "warnings"} & possible.keys()


def test_a_pod_is_admitted_if_a_device_plugin_has_enough():
    assert not webhook_response(pod_requesting(3), world(nodes=[plugin_node("b", "2")]))["allowed"]
    assert webhook_response(pod_requesting(3), world(nodes=[plugin_node("b", "3")]))["allowed"]
    assert not webhook_response(pod_requesting(3, IMPLICIT), world(nodes=[plugin_node("b", "3")]))["allowed"]


def test_a_pod_may_wait_for_a_usable_device_plugin():
    item = pod_requesting(3)
    node_b = plugin_node("b", "4")
    assert "warnings" not in webhook_response(item, world(nodes=[node_b]))
    waits = "no node has the devices for this pod: it waits until the device plugin of a node such as b can serve it"
    assert webhook_response(item, with_use(world(nodes=[node_b]), "b", 2))["warnings"] == [waits]
    assert "warnings" not in webhook_response(item, with_use(world(nodes=[node_b]), "b", 1))
    item["spec"]["nodeSelector"] = {"of": "a"}
    assert webhook_response(item, world(nodes=[node_b]))["warnings"] == [waits]
    del item["spec"]["nodeSelector"]
    tainted_node = node_b | {"spec": {"taints": [{"key": "of", "value": "others", "effect": "NoSchedule"}]}}
    assert webhook_response(item, world(nodes=[tainted_node]))["warnings"] == [waits]
    item["spec"]["tolerations"] = [{"key": "of", "operator": "Exists"}]
    assert "warnings" not in webhook_response(item, world(nodes=[tainted_node]))
    small_pod = pod_requesting(1)
    small_pod["spec"]["nodeSelector"] = {"of": "a"}
    [first_warning] = webhook_response(small_pod, world(nodes=[node_b], rules=[taint_rule(DRIVER)]))["warnings"][:1]
    assert first_warning.startswith("no node can serve this pod now")


def with_use(state, node, count):
    """Return a state in which pods use `count` GPUs of a node. A state has amounts in billionths."""
    return msgspec.structs.replace(state, uses={node: {GPU: count * 10**9}})


def test_an_autoscaled_node_may_have_a_device_plugin():
    for amount, allowed in (("2", False), ("3", True)):
        template = {"name": "plugins", "labels": {"pool": "plugins"}, "allocatable": {GPU: amount}}
        assert webhook_response(pod_requesting(3), world(nodeTemplates=[template]))["allowed"] is allowed


def test_a_full_fleet_causes_a_warning_and_no_refusal():
    status = allocated(*(result(f"gpu-{index}", driver=DRIVER, pool="a") for index in range(2)), node="a")
    holder = claim("c", exactly(DRIVER, count=2), namespace="other", uid="1", status=status)
    response = webhook_response(pod_requesting(1), world(claims=[holder]))
    assert response["allowed"]
    assert response["warnings"][0].startswith("this pod waits until devices are free: ")
    assert response["warnings"][0].endswith("another namespace")
    assert response["auditAnnotations"]["outcome"] == "left"


def test_init_containers_share_the_devices_of_containers():
    item = pod_requesting(1)
    init_container = {"name": "first", "resources": {"limits": {GPU: "2"}, "requests": {GPU: "2"}}}
    item["spec"]["initContainers"] = [init_container]
    assert webhook_response(item, world())["allowed"]
    item["spec"]["initContainers"] = [init_container | {"restartPolicy": "Always"}]
    message = webhook_response(item, world())["status"]["message"]
    assert f"container first ({GPU}: 2); container main ({GPU}: 1) together request 3 devices" in message
    assert "request at most 2 devices in total" in message


def test_all_containers_of_an_excessive_sum_are_named():
    item = pod_requesting(2)
    item["spec"]["containers"] += [{"name": "beside", "resources": {"limits": {IMPLICIT: "1"}}}]
    # The init container uses the two devices of main, so it adds only one to the sum.
    init_container = {"name": "first", "resources": {"limits": {GPU: "3"}}}
    item["spec"]["initContainers"] = [init_container]
    [refusal] = decide_object(item, world()).refusals
    assert refusal.code == "R023"
    for part in (f"container main ({GPU}: 2)", f"container beside ({IMPLICIT}: 1)", f"container first ({GPU}: 1)"):
        assert part in str(refusal)
    assert "together request 4 devices" in str(refusal)


def test_the_remedy_offers_the_larger_amount_of_plugin_and_driver():
    for amount, offer in (
        ("4", "4 in container main, which a device plugin offers"),
        ("1", "2 devices in container main"),
    ):
        [refusal] = decide_object(pod_requesting(5), world(nodes=[plugin_node("b", amount)])).refusals
        assert refusal.remedy == f"request at most {offer}"


def test_a_request_within_device_plugin_capacity_is_never_refused():
    unhealthy_node = plugin_node("b", "4")
    assert decide_object(pod_requesting(5), world(nodes=[unhealthy_node])).refusals
    unhealthy_node["status"]["capacity"] = {GPU: "5"}
    assert not decide_object(pod_requesting(5), world(nodes=[unhealthy_node])).refusals


@pytest.mark.parametrize("counts", [[33], [20, 20], [1] * 33], ids=str)
def test_more_than_32_devices_of_an_extended_resource_are_refused(counts):
    def pod_with_containers(*counts_of_containers):
        item = pod_requesting(1)
        resources = [{"limits": {GPU: str(count)}} for count in counts_of_containers]
        item["spec"]["containers"] = [
            {"name": f"c{index}", "resources": resource} for index, resource in enumerate(resources)
        ]
        return item

    state = world(devices=64)
    [refusal] = decide_object(pod_with_containers(*counts), state).refusals
    assert refusal.message.endswith(f" {sum(counts)} devices, but one claim can hold at most 32")
    assert refusal.code == "R023"
    assert not webhook_response(pod_with_containers(*counts), state)["allowed"]
    assert webhook_response(pod_with_containers(*counts), world(devices=64, nodes=[plugin_node("b", "64")]))["allowed"]
    fewer = counts[:-1] if len(counts) > 2 else [*counts[:-1], counts[-1] - sum(counts) + 32]
    assert not decide_object(pod_with_containers(*fewer), state).refusals


@pytest.mark.parametrize(
    "case",
    [
        {"scheduler": "of-another-team"},
        {"labels": {"drawbridge.dev/skip": "true"}},
        {"classes": ()},
        {"devices": 0},
    ],
    ids=str,
)
def test_a_request_that_may_succeed_is_not_refused(case):
    item = pod_requesting(3, labels=case.get("labels", {}))
    if "scheduler" in case:
        item["spec"]["schedulerName"] = case["scheduler"]
    state = world(classes=case.get("classes", (CLASS,)), devices=case.get("devices", 2))
    if "devices" in case:
        state = msgspec.structs.replace(state, incomplete=frozenset({"ResourceSlice"}))
    assert webhook_response(item, state)["allowed"]


def test_a_request_by_implicit_name_waits_for_the_class():
    key = f"{IMPLICIT}.typo"
    [decision] = unanswered_requests(pod_requesting(1, key), world(), ())
    assert decision.detail == f"there is no DeviceClass {DRIVER}.typo: the pod waits until there is one"


def test_a_missing_preference_that_prevents_a_claim_is_reported():
    hint = "set which nodes are preferred under `mixed`"
    nodes = [plugin_node("b", "4")]
    verdict = decide_object(pod_requesting(1), world(nodes=nodes))
    assert [decision.detail for decision in verdict.decisions] == [
        f"DeviceClass {DRIVER} serves it through extendedResourceName"
    ]
    assert not verdict.warnings
    [decision] = decide_object(
        pod_requesting(1), world(nodes=nodes, extendedResources={"default": "translate"})
    ).decisions
    assert hint in decision.detail
    annotated = pod_requesting(1, annotations={"drawbridge.dev/extended-resources": "translate"})
    [decision] = decide_object(annotated, world(nodes=nodes)).decisions
    assert hint in decision.detail


@pytest.mark.parametrize("name", [None, 3, ["x"], {}], ids=str)
def test_a_container_name_that_is_no_string_gets_an_answer(name):
    item = pod_requesting(1)
    item["spec"]["containers"][0]["name"] = name
    for state in (world(), world(bridge=FENCED)):
        assert webhook_response(item, state)["allowed"]
