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


def status_for_devices(rule, *devices, devices_of_pool_q=()):
    slices = [slice_("a", *devices), *([slice_("b", *devices_of_pool_q, pool="q")] if devices_of_pool_q else [])]
    return status_for_slices(rule, slices)


def status_for_slices(rule, slices):
    stock = Stock.of(slices=slices, nodes=[node()], compatibilities=[rule])
    compiled = rule_of(rule)
    pages = [page for pool in stock.pages_of for page in stock.newest_pages(pool)]
    return status_of(rule, [(page, coverage_of(compiled, page)) for page in pages])


def finding_codes(reported):
    return [finding.code for finding in reported.findings]


MIG_AND_MPS_DEVICES = (device("mig-0", "mig"), device("mig-1", "mig"), device("mps-0", "mps"))


def test_the_status_of_a_valid_rule_counts_devices_without_findings():
    reported = status_for_devices(
        compatibility("r", MIG, MIG), *MIG_AND_MPS_DEVICES, devices_of_pool_q=[device("mig-2", "mig")]
    )
    assert (reported.devices, finding_codes(reported)) == (3, [])


@pytest.mark.parametrize(
    ("rule", "expected_codes", "words"),
    [
        (compatibility("r", "device."), ["D110"], "/spec/compatibleOnlyWith"),
        (compatibility("r", MIG, 'device.driver = "x"'), ["D110", "D501"], "/spec/selector"),
        (compatibility("r", MIG, f'{MODE} == "none"'), ["D503"], f"no published device of '{DRIVER}' has the rule"),
        (compatibility("r", MIG), ["D501"], "applies to 'mig-0' and to 'mps-0' of pool 'p'"),
        (compatibility("r", f'device.attributes["{DRIVER}"].rack == 1', MIG), ["D505"], "on 'mig-0': "),
        (compatibility("r", "false"), [], ""),
    ],
)
def test_the_status_of_a_compatibility_rule_has_the_expected_findings(rule, expected_codes, words):
    reported = status_for_devices(rule, *MIG_AND_MPS_DEVICES)
    assert finding_codes(reported) == expected_codes
    assert words in " ".join(f"{finding.path} {finding.message}" for finding in reported.findings)


def test_a_rule_covers_a_device_on_which_its_selector_fails():
    reported = status_for_devices(compatibility("r", MIG, MIG), device("odd", ""), device("mps-0", "mps"))
    assert (reported.devices, finding_codes(reported)) == (1, ["D505"])


def test_only_devices_within_the_scope_of_a_rule_contradict_it():
    rule_fields = {"expression": MIG, "scope": "counterSet"}
    devices = device("mig-0", "mig", "one"), device("mps-0", "mps", "two")
    assert finding_codes(status_for_devices(compatibility("r", **rule_fields), *devices)) == []
    assert finding_codes(
        status_for_devices(compatibility("r", **rule_fields), *devices, device("mps-1", "mps", "one"))
    ) == ["D501"]
    assert (
        finding_codes(
            status_for_devices(
                compatibility("r", MIG), device("mig-0", "mig"), devices_of_pool_q=[device("mps-0", "mps")]
            )
        )
        == []
    )


def test_a_node_rule_covers_all_pools_of_the_node():
    rule = compatibility("r", MIG, scope="node")
    mig, mps = device("mig-0", "mig"), device("mps-0", "mps")
    reported = status_for_devices(rule, mig, devices_of_pool_q=[mps])
    assert (reported.devices, finding_codes(reported)) == (2, ["D501"])
    assert "applies to 'mig-0' and to 'mps-0' of node 'n0'" in reported.findings[0].message
    on_two_nodes = [slice_("a", mig), slice_("b", mps, pool="q", node="n1")]
    assert finding_codes(status_for_slices(rule, on_two_nodes)) == []
    reported = status_for_slices(rule, [slice_("a", mig), slice_("b", mps, pool="q", allNodes=True)])
    assert (reported.devices, finding_codes(reported)) == (1, ["D508"])
    assert reported.findings[0].path == "/spec/scope"
    assert "'mps-0' of pool 'q' is on no single node" in reported.findings[0].message


def test_an_expensive_expression_is_stopped_and_reported():
    attributes = {f"a{i}": {"string": "x" * 60} for i in range(30)}
    devices = [{"name": f"d{i}", "attributes": attributes} for i in range(128)]
    expensive = " || ".join(f'device.attributes["{DRIVER}"].a{i}.matches("(x+x+)+{i}")' for i in range(30))
    reported = status_for_devices(compatibility("r", expensive), *devices)
    assert "it takes too long" in reported.findings[-1].message
