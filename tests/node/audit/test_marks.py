"""Taint rules follow the devices that plugins allocate. Missing slices and modified rules do not change that."""

from datetime import UTC, datetime, timedelta

import pytest

from dra.objects import DeviceTaintRule
from dra.validation import errors
from dra.wire import convert
from node.audit import MARKED_ON, Hardware, NodePluginDevice, hash_of, markable, marks_of, plan, seen_at, unmarkable
from node.audit.findings import MAX_FINDINGS
from node.audit.marks import HELD_BY_PLUGIN, MAX_MARKS
from tests.node.audit.snapshots import RESOURCE, device, owner, slices
from tests.node.machines import NODE

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELD = NodePluginDevice(RESOURCE, "GPU-0", "ns", "p")


def wanted(*given):
    return marks_of(given, Hardware(slices()))


def made(*given, now=NOW):
    return [convert(body, DeviceTaintRule) for body in plan(owner(), wanted(*given), given, (), now).new]


def test_a_taint_rule_selects_one_device_of_its_node():
    [rule] = made(HELD)
    selector = rule.spec.device_selector
    assert (selector.driver, selector.pool, selector.device) == device("gpu-0")
    assert (rule.spec.taint.key, rule.spec.taint.effect) == (HELD_BY_PLUGIN, "NoSchedule")
    assert rule.metadata.labels[MARKED_ON] == hash_of(NODE)
    assert [
        (owner_reference.kind, owner_reference.name, owner_reference.uid)
        for owner_reference in rule.metadata.owner_references
    ] == [("Node", NODE, "node-uid")]
    assert seen_at(rule) == NOW


def test_a_correct_taint_rule_is_left_unchanged():
    assert plan(owner(), wanted(HELD), [HELD], made(HELD), NOW).is_empty


def test_a_taint_rule_is_deleted_after_its_pod():
    planned = plan(owner(), {}, [], made(HELD), NOW)
    assert [rule.spec.device_selector.device for rule in planned.deleted] == ["gpu-0"]


def test_a_taint_rule_stays_while_its_slices_are_missing():
    """A starting kubelet deletes the slices of its node, and the driver publishes them again."""
    assert plan(owner(), {}, [HELD], made(HELD), NOW).is_empty


def test_a_taint_rule_stays_for_the_remaining_holder():
    both = [NodePluginDevice(RESOURCE, "GPU-0::1", "ns", "p"), NodePluginDevice(RESOURCE, "GPU-0::2", "ns", "q")]
    [rule] = made(*both)
    [(name, body)] = plan(owner(), wanted(both[1]), both[1:], [rule], NOW).renewed
    assert name == rule.metadata.name
    assert body["metadata"]["annotations"]["drawbridge.dev/held-as"] == f"{RESOURCE} GPU-0::2"


@pytest.mark.parametrize("seen", ["2025-12-31T23:50:00+00:00", "2027-01-01T00:00:00+00:00", "", "2026-01-01T00:00:00", "yesterday"])  # fmt: skip
def test_an_old_taint_rule_is_confirmed(seen):
    [rule] = made(HELD)
    rule.metadata.annotations["drawbridge.dev/seen"] = seen
    planned = plan(owner(), wanted(HELD), [HELD], [rule], NOW)
    assert [name for name, _ in planned.renewed] == [rule.metadata.name]


def test_a_modified_taint_rule_is_deleted_and_then_created_again():
    [rule] = made(HELD)
    plain = {"metadata": {"name": rule.metadata.name, "annotations": dict(rule.metadata.annotations)}, "spec": {"taint": {"key": "x", "effect": "None"}}}  # fmt: skip
    bent = convert(plain, DeviceTaintRule)
    planned = plan(owner(), wanted(HELD), [HELD], [bent], NOW)
    assert planned.deleted == (bent,)
    assert planned.new == ()
    assert len(plan(owner(), wanted(HELD), [HELD], [], NOW + timedelta(seconds=2)).new) == 1


def test_a_device_of_another_pool_is_reported_not_tainted():
    marks = {device("x", pool="shelf"): frozenset({str(HELD)})}
    assert plan(owner(), marks, [HELD], [], NOW).is_empty
    [finding] = unmarkable(NODE, marks, served=True)
    assert "its pool is not named after the node" in finding.message
    [finding] = unmarkable(NODE, wanted(HELD), served=False)
    assert "DRADeviceTaintRules" in finding.remedy
    assert unmarkable(NODE, wanted(HELD), served=True) == ()


def test_devices_beyond_the_maximum_are_reported_and_not_tainted():
    many = {device(f"d{number:05}"): frozenset({"r d"}) for number in range(MAX_MARKS + 100)}
    chosen = markable(NODE, many)
    assert list(chosen) == sorted(many)[:MAX_MARKS]
    findings = unmarkable(NODE, many, served=True)
    assert len(findings) == MAX_FINDINGS
    assert findings[0].object == f"Device/{sorted(many)[MAX_MARKS]}"
    assert f"{MAX_MARKS} other devices" in findings[0].message


def test_the_names_of_taint_rules_are_valid():
    long = {device("d" * 63): frozenset({str(HELD)})}
    [body] = plan(owner(), long, [HELD], [], NOW).new
    assert list(errors(body)) == []
    assert len(body["metadata"]["name"]) < 253


@pytest.mark.parametrize("id_", [f"line\n{HELD}", "\x1b[2J", "x" * 1_000_000, "\n" * 1000])
def test_an_odd_plugin_device_id_becomes_one_short_line(id_):
    given = NodePluginDevice(RESOURCE, id_, "ns", "p")
    marks = {device("gpu-0"): frozenset({str(given)})}
    [body] = plan(owner(), marks, [given], [], NOW).new
    rule = convert(body, DeviceTaintRule)
    held_as = rule.metadata.annotations["drawbridge.dev/held-as"]
    assert held_as.isprintable()
    assert len(held_as) < 2000
    assert plan(owner(), marks, [given], [rule], NOW).is_empty
    assert plan(owner(), {}, [given], [rule], NOW).is_empty
    assert plan(owner(), {}, [HELD], [rule], NOW).deleted == (rule,)
