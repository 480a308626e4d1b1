"""`compatibleOnlyWith` in a ResourceSlice is reported with an equivalent DeviceCompatibility."""

import json

import pytest

from cluster import manifests
from dra.cel import compile as compile_selector
from dra.cel import view_of
from dra.objects import DeviceCompatibility, ResourceSlice
from dra.policy import Rules
from dra.stock import Stock
from dra.validation import review
from dra.wire import convert
from tests.dra.samples import DRIVER, node
from tests.dra.validation.manifests import codes, codes_and_paths, slice_

MODE = f'device.attributes["{DRIVER}"].mode'
HARDWARE = f'{MODE} == "hardware"'


def device(name, rule="", **attributes):
    kinds = {str: "string", int: "int", bool: "bool"}
    published = ", ".join(f"{key}: {{{kinds[type(value)]}: {json.dumps(value)}}}" for key, value in attributes.items())
    inline = f", compatibleOnlyWith: {{expression: '{rule}'}}" if rule else ""
    return f"  - {{name: {name}, attributes: {{{published}}}{inline}}}"


def inline_findings(*devices, **fields):
    [document] = manifests.parse(slice_(devices="\n".join(devices), **fields))
    findings = [finding for finding in review([document.object])[0] if finding.code == "D506"]
    return document.object, findings


def object_in_remedy(finding):
    start = "apply this instead: "
    assert finding.remedy.startswith(start)
    return json.loads(finding.remedy.removeprefix(start))


PROPOSAL = (  # the two patterns of the proposal on one GPU, and a device of another GPU
    device("full", f'device.attributes["{DRIVER}"].gpu != "dev-0"', mode="full", gpu="dev-0"),
    device("part-0", HARDWARE, mode="hardware", gpu="dev-0"),
    device("part-1", HARDWARE, mode="hardware", gpu="dev-0"),
    device("share", mode="software", gpu="dev-0"),
    device("other", mode="full-too", gpu="dev-1"),
)


def inline_conflicts(slice_object):
    """Return the pairs of devices that conflict. By the proposal, each device of a pair must permit the other."""
    raw = slice_object["spec"]["devices"]
    typed = convert(slice_object, ResourceSlice).spec.devices
    rules = [compile_selector(device["compatibleOnlyWith"]["expression"]) if "compatibleOnlyWith" in device else None for device in raw]  # fmt: skip
    views = [view_of(DRIVER, device) for device in typed]

    def permits(index, other_index):
        return rules[index] is None or rules[index].matches(views[other_index])

    indices = range(len(raw))
    return {
        (raw[first_index]["name"], raw[second_index]["name"])
        for first_index in indices
        for second_index in indices
        if first_index != second_index
        and not (permits(first_index, second_index) and permits(second_index, first_index))
    }


def test_the_proposed_objects_forbid_what_the_inline_rules_forbid():
    slice_object, findings = inline_findings(*PROPOSAL, nodes="nodeName: n0")
    objects = [convert(object_in_remedy(finding), DeviceCompatibility) for finding in findings]
    assert len(objects) == 2
    assert not any(review([object_in_remedy(finding) for finding in findings]))
    stock = Stock.of(slices=[convert(slice_object, ResourceSlice)], nodes=[node()])
    [pool] = stock.pools("n0")
    conflicts = {(device, other) for device, others in Rules(objects).conflicts(pool).items() for other in others}
    assert conflicts == inline_conflicts(slice_object)
    assert ("full", "part-0") in conflicts


def test_equal_inline_rules_are_reported_once():
    assert codes_and_paths(slice_(devices="\n".join(PROPOSAL))) == {
        ("D506", "/spec/devices/0/compatibleOnlyWith"),
        ("D506", "/spec/devices/1/compatibleOnlyWith"),
    }
    assert "D506" not in codes(slice_(devices=device("a", mode="x")))


@pytest.mark.parametrize(
    ("devices", "selector"),
    [
        ([device("a", "true", mode="x"), device("b", "true", mode="y")], None),
        ([device("a", "true", mode="x"), device("b", mode="y")], f'device.attributes["{DRIVER}"].?mode.orValue("") == "x"'),
        ([device("a", "true", slot=1), device("b", "true", slot=2), device("c", slot=3)], f'device.attributes["{DRIVER}"].?slot.orValue(0) in [1, 2]'),
        ([device("a", "true", whole=True), device("b")], f'device.attributes["{DRIVER}"].?whole.orValue(false) == true'),
        ([device("a", "true", **{"example.com/m": "x"}), device("b")], 'device.attributes["example.com"].?m.orValue("") == "x"'),
    ],
)  # fmt: skip
def test_the_selector_selects_the_devices_with_the_inline_rule(devices, selector):
    _, [finding] = inline_findings(*devices)
    assert object_in_remedy(finding)["spec"].get("selector") == selector


@pytest.mark.parametrize(
    "devices",
    [
        [device("a", "true", mode="x"), device("b", mode="x")],
        [device("a", "true"), device("b", mode="x")],
        [device("a", "true", whole=False), device("b")],  # a device without the attribute has the value false, too
        [*(device(f"d{at}", "true", slot=at + 1) for at in range(9)), device("b")],
    ],
)
def test_devices_without_a_distinguishing_attribute_are_reported(devices):
    _, [finding] = inline_findings(*devices)
    assert "no attribute tells" in finding.remedy


def test_a_malformed_inline_rule_is_the_only_finding():
    text = slice_(devices="  - {name: a, compatibleOnlyWith: 7, attributes: {m: {string: x}}}\n  - {name: b, compatibleOnlyWith: {expression: [1]}}")  # fmt: skip
    assert {code for code, _ in codes_and_paths(text)} == {"D506"}


def test_a_finding_about_a_v1beta1_slice_has_the_v1beta1_path():
    text = slice_(devices="  - {name: a, basic: {compatibleOnlyWith: {expression: 'true'}}}").replace(
        "/v1\n", "/v1beta1\n"
    )
    assert ("D506", "/spec/devices/0/basic/compatibleOnlyWith") in codes_and_paths(text)
