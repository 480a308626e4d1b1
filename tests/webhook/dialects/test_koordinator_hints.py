"""Koordinator's device hints: strategies, virtual functions and label selectors."""

import pytest

from dra import cel, wire
from dra.objects import Device
from tests.loops import every
from tests.webhook.dialects.koordinator_pods import (
    CORE_AND_MEMORY,
    HINT,
    JOINT,
    PARTITION,
    details_about,
    koordinator_pod,
    koordinator_verdict,
)
from tests.webhook.pods import KOORD, devices, exactly, outcomes, pod, refused, untouched, verdict_of


def test_apply_for_all_requests_all_matching_devices():
    verdict = koordinator_verdict({"rdma": 1}, hints={HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}})
    (request,) = devices(verdict)["requests"]
    assert request["exactly"] == {"deviceClassName": "dranet", "allocationMode": "All"}


def test_apply_for_all_has_no_effect_on_several_whole_devices():
    verdict = koordinator_verdict({"rdma": 200}, hints={HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}})
    assert exactly(verdict) == [{"class": "dranet", "count": 2}]


@pytest.mark.parametrize(("policy", "outcome"), [("DeviceLevel", "translated"), ("", "approximated")])
def test_requests_as_count_requests_a_number_of_devices(policy, outcome):
    hint = {"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": policy}}
    verdict = koordinator_verdict({"rdma": 3}, hints={HINT: hint})
    assert exactly(verdict) == [{"class": "dranet", "count": 3}]
    assert outcomes(verdict)[KOORD + "rdma"] == outcome


def test_a_virtual_function_can_be_requested():
    verdict = koordinator_verdict({"rdma": 100}, hints={HINT: {"rdma": {"vfSelector": {}}}})
    assert exactly(verdict) == [
        {"class": "dranet", "count": 1, "cel": ['device.attributes["dra.net"].?isSriovVf.orValue(false)']}
    ]


@pytest.mark.parametrize(("kind", "selector"), [("rdma", "vfSelector"), ("rdma", "selector"), ("gpu", "selector")])
def test_a_label_without_an_attribute_is_left_unchanged(kind, selector):
    hint = {kind: {selector: {"matchLabels": {"a": "b"}}}}
    verdict = koordinator_verdict({kind: 100}, hints={HINT: hint}, config=LABEL_ATTRIBUTES)
    assert untouched(verdict)
    assert "koordinator.deviceLabels" in details_about(verdict, HINT)


LABEL_ATTRIBUTES = {"koordinator": {"deviceLabels": {"type": "nic.example.com/model", "room": "nic.example.com/in"}}}
IN_EXPRESSION = '("model" in device.attributes["nic.example.com"] && device.attributes["nic.example.com"]["model"] in ["fast","slow"])'  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "values", "text"),
    [
        ("In", ["fast", "slow"], IN_EXPRESSION),
        ("NotIn", ["fast", "slow"], f"!{IN_EXPRESSION}"),
        ("Exists", [], '"model" in device.attributes["nic.example.com"]'),
        ("DoesNotExist", [], '!("model" in device.attributes["nic.example.com"])'),
    ],
)
def test_a_label_selector_becomes_a_selector_on_the_declared_attribute(operator, values, text):
    selector = {"matchExpressions": [{"key": "type", "operator": operator, "values": values}]}
    verdict = koordinator_verdict(
        {"rdma": 100}, hints={HINT: {"rdma": {"selector": selector}}}, config=LABEL_ATTRIBUTES
    )
    (request,) = exactly(verdict)
    assert [part.replace(", ", ",") for part in request["cel"]] == [text]
    models = {"other": "a", "fast": "fast", "slow": "slow", "without": None}
    matching = {name for name, model in models.items() if matches_model(request["cel"][0], model)}
    expected = {
        "In": {"fast", "slow"},
        "NotIn": {"other", "without"},
        "Exists": {"other", "fast", "slow"},
        "DoesNotExist": {"without"},
    }
    assert matching == expected[operator]


def matches_model(text, model):
    """Return whether a CEL expression matches a device with this model; None is no model attribute."""
    attributes = {} if model is None else {"model": {"string": model}}
    device = wire.convert({"name": "d", "attributes": attributes}, Device)
    return cel.compile(text, cel.NEW).matches(cel.view_of("nic.example.com", device))


def test_selector_and_vf_selector_labels_are_both_requested():
    selectors = {"selector": {"matchLabels": {"type": "fast"}}, "vfSelector": {"matchLabels": {"room": "b"}}}
    (request,) = exactly(koordinator_verdict({"rdma": 100}, hints={HINT: {"rdma": selectors}}, config=LABEL_ATTRIBUTES))
    assert request["cel"][0].endswith("isSriovVf.orValue(false)")
    assert [part in request["cel"][1] for part in ('["model"] in', '["in"] in')] == [True, True]
    (request,) = exactly(
        koordinator_verdict(
            {"gpu": 100}, hints={HINT: {"gpu": {"selector": selectors["selector"]}}}, config=LABEL_ATTRIBUTES
        )
    )
    assert '["model"] in ["fast"]' in request["cel"][0]


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": []},
        {"matchLabels": {"type": 1}},
        {"matchExpressions": [{"key": "type", "operator": "in", "values": ["a"]}]},
        {"matchExpressions": [{"key": "type", "operator": "In"}]},
        {"matchExpressions": [{"key": "type", "operator": "Exists", "values": ["a"]}]},
    ],
)
def test_a_malformed_label_selector_is_refused(selector):
    for name in ("selector", "vfSelector"):
        assert refused(
            koordinator_verdict({"rdma": 100}, hints={HINT: {"rdma": {name: selector}}}, config=LABEL_ATTRIBUTES)
        )


def test_a_label_selector_too_large_for_claims_stays():
    values = [f"value-{number}" for number in range(1_000)]
    selector = {"matchExpressions": [{"key": "type", "operator": "In", "values": values}]}
    assert untouched(
        koordinator_verdict({"rdma": 100}, hints={HINT: {"rdma": {"selector": selector}}}, config=LABEL_ATTRIBUTES)
    )


def test_a_device_label_needs_an_attribute_with_a_domain():
    with pytest.raises(AssertionError, match=r"deviceLabels/type.*domain and a name"):
        verdict_of(koordinator_pod({"gpu": 100}), koordinator={"deviceLabels": {"type": "model"}})


@pytest.mark.parametrize("key", [JOINT, HINT, PARTITION])
def test_malformed_annotations_are_refused(key):
    assert refused(verdict_of(pod({KOORD + "gpu": 100}, annotations={key: "{"})))
    assert refused(verdict_of(pod({KOORD + "gpu": 100}, annotations={key: "[1]"})))


@every(
    ("limits", "hint", "outcome", "words"),
    [
        ({"rdma": 100}, {"rdma": {"vfSelector": {}}}, "translated", "virtual functions only"),
        ({"rdma": 100}, {"rdma": {"exclusivePolicy": "DeviceLevel"}}, "translated", "rdma.exclusivePolicy holds"),
        ({"rdma": 100}, {"rdma": {"exclusivePolicy": "PCIeLevel"}}, "translated", "PCIeLevel has no effect"),
        ({"rdma": 100}, {"rdma": {"requiredTopologyScope": "PCIe"}}, "translated", "rdma.requiredTopologyScope has no"),
        ({"rdma": 200}, {"rdma": {"allocateStrategy": "ApplyForAll"}}, "translated", "rdma.allocateStrategy has no"),
        ({"gpu": 100}, {"gpu": {"allocateStrategy": "ApplyForAll"}}, "translated", "gpu.allocateStrategy has no"),
        ({"gpu": 100}, {"gpu": {"requiredTopologyScope": "PCIe"}}, "translated", "requiredTopologyScope PCIe holds"),
        ({"gpu": 200}, {"gpu": {"requiredTopologyScope": "Node"}}, "translated", "requiredTopologyScope Node holds"),
        ({"gpu": 200}, {"gpu": {"requiredTopologyScope": "Device"}}, "approximated", "Device is lost"),
        ({"gpu": 100}, {"gpu": {"exclusivePolicy": "DeviceLevel"}}, "translated", "gpu.exclusivePolicy holds"),
        (CORE_AND_MEMORY, {"gpu": {"exclusivePolicy": "DeviceLevel"}}, "approximated", "exclusivePolicy is lost"),
        ({"gpu": 100}, {"rdma": {"vfSelector": {}}}, "translated", "the pod requests nothing of type rdma"),
    ],
)
def test_every_part_of_a_hint_is_reported(limits, hint, outcome, words):
    verdict = koordinator_verdict(limits, hints={HINT: hint})
    assert outcomes(verdict)[HINT] == outcome
    assert words in details_about(verdict, HINT)
