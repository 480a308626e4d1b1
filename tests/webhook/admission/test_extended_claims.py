"""Pods that the scheduler serves by name are judged by the claim that it will make: at the webhook and in files."""

import base64
import json

import msgspec
import pytest

from dra import wire
from dra.objects import DeviceClass, DeviceTaintRule, Node, ResourceClaim, ResourceSlice
from tests.webhook.admission.test_decide import answer, gpu_pod, mutated, review
from tests.webhook.pods import configured
from webhook.admission import decide_object
from webhook.admission import review as admission
from webhook.claims import taint_rule
from webhook.state import StateBuilder
from webhook.state.features import Features
from webhook.translate.unanswered_requests import unanswered_requests

GPU = "nvidia.com/gpu"
FENCED = {"schedulerName": "drawbridge", "drivers": ["gpu.nvidia.com"], "fence": True}
DRIVER = "gpu.nvidia.com"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{DRIVER}"
# As NVIDIA's chart renders it where resource.k8s.io/v1 is served.
CLASS = {
    "metadata": {"name": DRIVER},
    "spec": {
        "selectors": [
            {"cel": {"expression": f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"}}
        ],
        "extendedResourceName": GPU,
    },
}


def plugin(name, amount):
    return {"metadata": {"name": name}, "status": {"allocatable": {GPU: amount, "cpu": "8"}}}


def publishing(count, name="a"):
    devices = [{"name": f"gpu-{at}", "attributes": {"type": {"string": "gpu"}}} for at in range(count)]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}}


def world(*, nodes=(), devices=2, slices=None, classes=(CLASS,), claims=(), rules=(), **fields):
    """One node with two GPUs of a driver, and whatever else."""
    builder = StateBuilder(configured(mode="enforce", **fields), keys=(b"key",))
    builder.learn(features=Features(minor=37))
    objects = [wire.convert(one, Node) for one in ({"metadata": {"name": "a"}}, *nodes)]
    objects += [wire.convert(slices or publishing(devices), ResourceSlice)]
    objects += [wire.convert(device_class, DeviceClass) for device_class in classes]
    objects += [wire.convert(claim, ResourceClaim) for claim in claims]
    objects += [wire.convert(rule, DeviceTaintRule) for rule in rules]
    builder.take_in(objects)
    builder.settle()
    return builder.state(fresh=True)


def asked(count, key=GPU, **metadata):
    return gpu_pod(limits={key: str(count)}, **metadata)


def at_webhook(obj, state):
    return answer(admission.mutate(review(obj), state))


@pytest.mark.parametrize("key", [GPU, IMPLICIT])
def test_an_impossible_request_is_refused_with_a_remedy(key):
    state = world()
    said = at_webhook(asked(3, key), state)
    assert not said["allowed"]
    message = said["status"]["message"]
    assert (
        f"container main ({key}: 3) asks for 3 devices of class {DRIVER} on one node, and the largest node has 2"
        in message
    )
    assert "it would fit if container main asked for no more than 2 devices" in message
    assert "[R023]" in message
    [refusal] = decide_object(asked(3, key), state).refusals
    assert str(refusal) in message
    for count in (0, 1, 2):
        served = at_webhook(asked(count, key), state)
        assert (served["allowed"], served.get("patch"), served.get("warnings")) == (True, None, None)


def test_a_sufficient_device_plugin_prevents_a_refusal():
    assert not at_webhook(asked(3), world(nodes=[plugin("b", "2")]))["allowed"]
    assert at_webhook(asked(3), world(nodes=[plugin("b", "3")]))["allowed"]
    assert not at_webhook(asked(3, IMPLICIT), world(nodes=[plugin("b", "3")]))["allowed"]


def test_without_a_usable_device_plugin_devices_decide():
    item = asked(3)
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
    few = asked(1)
    few["spec"]["nodeSelector"] = {"of": "a"}
    [tainted] = at_webhook(few, world(nodes=[beside], rules=[taint_rule(DRIVER)]))["warnings"][:1]
    assert tainted.startswith("no node can serve this pod now")


def used(state, node, count):
    return msgspec.structs.replace(state, uses={node: {GPU: count * 10**9}})


def test_an_autoscaled_node_may_have_a_device_plugin():
    for amount, allowed in (("2", False), ("3", True)):
        template = {"name": "plugins", "labels": {"pool": "plugins"}, "allocatable": {GPU: amount}}
        assert at_webhook(asked(3), world(nodeTemplates=[template]))["allowed"] is allowed


def test_a_full_fleet_causes_a_warning_and_no_refusal():
    results = [{"request": "r", "driver": DRIVER, "pool": "a", "device": f"gpu-{at}"} for at in range(2)]
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}
    held = {
        "metadata": {"name": "c", "namespace": "other", "uid": "1"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": DRIVER, "count": 2}}]}},
        "status": {"allocation": {"devices": {"results": results}, "nodeSelector": selector}},
    }
    said = at_webhook(asked(1), world(claims=[held]))
    assert said["allowed"]
    assert said["warnings"][0].startswith("this pod waits until devices are free: on a ")
    assert said["warnings"][0].endswith("held by a claim of another namespace")
    assert said["auditAnnotations"]["outcome"] == "left"


def test_modes_that_do_not_refuse_tell_and_record():
    state = world()
    warned = with_mode(state, "warn")
    said = at_webhook(asked(3), warned)
    assert said["allowed"]
    assert said["warnings"][0].startswith("drawbridge would refuse this Pod (warn): the only node could not serve")
    observed = with_mode(state, "observe")
    outcome = admission.mutate(review(asked(3)), observed)
    assert "warnings" not in answer(outcome)
    assert outcome.record.outcome == "would refuse"


def with_mode(state, mode):
    return msgspec.structs.replace(state, namespaces={"ns": {"drawbridge.dev/mode": mode}})


def test_init_containers_share_what_containers_have():
    item = asked(1)
    first = {"name": "first", "resources": {"limits": {GPU: "2"}, "requests": {GPU: "2"}}}
    item["spec"]["initContainers"] = [first]
    assert at_webhook(item, world())["allowed"]
    item["spec"]["initContainers"] = [first | {"restartPolicy": "Always"}]
    said = at_webhook(item, world())["status"]["message"]
    assert f"container first ({GPU}: 2); container main ({GPU}: 1) together ask for 3 devices" in said
    assert "it would fit if they asked for no more than 2 devices" in said


def test_all_containers_of_an_excessive_sum_are_named():
    item = asked(2)
    item["spec"]["containers"] += [{"name": "beside", "resources": {"limits": {IMPLICIT: "1"}}}]
    start = {"name": "first", "resources": {"limits": {GPU: "3"}}}
    item["spec"]["initContainers"] = [start]
    [refusal] = decide_object(item, world()).refusals
    said = f"container main ({GPU}: 2); container beside ({IMPLICIT}: 1); container first ({GPU}: 1) together ask for 4"
    assert refusal.code == "R023"
    for part in said.removesuffix(" together ask for 4").split("; "):
        assert part in str(refusal)
    assert "together ask for 4 devices" in str(refusal)


def test_the_remedy_offers_the_larger_device_plugin_amount():
    for amount, offer in (("4", "no more than 4, which a device plugin hands out"), ("1", "no more than 2 devices")):
        [refusal] = decide_object(asked(5), world(nodes=[plugin("b", amount)])).refusals
        assert refusal.remedy == f"it would fit if container main asked for {offer}"


def test_a_request_within_device_plugin_capacity_is_never_refused():
    sick = plugin("b", "4")
    assert decide_object(asked(5), world(nodes=[sick])).refusals
    sick["status"]["capacity"] = {GPU: "5"}
    assert not decide_object(asked(5), world(nodes=[sick])).refusals


@pytest.mark.parametrize("counts", [[33], [20, 20], [1] * 33], ids=str)
def test_an_extended_resource_serves_at_most_32_devices(counts):
    def asking(*each):
        item = asked(1)
        resources = [{"limits": {GPU: str(count)}} for count in each]
        item["spec"]["containers"] = [{"name": f"c{at}", "resources": one} for at, one in enumerate(resources)]
        return item

    state = world(devices=64)
    [refusal] = decide_object(asking(*counts), state).refusals
    assert refusal.message.endswith(f"for {sum(counts)} devices, and a claim for them can hold at most 32")
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
    item = asked(3, labels=passed.get("labels", {}))
    if "scheduler" in passed:
        item["spec"]["schedulerName"] = passed["scheduler"]
    state = world(classes=passed.get("classes", (CLASS,)), devices=passed.get("devices", 2))
    if "devices" in passed:
        state = msgspec.structs.replace(state, incomplete=frozenset({"ResourceSlice"}))
    assert at_webhook(item, state)["allowed"]


def test_a_workload_is_told_what_its_pods_will_meet():
    template = {"spec": asked(3)["spec"]}
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"template": template},
    }
    state = world()
    [refusal] = decide_object(workload, state).refusals
    assert "[R023]" in str(refusal)
    said = answer(admission.validate(review(workload, resource="deployments", group="apps"), state))
    assert said["allowed"]
    assert said["warnings"][0].startswith("its pods will be refused: the only node could not serve")


def test_an_implicit_name_of_no_class_waits_for_one():
    key = f"{IMPLICIT}.typo"
    [said] = unanswered_requests(asked(1, key), world(), ())
    assert said.detail == f"there is no DeviceClass {DRIVER}.typo: the pod waits until there is one"


# Translated after all


def translates(state, item):
    return bool(decide_object(item, state).templates)


def test_the_bridge_takes_only_pods_of_its_drivers():
    bridge = {"schedulerName": "drawbridge", "drivers": [DRIVER]}
    state = world(bridge=bridge)
    assert translates(state, asked(2))
    assert json.loads(base64.b64decode(at_webhook(asked(2), state)["patch"]))
    assert not translates(world(), asked(2))
    assert not translates(world(bridge=bridge | {"drivers": ["gpu.amd.com"]}), asked(2))


def test_a_fenced_pod_is_warned_unless_the_bridge_claims():
    state = world(bridge=FENCED, rules=[taint_rule(DRIVER)])
    left = asked(1, annotations={"drawbridge.dev/extended-resources": "leave"})
    tainted, warning = at_webhook(left, state)["warnings"]
    assert tainted.startswith("no node can serve this pod now")
    assert f"but bridge.fence keeps kube-scheduler from {DRIVER}" in warning
    left["spec"]["schedulerName"] = "drawbridge"
    assert "warnings" not in at_webhook(left, state)
    assert "warnings" not in at_webhook(asked(1), state)


UNDESCRIBED = "example.com/accelerator"
SHARED = publishing(1)
SHARED["spec"]["devices"][0]["allowMultipleAllocations"] = True


@pytest.mark.parametrize("fenced", ["wanted", "there"])
@pytest.mark.parametrize(
    ("key", "extra"),
    [
        pytest.param(IMPLICIT, {}, id="an implicit name"),
        pytest.param(
            UNDESCRIBED,
            {"classes": [CLASS | {"spec": CLASS["spec"] | {"extendedResourceName": UNDESCRIBED}}]},
            id="a name that no dialect has",
        ),
        pytest.param(GPU, {"slices": SHARED}, id="shared devices"),
    ],
)
def test_a_pod_fenced_from_its_driver_is_warned(key, extra, fenced):
    bridge = {"bridge": FENCED if fenced == "wanted" else FENCED | {"fence": False}}
    state = world(**bridge, **extra, rules=[taint_rule(DRIVER)] if fenced == "there" else ())
    found = [decision for decision in decide_object(asked(1, key), state).decisions if decision.code == "D218"]
    [told] = found
    assert (told.container, told.key) == ("main", key)
    assert told.detail == f"a fence keeps {DRIVER} from scheduler default-scheduler, so no node can serve it"
    assert told.remedy == "set schedulerName: drawbridge on the pod"
    said = at_webhook(asked(1, key), state)
    [warning] = [text for text in said["warnings"] if "a fence keeps" in text]
    assert warning.startswith(f"container main: {key}: {told.detail}")
    assert said["auditAnnotations"]["outcome"] == "left"
    item = asked(1, key)
    workload = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": "ns"},
        "spec": {"template": {"spec": item["spec"]}},
    }
    said = answer(admission.validate(review(workload, resource="deployments", group="apps"), state))
    assert any("a fence keeps" in text for text in said["warnings"])
    item["spec"]["schedulerName"] = "drawbridge"
    assert not [decision for decision in decide_object(item, state).decisions if decision.code]
    assert not any("a fence keeps" in text for text in at_webhook(item, state).get("warnings", ()))
    apart = world(bridge=FENCED | {"fence": False}, **extra)
    assert not [decision for decision in decide_object(asked(1, key), apart).decisions if decision.code]


def test_a_fenced_pod_is_told_that_only_the_plugin_remains():
    state = world(bridge=FENCED, nodes=[plugin("b", "4")])
    [told] = [decision for decision in decide_object(asked(1), state).decisions if decision.code]
    assert told.detail.endswith("so only device plugins serve it")


def test_a_tie_of_nodes_is_named_only_where_a_claim_would_be_made_but_for_it():
    tie = "set which nodes are preferred under `mixed`"
    nodes = [plugin("b", "4")]
    left = decide_object(asked(1), world(nodes=nodes))
    assert [decision.detail for decision in left.decisions] == [
        f"DeviceClass {DRIVER} serves it through extendedResourceName"
    ]
    assert not left.warnings
    [told] = decide_object(asked(1), world(nodes=nodes, extendedResources={"default": "translate"})).decisions
    assert tie in told.detail
    beside = asked(1, annotations={"drawbridge.dev/extended-resources": "translate"})
    [told] = decide_object(beside, world(nodes=nodes)).decisions
    assert tie in told.detail


@pytest.mark.parametrize(
    ("said", "annotation", "done"),
    [
        ({"default": "translate"}, None, True),
        ({"drivers": {DRIVER: "translate"}}, None, True),
        ({"drivers": {DRIVER: "translate"}, "namespaces": {"ns": "leave"}}, None, False),
        ({"namespaces": {"ns": "translate"}}, None, True),
        ({"namespaces": {"ns": "translate"}}, "leave", False),
        ({}, "translate", True),
        ({"default": "translate"}, "Leave", True),
    ],
)
def test_pod_namespace_driver_and_default_say_whether_it_is_translated(said, annotation, done):
    annotations = {"drawbridge.dev/extended-resources": annotation} if annotation else {}
    item = asked(1, annotations=annotations, namespace="ns")
    found = decide_object(item, world(extendedResources=said))
    assert bool(found.templates) is done
    assert bool(found.warnings) is (annotation == "Leave")


def test_a_changed_setting_does_not_affect_running_pods():
    leave, translate = world(), world(extendedResources={"default": "translate"})
    plain = asked(1)
    translated, _ = mutated(plain, translate)
    for state in (leave, translate):
        same = admission.mutate(review(plain, operation="UPDATE", old=plain), state)
        assert "patch" not in answer(same)
        again = admission.mutate(review(plain, operation="UPDATE", old=translated), state)
        assert "/spec/containers/0/resources/limits" in base64.b64decode(answer(again)["patch"]).decode()


def test_an_extended_resource_is_judged_for_the_new_scheduler():
    item = asked(1)
    item["spec"]["containers"] += [
        {"name": "beside", "resources": {"limits": {IMPLICIT: "1"}, "requests": {IMPLICIT: "1"}}}
    ]
    said = at_webhook(item, world(bridge=FENCED, rules=[taint_rule(DRIVER)]))
    assert said["patch"]
    assert "warnings" not in said


@pytest.mark.parametrize("name", [None, 3, ["x"], {}], ids=str)
def test_a_container_name_that_is_no_string_gets_an_answer(name):
    item = asked(1)
    item["spec"]["containers"][0]["name"] = name
    for state in (world(), world(bridge=FENCED)):
        assert at_webhook(item, state)["allowed"]
