"""DeviceCompatibility: rules that are invalid, ineffective, contradictory or too broad."""

import re
import sys
from pathlib import Path

from dra.validation.fleet import peers
from tests.dra.validation.manifests import codes, codes_and_paths, join, messages, rule, slice_

ATTRIBUTES = 'device.attributes["gpu.example.com"]'


def device(name, mode, counter_set="set-0"):
    counters = f"consumesCounters: [{{counterSet: {counter_set}, counters: {{m: {{value: 1}}}}}}]"
    return f"  - {{name: {name}, attributes: {{mode: {{string: {mode}}}, gpu: {{string: {counter_set}}}}}, {counters}}}"


SETS = "  - {name: set-0, counters: {m: {value: 9}}}\n  - {name: set-1, counters: {m: {value: 9}}}"


def pool(*devices):
    return join(slice_("a", "\n".join(devices), count=2), slice_("b", counters=SETS, count=2))


def compatible_only(expression, selector="", fields=""):
    picked = f"selector: '{selector}', " if selector else ""
    return rule(spec=f"{picked}compatibleOnlyWith: '{expression}'{fields}")


FLEET = pool(device("mig-0", "mig"), device("mig-1", "mig"), device("mps-0", "mps"))
MIG = f'{ATTRIBUTES}.mode == "mig"'


def test_a_valid_rule_has_no_findings():
    assert not codes(compatible_only(MIG, selector=MIG), FLEET)


def test_broken_rules_are_errors():
    assert codes_and_paths(compatible_only("device.")) == {("D110", "/spec/compatibleOnlyWith")}
    assert codes(rule(spec="scope: card, compatibleOnlyWith: 'true'")) == {"D106"}
    assert codes(rule(spec="groups: mine, compatibleOnlyWith: 'true'")) == {"D106"}
    assert codes(rule(spec="selector: 'true'")) == {"D118"}
    assert not codes(rule(spec="groups: proposal"))


def test_a_rule_that_selects_no_device_is_pointed_out():
    assert codes_and_paths(compatible_only("true", selector=f'{ATTRIBUTES}.mode == "none"'), FLEET) == {
        ("D503", "/spec/selector")
    }


def test_a_rule_that_fails_on_a_device_is_reported():
    assert "D505" in codes(
        compatible_only(f'{ATTRIBUTES}.mode == "mig" || {ATTRIBUTES}.rack == 1', selector=MIG), FLEET
    )


def test_two_rules_that_disagree_are_pointed_out():
    rule_of_mig = compatible_only(f'{ATTRIBUTES}.mode in ["mig", "mps"]', selector=MIG)
    rule_of_mps = compatible_only(f'{ATTRIBUTES}.mode == "mps"', selector=f'{ATTRIBUTES}.mode == "mps"').replace(
        "name: rule", "name: other"
    )
    assert codes(join(rule_of_mig, rule_of_mps), FLEET) == {"D501"}
    assert not codes(rule_of_mig, FLEET)


def test_a_rule_over_other_hardware_needs_a_narrower_scope():
    fleet = pool(device("mig-0", "mig"), device("full-0", "full"), device("full-1", "full", "set-1"))
    assert codes_and_paths(compatible_only(MIG, selector=MIG), fleet) == {("D502", "/spec/compatibleOnlyWith")}
    assert not codes(compatible_only(MIG, selector=MIG, fields=", scope: counterSet"), fleet)
    elsewhere = f'{ATTRIBUTES}.gpu != "set-0" || {ATTRIBUTES}.mode == "mig"'
    assert not codes(compatible_only(elsewhere, selector=MIG), fleet)


def test_a_device_compatible_with_none_is_reported_as_exclusive():
    assert codes(compatible_only("false", selector=MIG, fields=", scope: counterSet"), FLEET) == {"D504"}


def two_pools(devices_of_p, devices_of_q, where="nodeName: node"):
    return join(
        slice_("a", devices_of_p, pool="p", count=1),
        slice_("b", devices_of_q, pool="q", count=1, nodes=where),
    )


def test_a_rule_about_nodes_is_judged_across_pools():
    device_a, device_b = device_without_counters("a", "mig"), device_without_counters("a", "mps")
    one_sided = compatible_only(MIG, selector=f'{ATTRIBUTES}.mode != ""', fields=", scope: node")
    assert codes(one_sided, two_pools(device_a, device_b)) == {"D501"}
    assert codes(one_sided, two_pools(device_a, device_b, where="nodeName: other")) == set()
    exclusive = compatible_only("false", fields=", scope: node")
    assert codes(exclusive, two_pools(device_a, device_b)) == {"D504"}
    assert "it permits no device on the node 'node'" in " ".join(messages(exclusive, two_pools(device_a, device_b)))


def test_a_node_rule_ignores_devices_without_a_node():
    fleet = two_pools(device_without_counters("a", "mig"), device_without_counters("b", "mig"), where="allNodes: true")
    scoped = compatible_only(MIG, selector=MIG, fields=", scope: node")
    assert codes_and_paths(scoped, fleet) == {("D508", "/spec/scope")}
    assert "gpu.example.com/q/b is on no single node" in " ".join(messages(scoped, fleet))
    assert not codes(compatible_only(MIG, selector=MIG), fleet)
    with_node_name = two_pools(
        device_without_counters("a", "mig"),
        device_without_counters("b", "mig", "nodeName: n1, "),
        where="perDeviceNodeSelection: true",
    )
    assert not codes(scoped, with_node_name)


def test_the_rule_that_is_shown_to_administrators_has_no_findings():
    page = Path(__file__).parents[3] / "docs/bridge.md"
    section = page.read_text(encoding="utf-8").partition("\n## Devices that exclude each other\n")[2]
    [example] = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert "scope: node" in example
    assert not codes(example, two_pools(device_without_counters("a", "mig"), device_without_counters("b", "mig")))
    assert codes(example, two_pools(device_without_counters("a", "mps"), device_without_counters("b", "mps"))) == {
        "D503"
    }


def device_without_counters(name, mode, fields=""):
    return f"  - {{name: {name}, {fields}attributes: {{mode: {{string: {mode}}}}}}}"


def count_lines(work, module):
    """Count the executed lines of a module. Unlike time, the number does not depend on the load of the machine."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
            return None
        count += event == "line"
        return trace

    previous_trace = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(previous_trace)
    return count


def test_the_work_grows_linearly_with_the_devices():
    def lines(size):
        mixed = (("mig", "set-0"), ("mps", "set-0"), ("mig", "set-1"))
        fleet = pool(*[device(f"d-{n}", *mixed[n % 3]) for n in range(size)])
        rule_for_all = compatible_only("true")
        # Each rule permits all devices, so no pair conflicts, and all devices are examined.
        rule_for_mig = compatible_only("true", selector=MIG).replace("name: rule", "name: other")
        reported = []
        counted = count_lines(lambda: reported.extend(codes(join(rule_for_all, rule_for_mig), fleet)), peers)
        assert not reported
        return counted

    small, large = lines(20), lines(120)
    assert large < 9 * small


def test_rules_and_devices_beyond_the_comparison_limit_are_reported(monkeypatch):
    """Rules beyond the limit are not compared with others, so a finding must report them."""
    monkeypatch.setattr(peers, "_MAX_RULES", 2)
    monkeypatch.setattr(peers, "_MAX_DEVICES", 3)
    two, three = (
        [compatible_only(MIG, selector=MIG).replace("name: rule", f"name: rule-{n}") for n in range(count)]
        for count in (2, 3)
    )
    assert not codes(join(*two), FLEET)
    assert codes_and_paths(join(*three), FLEET) == {("D509", "/spec/driver")}
    assert all("has 3 rules" in message for message in messages(join(*three), FLEET))
    four_devices = pool(*[device(f"mig-{n}", "mig") for n in range(4)])
    assert codes_and_paths(join(*two), four_devices) == {("D509", "/spec/scope")}
