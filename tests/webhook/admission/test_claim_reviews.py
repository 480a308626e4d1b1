"""Validation of claims, pods, workloads, compatibility rules and slices."""

import sys

import msgspec
import pytest

from tests.objects import RESOURCE_API, obj
from tests.webhook.admission.reviews import (
    ENFORCE,
    GPU,
    answer,
    claim_request,
    gpu_claim,
    gpu_pod,
    limited_workload,
    mutated,
    review,
    state,
    untouched,
    validated,
)
from webhook.admission import decide_review
from webhook.state.features import Features
from webhook.translate.verdict import PodVerdict, merge


def test_a_claim_that_fits_gets_no_warning():
    assert untouched(validated(gpu_claim(), **claim_request()))


def test_the_refusal_of_a_claim_mentions_no_pod():
    message = answer(validated(gpu_claim(count=9), **claim_request()))["status"]["message"]
    assert "cannot serve this claim" in message
    assert "pod" not in message


def test_a_missing_class_is_refused_with_the_existing_classes():
    response = answer(validated(gpu_claim("gpu.example.com"), **claim_request()))
    assert not response["allowed"]
    assert "DeviceClass gpu.example.com does not exist" in response["status"]["message"]
    assert GPU in response["status"]["message"]


def test_no_claim_is_refused_while_devices_are_unknown():
    assert untouched(validated(gpu_claim("gpu.example.com"), state(stock=None), **claim_request()))


def test_a_translated_pod_is_admitted_without_a_warning():
    pod, _ = mutated(gpu_pod())
    assert untouched(validated(pod))


def test_templates_with_an_invalid_signature_are_ignored():
    pod, _ = mutated(gpu_pod())
    annotations = pod["metadata"]["annotations"]
    annotations["drawbridge.dev/templates"] = annotations["drawbridge.dev/templates"].replace('"count":1', '"count":4')
    response = answer(validated(pod))
    assert response["allowed"]
    assert any("was not written by this installation" in warning for warning in response["warnings"])


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_a_workload_gets_a_warning_and_is_never_refused(kind):
    group, plural = ("batch", "cronjobs") if kind == "CronJob" else ("apps", "deployments")
    invalid = limited_workload(kind, **{"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1500m"})
    response = answer(validated(invalid, resource=plural, group=group))
    assert response["allowed"]
    assert "its pods will be refused" in response["warnings"][0]
    valid = limited_workload(kind, **{"nvidia.com/gpu": "1"})
    assert untouched(validated(valid, resource=plural, group=group))


def test_a_workload_with_one_undecided_template_is_undecided(monkeypatch):
    """So it is decided again, with a larger budget."""
    verdict = merge([PodVerdict(), PodVerdict(is_undecided=True)])
    monkeypatch.setattr(sys.modules["webhook.admission.review"], "decide_object", lambda *_, **__: verdict)
    body = review(limited_workload(**{"nvidia.com/gpu": "1"}), resource="deployments", group="apps")
    assert decide_review("validate", body, state()).record.outcome == "undecided"


# Refusals


# Compatibility rules and slices


def compatibility(**spec):
    return obj("DeviceCompatibility", "c", "drawbridge.dev/v1alpha1", **spec)


def test_a_compatibility_rule_that_does_not_compile_is_refused():
    rule = compatibility(driver=GPU, compatibleOnlyWith="device.driver = 'x'")
    response = answer(validated(rule, resource="devicecompatibilities", group="drawbridge.dev", namespace=""))
    assert not response["allowed"]
    assert "/spec/compatibleOnlyWith" in response["status"]["message"]


def test_an_invalid_slice_gets_a_warning_and_is_never_refused():
    slice_ = obj("ResourceSlice", "s", RESOURCE_API, driver="UPPER")
    response = answer(validated(slice_, resource="resourceslices", group="resource.k8s.io", namespace=""))
    assert response["allowed"]
    assert response["warnings"]


@pytest.mark.parametrize(("minor", "is_accepted"), [(37, False), (38, True)])
def test_a_compatibility_rule_is_judged_by_the_rules_of_the_server(minor, is_accepted):
    rule = compatibility(driver=GPU, compatibleOnlyWith="type(device.driver) == string")
    review_of_rule = {"resource": "devicecompatibilities", "group": "drawbridge.dev", "namespace": ""}
    server_state = msgspec.structs.replace(ENFORCE, features=Features(minor=minor))
    assert answer(validated(rule, server_state, **review_of_rule))["allowed"] == is_accepted
