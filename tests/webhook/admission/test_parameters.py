"""Driver parameters at the webhook: a claim, a template or a pod with an invalid parameter gets a warning."""

import pytest

from dra import wire
from dra.budget import Budget
from dra.objects import DeviceClass, ResourceClaimSpec, claim_spec
from dra.stock.stock import Stock
from tests.dra.validation.driver_parameters import typed
from tests.webhook.admission.reviews import (
    CLASS,
    ENFORCE,
    GPU,
    NODE,
    SLICE,
    answer,
    applied,
    claim_request,
    gpu_pod,
    review,
    state,
    validated,
)
from webhook.admission import decide_object
from webhook.admission import review as admission
from webhook.placement.judge import parameter_warnings

TEMPLATE_REVIEW = {"resource": "resourceclaimtemplates", "group": "resource.k8s.io"}
CLASS_REVIEW = {"resource": "deviceclasses", "group": "resource.k8s.io"}
WRONG_PARAMETERS = typed("GpuConfig", sharin={})
PATH = "/devices/config/0/opaque/parameters/sharin"
MESSAGE = f"D702 /spec{PATH}: unknown field 'sharin' (did you mean sharing?)"


def devices(driver, *parameters, class_name=GPU, count=1):
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    config = [{"opaque": {"driver": driver, "parameters": parameter}} for parameter in parameters]
    return {"requests": [{"name": "r", "exactly": exactly}], "config": config}


def spec(*parameters, **options):
    return claim_spec(wire.convert({"devices": devices(GPU, *parameters, **options)}, ResourceClaimSpec))


def claim_with_parameters(*parameters, driver=GPU, **options):
    requested_devices = devices(driver, *parameters, **options)
    return {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": requested_devices}}


def pod_with_own_claim(template="t"):
    item = gpu_pod(limits={})
    item["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": template}]
    return item


def world(mode="enforce", **templates):
    return state(mode=mode, templates={("ns", name): template for name, template in templates.items()})


def decided(obj, state_, **kwargs):
    return admission.decide_review("mutate", review(obj), state_, **kwargs)


def test_parameters_that_the_driver_would_refuse_are_warned_about():
    outcome = decided(pod_with_own_claim(), world(t=spec(WRONG_PARAMETERS)))
    assert answer(outcome)["allowed"]
    assert answer(outcome)["warnings"] == [f"claim own: {MESSAGE}"]
    assert answer(outcome)["auditAnnotations"] == {"outcome": "warned", "mode": "enforce"}
    assert applied(pod_with_own_claim(), outcome) == pod_with_own_claim()


@pytest.mark.parametrize("parameters", [(), (typed("GpuConfig"),)])
def test_a_pod_with_valid_parameters_gets_no_warning(parameters):
    assert answer(decided(pod_with_own_claim(), world(t=spec(*parameters)))) == {"uid": "u", "allowed": True}


def test_a_setting_dependent_on_driver_options_causes_no_warning():
    shared = typed("GpuConfig", sharing={"strategy": "MPS"})
    assert answer(decided(pod_with_own_claim(), world(t=spec(shared)))) == {"uid": "u", "allowed": True}


def test_observe_mode_records_bad_parameters_without_a_warning():
    outcome = decided(pod_with_own_claim(), world("observe", t=spec(WRONG_PARAMETERS)))
    assert "warnings" not in answer(outcome)
    assert outcome.record.problems == (f"claim own: {MESSAGE}",)


def test_a_warning_about_parameters_does_not_replace_the_refusal():
    outcome = decided(pod_with_own_claim(), world(t=spec(WRONG_PARAMETERS, count=16)))
    assert not answer(outcome)["allowed"]
    assert answer(outcome)["warnings"] == [f"claim own: {MESSAGE}"]


def test_bad_parameters_are_warned_about_on_claims_and_templates():
    response = answer(validated(claim_with_parameters(WRONG_PARAMETERS), **claim_request()))
    assert response["allowed"]
    assert response["warnings"] == [MESSAGE]
    template = {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": {"spec": claim_with_parameters(WRONG_PARAMETERS)["spec"]},
    }
    response = answer(validated(template, **TEMPLATE_REVIEW))
    assert response["allowed"]
    assert response["warnings"] == [MESSAGE.replace("/spec", "/spec/spec", 1)]


def test_bad_parameters_are_warned_about_on_classes():
    config = [{"opaque": {"driver": GPU, "parameters": WRONG_PARAMETERS}}]
    class_ = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {"config": config}}  # fmt: skip
    response = answer(validated(class_, **CLASS_REVIEW))
    assert response["allowed"]
    assert response["warnings"] == ["D702 /spec/config/0/opaque/parameters/sharin: unknown field 'sharin' (did you mean sharing?)"]  # fmt: skip


def test_a_strategy_unsuitable_for_a_known_class_is_warned_about():
    mig = f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'mig'"
    class_ = wire.convert(
        {"metadata": {"name": "mig"}, "spec": {"selectors": [{"cel": {"expression": mig}}]}}, DeviceClass
    )
    stock = Stock.of(slices=[SLICE], classes=[CLASS, class_], nodes=[NODE])
    mps_spec = spec(typed("GpuConfig", sharing={"strategy": "MPS"}), class_name="mig")
    warnings = parameter_warnings(mps_spec.devices, "/spec/devices", state(stock=stock), Budget())
    assert [text[:4] for text in warnings] == ["D705"]
    assert not parameter_warnings(mps_spec.devices, "/spec/devices", state(stock=None), Budget())


def test_a_timeout_in_parameter_checks_keeps_the_verdict():
    entries = [typed("GpuConfig", **{f"x{number}": number for number in range(500)}) for _ in range(32)]
    long_spec = spec(*entries, count=16)
    assert not parameter_warnings(long_spec.devices, "", ENFORCE, Budget(1_000))
    assert parameter_warnings(long_spec.devices, "", ENFORCE, Budget(1_000_000))
    claim_of_too_many_entries = spec(*entries, *entries, *entries, count=16)  # more than the API server accepts
    outcome = decided(pod_with_own_claim(), world(t=claim_of_too_many_entries))
    assert not answer(outcome)["allowed"]
    assert not [text for text in answer(outcome).get("warnings", ()) if "D702" in text]


def test_files_get_the_same_parameter_warnings():
    item = pod_with_own_claim() | {"metadata": {"name": "p", "namespace": "ns"}}
    verdict = decide_object(item, world(t=spec(WRONG_PARAMETERS)))
    assert verdict.warnings == (f"claim own: {MESSAGE}",)
    assert not verdict.refusals
