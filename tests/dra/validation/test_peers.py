"""DeviceCompatibility: rules that are invalid, ineffective, contradictory or too broad."""

import re
import sys
from pathlib import Path

from dra.validation.fleet import peers
from tests.dra.validation.manifests import codes, codes_and_paths, join, messages, rule, slice_

KIND = 'device.attributes["gpu.example.com"]'


def device(name, mode, counter_set="set-0"):
    counters = f"consumesCounters: [{{counterSet: {counter_set}, counters: {{m: {{value: 1}}}}}}]"
    return f"  - {{name: {name}, attributes: {{mode: {{string: {mode}}}, gpu: {{string: {counter_set}}}}}, {counters}}}"


SETS = "  - {name: set-0, counters: {m: {value: 9}}}\n  - {name: set-1, counters: {m: {value: 9}}}"


def pool(*devices):
    return join(slice_("a", "\n".join(devices), count=2), slice_("b", counters=SETS, count=2))


def only(expression, selector="", more=""):
    picked = f"selector: '{selector}', " if selector else ""
    return rule(spec=f"{picked}compatibleOnlyWith: '{expression}'{more}")


FLEET = pool(device("mig-0", "mig"), device("mig-1", "mig"), device("mps-0", "mps"))
MIG = f'{KIND}.mode == "mig"'


def test_a_valid_rule_has_no_findings():
    assert not codes(only(MIG, selector=MIG), FLEET)


def test_broken_rules_are_errors():
    assert codes_and_paths(only("device.")) == {("D110", "/spec/compatibleOnlyWith")}
    assert codes(rule(spec="scope: card, compatibleOnlyWith: 'true'")) == {"D106"}
    assert codes(rule(spec="groups: mine, compatibleOnlyWith: 'true'")) == {"D106"}
    assert codes(rule(spec="selector: 'true'")) == {"D118"}
    assert not codes(rule(spec="groups: proposal"))


def test_a_rule_that_no_device_carries_is_pointed_out():
    assert codes_and_paths(only("true", selector=f'{KIND}.mode == "none"'), FLEET) == {("D503", "/spec/selector")}


def test_a_rule_that_fails_on_a_device_is_false():
    assert "D505" in codes(only(f'{KIND}.mode == "mig" || {KIND}.rack == 1', selector=MIG), FLEET)


def test_two_rules_that_disagree_are_pointed_out():
    mine = only(f'{KIND}.mode in ["mig", "mps"]', selector=MIG)
    theirs = only(f'{KIND}.mode == "mps"', selector=f'{KIND}.mode == "mps"').replace("name: rule", "name: other")
    assert codes(join(mine, theirs), FLEET) == {"D501"}
    assert not codes(mine, FLEET)


def test_a_rule_over_other_hardware_needs_a_narrower_scope():
    fleet = pool(device("mig-0", "mig"), device("full-0", "full"), device("full-1", "full", "set-1"))
    assert codes_and_paths(only(MIG, selector=MIG), fleet) == {("D502", "/spec/compatibleOnlyWith")}
    assert not codes(only(MIG, selector=MIG, more=", scope: counterSet"), fleet)
    elsewhere = f'{KIND}.gpu != "set-0" || {KIND}.mode == "mig"'
    assert not codes(only(elsewhere, selector=MIG), fleet)


def test_a_device_compatible_with_none_is_reported_as_exclusive():
    assert codes(only("false", selector=MIG, more=", scope: counterSet"), FLEET) == {"D504"}


def two_pools(first, second, where="nodeName: node"):
    return join(
        slice_("a", first, pool="p", count=1),
        slice_("b", second, pool="q", count=1, nodes=where),
    )


def test_a_rule_about_nodes_is_judged_across_pools():
    mine, theirs = plain("a", "mig"), plain("a", "mps")
    one_sided = only(MIG, selector=f'{KIND}.mode != ""', more=", scope: node")
    assert codes(one_sided, two_pools(mine, theirs)) == {"D501"}
    assert codes(one_sided, two_pools(mine, theirs, where="nodeName: other")) == set()
    exclusive = only("false", more=", scope: node")
    assert codes(exclusive, two_pools(mine, theirs)) == {"D504"}
    assert "on the node 'node' is permitted" in " ".join(messages(exclusive, two_pools(mine, theirs)))


def test_a_node_rule_ignores_devices_without_a_node():
    fleet = two_pools(plain("a", "mig"), plain("b", "mig"), where="allNodes: true")
    scoped = only(MIG, selector=MIG, more=", scope: node")
    assert codes_and_paths(scoped, fleet) == {("D508", "/spec/scope")}
    assert "gpu.example.com/q/b is on no single node" in " ".join(messages(scoped, fleet))
    assert not codes(only(MIG, selector=MIG), fleet)
    named = two_pools(plain("a", "mig"), plain("b", "mig", "nodeName: n1, "), where="perDeviceNodeSelection: true")
    assert not codes(scoped, named)


def test_the_rule_that_is_shown_to_administrators_has_no_findings():
    page = Path(__file__).parents[3] / "docs/bridge.md"
    section = page.read_text(encoding="utf-8").partition("\n## Devices that exclude each other\n")[2]
    [example] = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    assert "scope: node" in example
    assert not codes(example, two_pools(plain("a", "mig"), plain("b", "mig")))
    assert codes(example, two_pools(plain("a", "mps"), plain("b", "mps"))) == {"D503"}


def plain(name, mode, more=""):
    return f"  - {{name: {name}, {more}attributes: {{mode: {{string: {mode}}}}}}}"


def lines_of(work, module):
    """The number of executed lines of a module. Unlike time, it does not depend on the load of the machine."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != module.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_the_work_grows_linearly_with_the_devices():
    def lines(size):
        mixed = (("mig", "set-0"), ("mps", "set-0"), ("mig", "set-1"))
        fleet = pool(*[device(f"d-{n}", *mixed[n % 3]) for n in range(size)])
        mine = only("true")
        # Each rule permits all devices, so no pair conflicts, and all devices are examined.
        theirs = only("true", selector=MIG).replace("name: rule", "name: other")
        reported = []
        counted = lines_of(lambda: reported.extend(codes(join(mine, theirs), fleet)), peers)
        assert not reported
        return counted

    small, large = lines(20), lines(120)
    assert large < 9 * small


def test_devices_sharing_a_counter_set_are_not_compared_pairwise():
    def lines(size):
        fleet = pool(*[device(f"d-{n}", "mig" if n % 2 else "mps", f"set-{n % 2}") for n in range(size)])
        mine = only(f'{KIND}.mode == "mig" || {KIND}.mode == "mps"')
        reported = []
        counted = lines_of(lambda: reported.extend(codes(mine, fleet)), peers)
        assert not reported
        return counted

    small, large = lines(20), lines(120)
    assert large < 9 * small


def test_rules_and_devices_beyond_the_comparison_limit_are_reported(monkeypatch):
    """Rules beyond the limit are not compared with others, so a finding must report them."""
    monkeypatch.setattr(peers, "_MAX_RULES", 2)
    monkeypatch.setattr(peers, "_MAX_DEVICES", 3)
    two, three = (
        [only(MIG, selector=MIG).replace("name: rule", f"name: rule-{n}") for n in range(many)] for many in (2, 3)
    )
    assert not codes(join(*two), FLEET)
    assert codes_and_paths(join(*three), FLEET) == {("D509", "/spec/driver")}
    assert all("has 3 rules" in message for message in messages(join(*three), FLEET))
    more = pool(*[device(f"mig-{n}", "mig") for n in range(4)])
    assert codes_and_paths(join(*two), more) == {("D509", "/spec/scope")}
