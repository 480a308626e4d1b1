"""Claims and classes compared with published devices: requests that can never be met, and selectors that fail."""

import pytest

from cluster.manifests import parse
from dra.server import server_of
from dra.validation import review
from tests.dra.validation.manifests import cel, claim, class_, codes, codes_and_paths, join, messages, request, slice_

MODEL = 'device.attributes["gpu.example.com"].model'
DEVICES = """  - {name: a, attributes: {model: {string: big}, numa: {int: 0}}, capacity: {memory: {value: 80Gi}}}
  - {name: b, attributes: {model: {string: small}}, capacity: {memory: {value: 10Gi}}}
"""
FLEET = join(slice_(devices=DEVICES), class_())


def claim_text(exactly, fields=""):
    return claim(request(exactly=f"deviceClassName: gpu, {exactly}"), fields)


def test_a_claim_that_the_fleet_can_meet_has_no_findings():
    assert not codes(claim_text("count: 1, capacity: {requests: {memory: 80Gi}}, " + cel(MODEL + ' == "big"')), FLEET)


def test_without_a_fleet_devices_have_no_finding():
    assert not codes(claim_text(cel(MODEL + ' == "gigantic"')))
    assert not codes(claim_text("count: 5"), class_())


def test_an_unknown_class_is_answered_with_the_nearest_one():
    text = claim(request(exactly="deviceClassName: gpus"))
    assert codes_and_paths(text, FLEET) == {("D301", "/spec/devices/requests/0/exactly/deviceClassName")}
    assert any("did you mean gpu?" in message for message in messages(text, FLEET))
    assert not codes(text)


def test_a_missing_class_may_come_with_its_driver():
    text = claim(request(exactly="deviceClassName: gpu.nvidia.com"))
    assert not codes(join(FLEET, text))
    assert codes(text, FLEET) == {"D301"}
    misspelt = claim(request(exactly="deviceClassName: gpus"))
    assert codes(join(FLEET, misspelt)) == {"D301"}


def test_a_missing_class_of_an_alternative_fails_the_claim():
    alternatives = (
        "    - {name: r, firstAvailable: [{name: one, deviceClassName: gpu}, {name: two, deviceClassName: gone}]}"
    )
    assert codes_and_paths(claim(alternatives), FLEET) == {
        ("D301", "/spec/devices/requests/0/firstAvailable/1/deviceClassName")
    }


def test_a_selector_that_matches_no_device_is_pointed_out():
    assert codes(claim_text(cel(MODEL + ' == "gigantic"')), FLEET) == {"D302"}


def test_an_unpublished_attribute_is_reported_with_the_nearest_name():
    text = claim_text(cel('device.attributes["gpu.example.com"].?modell.orValue("") == "big"'))
    assert codes(text, FLEET) == {"D303"}
    assert any("did you mean model?" in message for message in messages(text, FLEET))
    misspelt_domain = claim_text(cel('device.attributes["gpu.exampel.com"].?model.orValue("") == "big"'))
    assert any("did you mean gpu.example.com?" in message for message in messages(misspelt_domain, FLEET))


def test_a_driver_without_slices_is_named_instead_of_attributes():
    """ComputeDomains are an example: NVIDIA's chart installs their classes even if no driver publishes channels."""
    expression = (
        "device.driver == 'compute-domain.nvidia.com' && device.attributes['compute-domain.nvidia.com'].type == 'channel' "
        "&& device.attributes['compute-domain.nvidia.com'].id == 0"
    )
    [message] = messages(claim_text(cel(expression)), FLEET)
    assert message.startswith("no device of driver compute-domain.nvidia.com is published")
    assert codes(claim_text(cel(expression)), FLEET) == {"D302"}
    two_drivers = " || ".join(
        f"device.driver == '{name}' && device.attributes['{name}'].id == 0 && has(device.capacity['{name}'].lanes)"
        for name in ("far.away.org", "nowhere.at-all.net")
    )
    assert len(messages(claim_text(cel(two_drivers)), FLEET)) == 2
    misspelt = """device.driver == "gpu.exampel.com" && device.attributes["gpu.exampel.com"].model == "big\""""
    assert codes(claim_text(cel(misspelt)), FLEET) == {"D303"}


def test_a_has_guard_on_an_unpublished_attribute_is_accepted():
    assert not codes(claim_text(cel('!has(device.attributes["gpu.example.com"].sick)')), FLEET)


def test_an_unguarded_attribute_that_some_device_lacks_ends_scheduling():
    text = claim_text(cel('device.attributes["gpu.example.com"].numa == 0'))
    assert codes_and_paths(text, FLEET) == {("D304", "/spec/devices/requests/0/exactly/selectors/0/cel/expression")}
    assert any("gpu.example.com/p/b" in message and ".?numa.orValue" in message for message in messages(text, FLEET))


def test_requests_ignore_devices_that_their_class_excludes():
    fleet = join(slice_(devices=DEVICES), class_(spec=cel(MODEL + ' == "big"')))
    assert not codes(claim_text(cel('device.attributes["gpu.example.com"].numa == 0')), fleet)


def test_requests_larger_than_any_device_are_pointed_out():
    assert codes(claim_text("capacity: {requests: {memory: 81Gi}}"), FLEET) == {"D305"}
    assert codes(claim_text("capacity: {requests: {memory: 11Gi}}, " + cel(MODEL + ' == "small"')), FLEET) == {"D305"}
    assert codes(claim_text("count: 3"), FLEET) == {"D305"}


def test_a_request_outside_the_request_policy_is_reported():
    policy = "requestPolicy: {default: 1Gi, validRange: {min: 1Gi, max: 4Gi}}"
    shared = slice_(
        devices=f"  - {{name: a, allowMultipleAllocations: true, capacity: {{memory: {{value: 80Gi, {policy}}}}}}}"
    )
    assert codes(claim_text("capacity: {requests: {memory: 5Gi}}"), join(shared, class_())) == {"D305"}
    assert not codes(claim_text("capacity: {requests: {memory: 4Gi}}"), join(shared, class_()))


def test_bare_and_qualified_capacity_names_are_two_names():
    text = claim_text("capacity: {requests: {gpu.example.com/memory: 1Gi}}")
    assert codes(text, FLEET) == {"D314"}
    assert any("write memory" in message for message in messages(text, FLEET))


def test_a_share_without_an_amount_takes_all_of_it():
    shared = slice_(devices="  - {name: a, allowMultipleAllocations: true, capacity: {memory: {value: 80Gi}}}")
    assert codes(claim(request()), join(shared, class_())) == {"D311"}


def test_a_constraint_on_an_absent_attribute_fits_no_device():
    constraint = "    constraints: [{matchAttribute: gpu.example.com/rack}]"
    assert codes_and_paths(claim_text("count: 2", constraint), FLEET) == {
        ("D306", "/spec/devices/constraints/0/matchAttribute")
    }
    assert not codes(claim_text("count: 2", constraint.replace("rack", "numa")), FLEET)


def test_of_two_attributes_in_one_constraint_only_one_counts():
    constraint = "    constraints: [{matchAttribute: a.b/c, distinctAttribute: a.b/d}]"
    assert codes_and_paths(claim_text("count: 1", constraint)) == {
        ("D306", "/spec/devices/constraints/0/distinctAttribute")
    }


@pytest.mark.parametrize(("count", "expected"), [(32, set()), (33, {"D307"})])
def test_a_claim_gets_at_most_32_devices(count, expected):
    assert codes(claim_text(f"count: {count}")) == expected


def test_a_request_with_alternatives_counts_as_its_smallest_alternative():
    alternatives = "[{name: one, deviceClassName: gpu, count: 33}, {name: two, deviceClassName: gpu, count: 2}]"
    assert not codes(claim(f"    - {{name: r, firstAvailable: {alternatives}}}"))


def test_mode_all_with_constraints_or_alternatives_is_reported():
    constraint = "    constraints: [{requests: [r], matchAttribute: gpu.example.com/numa}]"
    assert codes(claim_text("allocationMode: All", constraint)) == {"D308"}
    alternative = "    - {name: r, firstAvailable: [{name: x, deviceClassName: gpu, allocationMode: All}]}"
    assert codes(claim(alternative)) == {"D308"}
    assert not codes(claim_text("allocationMode: All"))


def test_two_classes_with_one_extended_resource_are_both_reported():
    spec = "extendedResourceName: example.com/gpu"
    assert codes_and_paths(join(class_("a", spec), class_("b", spec))) == {("D309", "/spec/extendedResourceName")}
    assert codes(class_("a", spec), class_("b", spec)) == {"D309"}


def test_admin_access_is_allowed_with_a_reminder():
    assert codes(claim_text("adminAccess: true")) == {"D310"}


def test_a_class_that_configures_another_driver_is_reported():
    spec = "config: [{opaque: {driver: other.example.com, parameters: {a: 1}}}]"
    assert codes(class_("b", spec), FLEET) == {"D313"}


def test_a_class_selector_that_matches_nothing_or_fails_is_reported():
    assert codes(class_("b", cel(MODEL + ' == "none"')), FLEET) == {"D302"}
    assert codes(class_("b", cel('device.attributes["gpu.example.com"].numa == 0')), FLEET) == {"D304"}


@pytest.mark.parametrize(
    "expression",
    [
        'device.attributes["model"].string == "x"',
        'device.attributes.model == "x"',
        'device.attributes["gpu.example.com/model"] == "x"',
        'attributes.string["model"] == "x"',
        'device.stringattributes["model"] == "x"',
    ],
)
def test_outdated_selectors_are_answered_with_the_modern_form(expression):
    assert any('device.attributes["domain"].name' in message for message in messages(claim_text(cel(expression))))


def test_only_the_newest_generation_counts():
    old = slice_("old", "  - {name: a}", generation=1)
    new = slice_("new", "  - {name: b, attributes: {model: {string: big}}}", generation=2)
    assert not codes(claim_text(cel(MODEL + ' == "big"')), join(old, new, class_()))


def test_templates_are_judged_like_claims():
    text = claim_text("count: 3").replace("kind: ResourceClaim", "kind: ResourceClaimTemplate")
    spec = text.partition("spec:\n")
    nested = spec[0] + "spec:\n  spec:\n" + "\n".join("  " + line for line in spec[2].splitlines())
    assert codes_and_paths(nested, FLEET) == {("D305", "/spec/spec/devices/requests/0/exactly/count")}


def test_parameters_of_classes_and_claim_must_fit_into_an_allocation():
    entry = "{opaque: {driver: gpu.example.com, parameters: {a: 1}}}"
    classes = join(
        class_("gpu", f"config: [{', '.join([entry] * 32)}]"), class_("nic", f"config: [{', '.join([entry] * 32)}]")
    )
    config = f"    config: [{entry}]"
    two_requests = request() + "\n" + request("s", "deviceClassName: nic")
    assert not codes(claim(two_requests), classes)
    assert codes_and_paths(claim(two_requests, config), classes) == {("D316", "/spec/devices/config")}


def tainting(key, *devices, effect="NoSchedule"):
    """Return a DeviceTaintRule for each device."""
    head = "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: "
    return [f"{head}{{name: {device}}}\nspec: {{deviceSelector: {{device: {device}}}, taint: {{key: {key}, effect: {effect}}}}}\n" for device in devices]  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "is_reported"),
    [
        (tainting("a.b/c", "a", "b"), True),
        (tainting("a.b/c", "a", "b", effect="NoExecute"), True),
        (tainting("a.b/c", "a"), False),
        (tainting("a.b/c", "a", "b", effect="None"), False),
        (tainting("drawbridge.dev/fence", "a", "b"), False),
        ((*tainting("a.b/c", "a"), *tainting("drawbridge.dev/fence", "b")), False),
    ],
)
def test_an_extended_resource_with_tainted_devices_only_is_reported(rules, is_reported):
    class_text = class_("served", "extendedResourceName: example.com/gpu")
    inventory = join(slice_(devices=DEVICES), *rules)
    assert codes_and_paths(class_text, inventory) == (
        {("D318", "/spec/extendedResourceName")} if is_reported else set()
    )
    assert not codes_and_paths(class_(), inventory)


@pytest.mark.parametrize(
    ("selector", "path"),
    [
        ("", "/spec"),
        ("deviceSelector: {}, ", "/spec/deviceSelector"),
        ("deviceSelector: {device: gone}, ", "/spec/deviceSelector"),
        ("deviceSelector: {device: a}, ", None),
    ],
)
def test_taint_rules_for_no_or_every_device_are_reported(selector, path):
    text = f"""apiVersion: resource.k8s.io/v1
kind: DeviceTaintRule
metadata: {{name: rule}}
spec: {{{selector}taint: {{key: a, effect: NoSchedule}}}}
"""
    assert codes_and_paths(text, FLEET) == ({("D317", path)} if path else set())


@pytest.mark.parametrize(("minor", "is_reported"), [(36, True), (37, False)])
def test_a_taint_rule_without_a_selector_taints_the_devices_of_an_extended_resource_up_to_1_36(minor, is_reported):
    [everywhere] = tainting("a.b/c", "a")
    everywhere = everywhere.replace("deviceSelector: {device: a}, ", "").replace("io/v1", "io/v1beta2")
    texts = class_("served", "extendedResourceName: example.com/gpu"), join(slice_(devices=DEVICES), everywhere)
    objects = [[document.object for document in parse(text)] for text in texts]
    found = {problem.code for problems in review(*objects, server_of(minor)) for problem in problems}
    assert ("D318" in found) == is_reported


@pytest.mark.parametrize(("minor", "tainted"), [(36, "every device"), (37, "no device")])
def test_what_a_taint_rule_without_a_selector_taints_depends_on_the_version(minor, tainted):
    metadata, spec = {"name": "rule"}, {"taint": {"key": "a", "effect": "NoSchedule"}}
    rule = {"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule", "metadata": metadata, "spec": spec}
    [rule_messages] = [
        [problem.message for problem in problems if problem.code == "D317"]
        for problems in review([rule], [], server_of(minor))
    ]
    assert len(rule_messages) == 1
    assert tainted in rule_messages[0]
