"""The status of a DeviceCompatibility: the devices that it covers, and its findings."""

import pytest

from allocator.reports import coverage_of, rule_of, status_of
from dra.stock import Stock
from tests.dra.samples import DRIVER, compatibility, consuming, node, slice_

MODE = f'device.attributes["{DRIVER}"].mode'
MIG = f'{MODE} == "mig"'


def device(name, mode, counter_set=""):
    body = consuming(name, **{counter_set: {"m": 1}}) if counter_set else {"name": name}
    return body | ({"attributes": {"mode": {"string": mode}}} if mode else {})


def status(rule, *devices, second=()):
    slices = [slice_("a", *devices), *([slice_("b", *second, pool="q")] if second else [])]
    return status_on(rule, slices)


def status_on(rule, slices):
    stock = Stock.of(slices=slices, nodes=[node()], compatibilities=[rule])
    compiled = rule_of(rule)
    pages = [page for pool in stock.pages_of for page in stock.newest_pages(pool)]
    return status_of(rule, [(page, coverage_of(compiled, page)) for page in pages])


def codes(reported):
    return [finding.code for finding in reported.findings]


MIXED = (device("mig-0", "mig"), device("mig-1", "mig"), device("mps-0", "mps"))


def test_a_valid_rule_has_devices_and_no_findings():
    reported = status(compatibility("r", MIG, MIG), *MIXED, second=[device("mig-2", "mig")])
    assert (reported.devices, codes(reported)) == (3, [])


@pytest.mark.parametrize(
    ("rule", "expected", "words"),
    [
        (compatibility("r", "device."), ["D110"], "/spec/compatibleOnlyWith"),
        (compatibility("r", MIG, 'device.driver = "x"'), ["D110", "D501"], "/spec/selector"),
        (compatibility("r", MIG, f'{MODE} == "none"'), ["D503"], f"no published device of '{DRIVER}' has the rule"),
        (compatibility("r", MIG), ["D501"], "applies to 'mig-0' and to 'mps-0' of pool 'p'"),
        (compatibility("r", f'device.attributes["{DRIVER}"].rack == 1', MIG), ["D505"], "on 'mig-0': "),
        (compatibility("r", "false"), [], ""),
    ],
)
def test_errors_in_a_compatibility_rule_are_reported_in_its_status(rule, expected, words):
    reported = status(rule, *MIXED)
    assert codes(reported) == expected
    assert words in " ".join(f"{finding.path} {finding.message}" for finding in reported.findings)


def test_a_device_with_a_failing_selector_carries_the_rule():
    reported = status(compatibility("r", MIG, MIG), device("odd", ""), device("mps-0", "mps"))
    assert (reported.devices, codes(reported)) == (1, ["D505"])


def test_devices_that_never_meet_do_not_contradict_each_other():
    rule = {"expression": MIG, "scope": "counterSet"}
    apart = device("mig-0", "mig", "one"), device("mps-0", "mps", "two")
    assert codes(status(compatibility("r", **rule), *apart)) == []
    assert codes(status(compatibility("r", **rule), *apart, device("mps-1", "mps", "one"))) == ["D501"]
    assert codes(status(compatibility("r", MIG), device("mig-0", "mig"), second=[device("mps-0", "mps")])) == []


def test_a_node_rule_covers_all_pools_of_one_node():
    rule = compatibility("r", MIG, scope="node")
    mig, mps = device("mig-0", "mig"), device("mps-0", "mps")
    reported = status(rule, mig, second=[mps])
    assert (reported.devices, codes(reported)) == (2, ["D501"])
    assert "applies to 'mig-0' and to 'mps-0' of node 'n0'" in reported.findings[0].message
    on_two_nodes = [slice_("a", mig), slice_("b", mps, pool="q", node="n1")]
    assert codes(status_on(rule, on_two_nodes)) == []
    reported = status_on(rule, [slice_("a", mig), slice_("b", mps, pool="q", allNodes=True)])
    assert (reported.devices, codes(reported)) == (1, ["D508"])
    assert reported.findings[0].path == "/spec/scope"
    assert "'mps-0' of pool 'q' is on no single node" in reported.findings[0].message


def test_an_expensive_expression_is_stopped_and_reported():
    attributes = {f"a{i}": {"string": "x" * 60} for i in range(30)}
    devices = [{"name": f"d{i}", "attributes": attributes} for i in range(128)]
    expensive = " || ".join(f'device.attributes["{DRIVER}"].a{i}.matches("(x+x+)+{i}")' for i in range(30))
    reported = status(compatibility("r", expensive), *devices)
    assert "it takes too long" in reported.findings[-1].message
