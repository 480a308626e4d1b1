"""Extended resources with the bridge (drawbridge's allocator): which pods are translated, and warnings about the fence.

The fence is a taint that keeps other schedulers from the devices of the bridge's drivers.
"""

import base64
import json

import pytest

from tests.webhook.admission.extended_resources import (
    CLASS,
    DRIVER,
    FENCED,
    GPU,
    IMPLICIT,
    gpu_slice,
    plugin_node,
    pod_requesting,
    webhook_response,
    world,
)
from tests.webhook.admission.reviews import answer, mutated, review
from webhook.admission import decide_object
from webhook.admission import review as admission
from webhook.claims import taint_rule


def translates(state, item):
    return bool(decide_object(item, state).templates)


def test_only_pods_of_the_drivers_of_the_bridge_are_translated():
    bridge = {"schedulerName": "drawbridge", "drivers": [DRIVER]}
    state = world(bridge=bridge)
    assert translates(state, pod_requesting(2))
    assert json.loads(base64.b64decode(webhook_response(pod_requesting(2), state)["patch"]))
    assert not translates(world(), pod_requesting(2))
    assert not translates(world(bridge=bridge | {"drivers": ["gpu.amd.com"]}), pod_requesting(2))


def test_a_pod_of_another_scheduler_is_warned_of_the_fence():
    state = world(bridge=FENCED, rules=[taint_rule(DRIVER)])
    untranslated = pod_requesting(1, annotations={"drawbridge.dev/extended-resources": "leave"})
    tainted, warning = webhook_response(untranslated, state)["warnings"]
    assert tainted.startswith("no node can serve this pod now")
    assert f"but `bridge.fence` reserves the devices of {DRIVER} for another scheduler" in warning
    untranslated["spec"]["schedulerName"] = "drawbridge"
    assert "warnings" not in webhook_response(untranslated, state)
    assert "warnings" not in webhook_response(pod_requesting(1), state)


# No dialect (a table of the keys of one system) has this key.
UNDESCRIBED = "example.com/accelerator"
SHARED = gpu_slice(1)
SHARED["spec"]["devices"][0]["allowMultipleAllocations"] = True


@pytest.mark.parametrize("fence", ["configured", "existing"])
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
def test_a_pod_behind_a_fence_gets_a_warning(key, extra, fence):
    bridge = {"bridge": FENCED if fence == "configured" else FENCED | {"fence": False}}
    state = world(**bridge, **extra, rules=[taint_rule(DRIVER)] if fence == "existing" else ())
    [decision] = [found for found in decide_object(pod_requesting(1, key), state).decisions if found.code == "D218"]
    assert (decision.container, decision.key) == ("main", key)
    cause = f"a fence keeps the devices of {DRIVER} from scheduler default-scheduler"
    assert decision.detail == f"{cause}, so no node can serve this request"
    assert decision.remedy == "set schedulerName: drawbridge on the pod"
    response = webhook_response(pod_requesting(1, key), state)
    [warning] = [text for text in response["warnings"] if "a fence keeps" in text]
    assert warning.startswith(f"container main: {key}: {decision.detail}")
    assert response["auditAnnotations"]["outcome"] == "left"
    item = pod_requesting(1, key)
    item["spec"]["schedulerName"] = "drawbridge"
    assert not [decision for decision in decide_object(item, state).decisions if decision.code]
    assert not any("a fence keeps" in text for text in webhook_response(item, state).get("warnings", ()))
    unfenced_state = world(bridge=FENCED | {"fence": False}, **extra)
    assert not [
        decision for decision in decide_object(pod_requesting(1, key), unfenced_state).decisions if decision.code
    ]


def test_a_warning_about_the_fence_names_the_remaining_device_plugins():
    state = world(bridge=FENCED, nodes=[plugin_node("b", "4")])
    [decision] = [decision for decision in decide_object(pod_requesting(1), state).decisions if decision.code]
    assert decision.detail.endswith("so only device plugins can serve this request")


@pytest.mark.parametrize(
    ("policy", "annotation", "is_translated"),
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
def test_translation_depends_on_pod_namespace_driver_and_default(policy, annotation, is_translated):
    annotations = {"drawbridge.dev/extended-resources": annotation} if annotation else {}
    item = pod_requesting(1, annotations=annotations, namespace="ns")
    verdict = decide_object(item, world(extendedResources=policy))
    assert bool(verdict.templates) is is_translated
    assert bool(verdict.warnings) is (annotation == "Leave")


def test_a_changed_setting_does_not_affect_running_pods():
    leave, translate = world(), world(extendedResources={"default": "translate"})
    plain = pod_requesting(1)
    translated, _ = mutated(plain, translate)
    for state in (leave, translate):
        outcome_of_plain = admission.decide_review("mutate", review(plain, operation="UPDATE", old=plain), state)
        assert "patch" not in answer(outcome_of_plain)
        outcome_of_translated = admission.decide_review(
            "mutate", review(plain, operation="UPDATE", old=translated), state
        )
        assert (
            "/spec/containers/0/resources/limits" in base64.b64decode(answer(outcome_of_translated)["patch"]).decode()
        )


def test_an_implicit_name_is_judged_for_the_translated_pods_scheduler():
    item = pod_requesting(1)
    item["spec"]["containers"] += [
        {"name": "beside", "resources": {"limits": {IMPLICIT: "1"}, "requests": {IMPLICIT: "1"}}}
    ]
    response = webhook_response(item, world(bridge=FENCED, rules=[taint_rule(DRIVER)]))
    assert response["patch"]
    assert "warnings" not in response
