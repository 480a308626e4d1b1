"""Driver parameters at the webhook: a parameter that a driver would refuse is a warning where the claim, the template or its pod is asked for."""

import json

import msgspec
import pytest

from dra import wire
from dra.budget import Budget
from dra.objects import DeviceClass, ResourceClaimSpec, claim_spec
from dra.stock.stock import Stock
from dra.validation import CODES
from tests.dra.validation.test_parameters import BAD, GOOD, typed
from tests.webhook.admission.test_decide import (
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
from webhook.admission.judge import parameter_warnings

TEMPLATES = {"resource": "resourceclaimtemplates", "group": "resource.k8s.io"}
CLASSES = {"resource": "deviceclasses", "group": "resource.k8s.io"}
WRONG = typed("GpuConfig", sharin={})
AT = "/devices/config/0/opaque/parameters/sharin"
SAID = f"D702 /spec{AT}: unknown field 'sharin' (did you mean sharing?)"


def devices(driver, *parameters, class_name=GPU, count=1):
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    config = [{"opaque": {"driver": driver, "parameters": parameter}} for parameter in parameters]
    return {"requests": [{"name": "r", "exactly": exactly}], "config": config}


def spec(*parameters, **more):
    return claim_spec(wire.convert({"devices": devices(GPU, *parameters, **more)}, ResourceClaimSpec))


def claimed(*parameters, driver=GPU, **more):
    asked = devices(driver, *parameters, **more)
    return {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": asked}}


def bringing(template="t"):
    item = gpu_pod(limits={})
    item["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimTemplateName": template}]
    return item


def world(mode="enforce", **templates):
    return state(mode=mode, templates={("ns", name): one for name, one in templates.items()})


def given(obj, known, **kwargs):
    return admission.mutate(review(obj), known, **kwargs)


def test_parameters_that_the_driver_would_refuse_are_warned_about():
    outcome = given(bringing(), world(t=spec(WRONG)))
    assert answer(outcome)["allowed"]
    assert answer(outcome)["warnings"] == [f"claim own: {SAID}"]
    assert answer(outcome)["auditAnnotations"] == {"outcome": "warned", "mode": "enforce"}
    assert applied(bringing(), outcome) == bringing()


@pytest.mark.parametrize("parameters", [(), (typed("GpuConfig"),)])
def test_a_pod_whose_parameters_are_fine_hears_nothing(parameters):
    assert answer(given(bringing(), world(t=spec(*parameters)))) == {"uid": "u", "allowed": True}


def test_a_setting_dependent_on_driver_options_causes_no_warning():
    shared = typed("GpuConfig", sharing={"strategy": "MPS"})
    assert answer(given(bringing(), world(t=spec(shared)))) == {"uid": "u", "allowed": True}


def test_where_nothing_is_to_be_said_nothing_is():
    told = given(bringing(), world("observe", t=spec(WRONG)))
    assert "warnings" not in answer(told)
    assert told.record.problems == (f"claim own: {SAID}",)


def test_a_refusal_stays_one_beside_warnings():
    outcome = given(bringing(), world(t=spec(WRONG, count=16)))
    assert not answer(outcome)["allowed"]
    assert answer(outcome)["warnings"] == [f"claim own: {SAID}"]


def test_bad_parameters_are_warned_about_on_claims_and_templates():
    told = answer(validated(claimed(WRONG), **claim_request()))
    assert told["allowed"]
    assert told["warnings"] == [SAID]
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": "t"}, "spec": {"spec": claimed(WRONG)["spec"]}}
    told = answer(validated(template, **TEMPLATES))
    assert told["allowed"]
    assert told["warnings"] == [SAID.replace("/spec", "/spec/spec", 1)]


def test_a_class_hears_it_when_it_is_written():
    config = [{"opaque": {"driver": GPU, "parameters": WRONG}}]
    class_ = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": {"config": config}}  # fmt: skip
    told = answer(validated(class_, **CLASSES))
    assert told["allowed"]
    assert told["warnings"] == ["D702 /spec/config/0/opaque/parameters/sharin: unknown field 'sharin' (did you mean sharing?)"]  # fmt: skip


def test_classes_that_the_webhook_knows_tell_a_strategy_for_other_devices():
    mig = f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'mig'"
    class_ = wire.convert(
        {"metadata": {"name": "mig"}, "spec": {"selectors": [{"cel": {"expression": mig}}]}}, DeviceClass
    )
    stock = Stock.of(slices=[SLICE], classes=[CLASS, class_], nodes=[NODE])
    asked = spec(typed("GpuConfig", sharing={"strategy": "MPS"}), class_name="mig")
    told = parameter_warnings(asked.devices, "/spec/devices", state(stock=stock), Budget())
    assert [text[:4] for text in told] == ["D705"]
    assert not parameter_warnings(asked.devices, "/spec/devices", state(stock=None), Budget())


@pytest.mark.parametrize("name", GOOD)
def test_every_good_entry_passes_in_silence(name):
    driver, _, parameters = GOOD[name]
    asked = claimed(parameters, driver=driver)
    known = msgspec.structs.replace(ENFORCE, stock=None)
    assert "warnings" not in answer(validated(asked, known, **claim_request()))


@pytest.mark.parametrize(("driver", "_", "parameters", "code", "where"), BAD)
def test_every_bad_entry_is_admitted_with_its_warning(driver, _, parameters, code, where):
    known = msgspec.structs.replace(ENFORCE, stock=None)
    told = answer(validated(claimed(parameters, driver=driver), known, **claim_request()))
    assert told["allowed"]
    if code == "D705" or CODES[code].severity.value != "warning":  # needs classes; is information
        assert "warnings" not in told
        return
    start = f"{code} /spec/devices/config/0/opaque/parameters{where}: "
    assert [text[: len(start)] for text in told["warnings"]] == [start]


def test_no_time_for_parameters_takes_no_verdict_away():
    full = [typed("GpuConfig", **{f"x{number}": number for number in range(500)}) for _ in range(32)]
    asked = spec(*full, count=16)
    assert not parameter_warnings(asked.devices, "", ENFORCE, Budget(1_000))
    assert parameter_warnings(asked.devices, "", ENFORCE, Budget(1_000_000))
    many = spec(*full, *full, *full, count=16)  # more than the API server takes
    outcome = given(bringing(), world(t=many))
    assert not answer(outcome)["allowed"]
    assert not [text for text in answer(outcome).get("warnings", ()) if "D702" in text]


def test_a_channel_of_no_domain_is_told_although_there_is_no_entry_at_all():
    known = msgspec.structs.replace(ENFORCE, stock=None)
    asked = claimed(class_name="compute-domain-default-channel.nvidia.com")
    [text] = answer(validated(asked, known, **claim_request()))["warnings"]
    assert text.startswith("D710 /spec/devices/requests/0: no ComputeDomainChannelConfig says")


def test_files_are_told_the_same():
    item = bringing() | {"metadata": {"name": "p", "namespace": "ns"}}
    told = decide_object(item, world(t=spec(WRONG)))
    assert told.warnings == (f"claim own: {SAID}",)
    assert not told.refusals


def test_parameters_of_an_unknown_driver_are_not_validated():
    asked = {"anything": [1, {"at": "all"}]}
    told = answer(
        validated(
            claimed(asked, driver="gpu.example.com"), msgspec.structs.replace(ENFORCE, stock=None), **claim_request()
        )
    )
    assert json.dumps(told) == json.dumps({"uid": "u", "allowed": True})
