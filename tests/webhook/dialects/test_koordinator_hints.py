"""Koordinator's device hints: strategies, virtual functions and label selectors."""

import pytest

from dra import cel, wire
from dra.objects import Device
from tests.webhook.dialects.koordinator_pods import BOTH, HINT, JOINT, PARTITION, detail, koordinator, koordinator_pod
from tests.webhook.pods import KOORD, devices, exactly, outcomes, pod, refused, untouched, verdict_of


def test_apply_for_all_takes_all_matching_devices():
    done = koordinator({"rdma": 1}, hints={HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}})
    (request,) = devices(done)["requests"]
    assert request["exactly"] == {"deviceClassName": "dranet", "allocationMode": "All"}


def test_apply_for_all_has_no_effect_on_several_whole_devices():
    done = koordinator({"rdma": 200}, hints={HINT: {"rdma": {"allocateStrategy": "ApplyForAll"}}})
    assert exactly(done) == [{"class": "dranet", "count": 2}]


@pytest.mark.parametrize(("policy", "outcome"), [("DeviceLevel", "translated"), ("", "approximated")])
def test_requests_as_count_is_a_plain_count(policy, outcome):
    hint = {"rdma": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": policy}}
    done = koordinator({"rdma": 3}, hints={HINT: hint})
    assert exactly(done) == [{"class": "dranet", "count": 3}]
    assert outcomes(done)[KOORD + "rdma"] == outcome


def test_a_virtual_function_can_be_requested():
    done = koordinator({"rdma": 100}, hints={HINT: {"rdma": {"vfSelector": {}}}})
    assert exactly(done) == [
        {"class": "dranet", "count": 1, "cel": ['device.attributes["dra.net"].?isSriovVf.orValue(false)']}
    ]


@pytest.mark.parametrize(("kind", "selector"), [("rdma", "vfSelector"), ("rdma", "selector"), ("gpu", "selector")])
def test_a_label_without_an_attribute_is_left(kind, selector):
    hint = {kind: {selector: {"matchLabels": {"a": "b"}}}}
    done = koordinator({kind: 100}, hints={HINT: hint}, config=LABELS)
    assert untouched(done)
    assert "koordinator.deviceLabels" in detail(done, HINT)


LABELS = {"koordinator": {"deviceLabels": {"type": "nic.example.com/model", "room": "nic.example.com/in"}}}
IN = '("model" in device.attributes["nic.example.com"] && device.attributes["nic.example.com"]["model"] in ["fast","slow"])'  # fmt: skip


@pytest.mark.parametrize(
    ("operator", "values", "text"),
    [
        ("In", ["fast", "slow"], IN),
        ("NotIn", ["fast", "slow"], f"!{IN}"),
        ("Exists", [], '"model" in device.attributes["nic.example.com"]'),
        ("DoesNotExist", [], '!("model" in device.attributes["nic.example.com"])'),
    ],
)
def test_a_label_selector_becomes_a_selector_on_the_declared_attribute(operator, values, text):
    selector = {"matchExpressions": [{"key": "type", "operator": operator, "values": values}]}
    done = koordinator({"rdma": 100}, hints={HINT: {"rdma": {"selector": selector}}}, config=LABELS)
    (request,) = exactly(done)
    assert [part.replace(", ", ",") for part in request["cel"]] == [text]
    labels = {"spec": "a", "fast": "fast", "slow": "slow", "": None}
    matching = {name for name, model in labels.items() if has_model(request["cel"][0], model)}
    expected = {"In": {"fast", "slow"}, "NotIn": {"spec", ""}, "Exists": {"spec", "fast", "slow"}, "DoesNotExist": {""}}
    assert matching == expected[operator]


def has_model(text, model):
    attributes = {} if model is None else {"model": {"string": model}}
    device = wire.convert({"name": "d", "attributes": attributes}, Device)
    return cel.compile(text, cel.NEW).matches(cel.view_of("nic.example.com", device))


def test_selector_and_vf_selector_labels_are_both_requested():
    both = {"selector": {"matchLabels": {"type": "fast"}}, "vfSelector": {"matchLabels": {"room": "b"}}}
    (request,) = exactly(koordinator({"rdma": 100}, hints={HINT: {"rdma": both}}, config=LABELS))
    assert request["cel"][0].endswith("isSriovVf.orValue(false)")
    assert [part in request["cel"][1] for part in ('["model"] in', '["in"] in')] == [True, True]
    (request,) = exactly(
        koordinator({"gpu": 100}, hints={HINT: {"gpu": {"selector": both["selector"]}}}, config=LABELS)
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
        assert refused(koordinator({"rdma": 100}, hints={HINT: {"rdma": {name: selector}}}, config=LABELS))


def test_a_label_selector_too_large_for_a_claim_is_left():
    values = [f"value-{number}" for number in range(1_000)]
    selector = {"matchExpressions": [{"key": "type", "operator": "In", "values": values}]}
    assert untouched(koordinator({"rdma": 100}, hints={HINT: {"rdma": {"selector": selector}}}, config=LABELS))


def test_an_attribute_of_a_label_has_a_full_name():
    with pytest.raises(AssertionError, match=r"deviceLabels/type.*domain and a name"):
        verdict_of(koordinator_pod({"gpu": 100}), koordinator={"deviceLabels": {"type": "model"}})


@pytest.mark.parametrize("key", [KOORD + "fpga", "huawei.com/npu-core"])
def test_devices_without_a_driver_are_left(key):
    assert untouched(verdict_of(pod({key: 100, KOORD + "gpu": 100})))


@pytest.mark.parametrize("key", [JOINT, HINT, PARTITION])
def test_malformed_annotations_are_refused(key):
    assert refused(verdict_of(pod({KOORD + "gpu": 100}, annotations={key: "{"})))
    assert refused(verdict_of(pod({KOORD + "gpu": 100}, annotations={key: "[1]"})))


@pytest.mark.parametrize(
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
        (BOTH, {"gpu": {"exclusivePolicy": "DeviceLevel"}}, "approximated", "exclusivePolicy is lost"),
        ({"gpu": 100}, {"rdma": {"vfSelector": {}}}, "translated", "the pod requests nothing of type rdma"),
    ],
)
def test_every_part_of_a_hint_is_reported(limits, hint, outcome, words):
    done = koordinator(limits, hints={HINT: hint})
    assert outcomes(done)[HINT] == outcome
    assert words in detail(done, HINT)
