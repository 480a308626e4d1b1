"""Taint rules follow the devices that plugins allocate, also while slices are missing and after rules were modified.

Marks are the devices that need a taint rule, each with the plugin devices that hold it.
"""

from datetime import UTC, datetime, timedelta

import pytest

from dra.objects import DeviceTaintRule
from dra.validation import errors
from dra.wire import convert
from node.audit import MARKED_ON, Hardware, NodePluginDevice, hash_of, markable, marks_of, plan, seen_at, unmarkable
from node.audit.findings import MAX_FINDINGS
from node.audit.marks import HELD_BY_PLUGIN, MAX_MARKS
from tests.node.audit.snapshots import RESOURCE, device, node_object, slices
from tests.node.machines import NODE

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLUGIN_GPU = NodePluginDevice(RESOURCE, "GPU-0", "ns", "p")


def marks_for(*plugin_devices):
    return marks_of(plugin_devices, Hardware(slices()))


def rules_for(*plugin_devices):
    return [
        convert(body, DeviceTaintRule)
        for body in plan(node_object(), marks_for(*plugin_devices), plugin_devices, (), NOW).new
    ]


def test_a_taint_rule_selects_one_device_of_its_node():
    [rule] = rules_for(PLUGIN_GPU)
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
    assert plan(node_object(), marks_for(PLUGIN_GPU), [PLUGIN_GPU], rules_for(PLUGIN_GPU), NOW).is_empty


def test_a_taint_rule_is_deleted_after_its_pod():
    planned = plan(node_object(), {}, [], rules_for(PLUGIN_GPU), NOW)
    assert [rule.spec.device_selector.device for rule in planned.deleted] == ["gpu-0"]


def test_a_taint_rule_stays_while_its_slices_are_missing():
    """A starting kubelet deletes the slices of its node, and the driver publishes them again."""
    assert plan(node_object(), {}, [PLUGIN_GPU], rules_for(PLUGIN_GPU), NOW).is_empty


def test_a_taint_rule_stays_for_the_remaining_holder():
    plugin_devices = [
        NodePluginDevice(RESOURCE, "GPU-0::1", "ns", "p"),
        NodePluginDevice(RESOURCE, "GPU-0::2", "ns", "q"),
    ]
    [rule] = rules_for(*plugin_devices)
    [(name, body)] = plan(node_object(), marks_for(plugin_devices[1]), plugin_devices[1:], [rule], NOW).renewed
    assert name == rule.metadata.name
    assert body["metadata"]["annotations"]["drawbridge.dev/held-as"] == f"{RESOURCE} GPU-0::2"


@pytest.mark.parametrize("seen_time", ["2025-12-31T23:50:00+00:00", "2027-01-01T00:00:00+00:00", "", "2026-01-01T00:00:00", "yesterday"])  # fmt: skip
def test_a_taint_rule_without_a_recent_time_is_confirmed(seen_time):
    [rule] = rules_for(PLUGIN_GPU)
    rule.metadata.annotations["drawbridge.dev/seen"] = seen_time
    planned = plan(node_object(), marks_for(PLUGIN_GPU), [PLUGIN_GPU], [rule], NOW)
    assert [name for name, _ in planned.renewed] == [rule.metadata.name]


def test_a_modified_taint_rule_is_deleted_and_then_created_again():
    [rule] = rules_for(PLUGIN_GPU)
    modified_fields = {"metadata": {"name": rule.metadata.name, "annotations": dict(rule.metadata.annotations)}, "spec": {"taint": {"key": "x", "effect": "None"}}}  # fmt: skip
    modified_rule = convert(modified_fields, DeviceTaintRule)
    planned = plan(node_object(), marks_for(PLUGIN_GPU), [PLUGIN_GPU], [modified_rule], NOW)
    assert planned.deleted == (modified_rule,)
    assert planned.new == ()
    assert len(plan(node_object(), marks_for(PLUGIN_GPU), [PLUGIN_GPU], [], NOW + timedelta(seconds=2)).new) == 1


def test_a_device_that_cannot_be_tainted_is_reported():
    marks = {device("x", pool="shelf"): frozenset({str(PLUGIN_GPU)})}
    assert plan(node_object(), marks, [PLUGIN_GPU], [], NOW).is_empty
    [finding] = unmarkable(NODE, marks, served=True)
    assert "its pool is not named after the node" in finding.message
    [finding] = unmarkable(NODE, marks_for(PLUGIN_GPU), served=False)
    assert "DRADeviceTaintRules" in finding.remedy
    assert unmarkable(NODE, marks_for(PLUGIN_GPU), served=True) == ()


def test_devices_beyond_the_maximum_are_reported_and_not_tainted():
    marks = {device(f"d{number:05}"): frozenset({"r d"}) for number in range(MAX_MARKS + 100)}
    kept_marks = markable(NODE, marks)
    assert list(kept_marks) == sorted(marks)[:MAX_MARKS]
    findings = unmarkable(NODE, marks, served=True)
    assert len(findings) == MAX_FINDINGS
    assert findings[0].object == f"Device/{sorted(marks)[MAX_MARKS]}"
    assert f"{MAX_MARKS} other devices" in findings[0].message


def test_the_names_of_taint_rules_are_valid():
    marks = {device("d" * 63): frozenset({str(PLUGIN_GPU)})}
    [body] = plan(node_object(), marks, [PLUGIN_GPU], [], NOW).new
    assert list(errors(body)) == []
    assert len(body["metadata"]["name"]) < 253  # the longest name that Kubernetes accepts


@pytest.mark.parametrize("id_", [f"line\n{PLUGIN_GPU}", "\x1b[2J", "x" * 1_000_000, "\n" * 1000])
def test_a_hostile_plugin_device_id_becomes_one_short_line(id_):
    plugin_device = NodePluginDevice(RESOURCE, id_, "ns", "p")
    marks = {device("gpu-0"): frozenset({str(plugin_device)})}
    [body] = plan(node_object(), marks, [plugin_device], [], NOW).new
    rule = convert(body, DeviceTaintRule)
    held_as = rule.metadata.annotations["drawbridge.dev/held-as"]
    assert held_as.isprintable()
    assert len(held_as) < 2000
    assert plan(node_object(), marks, [plugin_device], [rule], NOW).is_empty
    assert plan(node_object(), {}, [plugin_device], [rule], NOW).is_empty
    assert plan(node_object(), {}, [PLUGIN_GPU], [rule], NOW).deleted == (rule,)
