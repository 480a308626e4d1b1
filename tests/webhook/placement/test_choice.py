"""In a mixed fleet, a pod gets its devices from a device plugin or by a claim. The webhook and commands on files report which, and why."""

import msgspec
import pytest

from tests.webhook.admission.reviews import review
from tests.webhook.placement.mixed_nodes import (
    MIXED,
    NEW_NODE_FULL,
    OLD_NODES_FULL,
    PREFER_DRA,
    PREFER_PLUGIN,
    claim_holding,
    decision_of,
    gpu_pod,
    mechanism_in,
    new_node,
    old_node,
    state_with,
)
from tests.webhook.pods import expression, required_affinity
from webhook.admission import review as reviewing


def test_without_a_policy_an_advertised_key_is_left_unchanged():
    outcome = reviewing.decide_review("mutate", review(gpu_pod()), state_with(*MIXED))
    assert outcome.record.outcome == "left"
    assert "still serves it" in outcome.record.decisions[0].detail


@pytest.mark.parametrize(
    ("policy", "other_objects", "expected_mechanism", "reason_part"),
    [
        (PREFER_DRA, (), "dra", "nodes with a driver are preferred"),
        (PREFER_PLUGIN, (), "plugin", "nodes with a device plugin are preferred"),
        (PREFER_DRA, (NEW_NODE_FULL,), "plugin", "node old-1, with a device plugin, has enough"),
        (PREFER_PLUGIN, OLD_NODES_FULL, "dra", "node new-1, with a driver, has enough"),
        (PREFER_DRA, (NEW_NODE_FULL, *OLD_NODES_FULL), "dra", "no reachable node has enough free devices"),
        (PREFER_PLUGIN, (NEW_NODE_FULL, *OLD_NODES_FULL), "plugin", "no reachable node has enough free devices"),
        (PREFER_PLUGIN, OLD_NODES_FULL[:2], "plugin", "nodes with a device plugin are preferred"),
    ],
    ids=["dra", "plugin", "dra is full", "plugins are full", "all full, dra", "all full, plugin", "one node is free"],
)
def test_the_preferred_mechanism_is_used_unless_only_it_is_full(policy, other_objects, expected_mechanism, reason_part):
    mechanism, reason, response = decision_of(gpu_pod(), state_with(*MIXED, *other_objects, policy=policy))
    assert mechanism == expected_mechanism
    assert reason_part in reason
    # The annotation has only the part of the reason that is about the choice.
    served_by = response["auditAnnotations"]["served-by"]
    assert served_by == reason.rpartition("publish it as a whole GPU (class gpu.nvidia.com); ")[2]
    is_preferred = policy == (PREFER_DRA if mechanism == "dra" else PREFER_PLUGIN)
    if not is_preferred:
        [warning] = response["warnings"]
        assert reason_part in warning
    elif "preferred" in reason_part:
        assert "warnings" not in response


def test_an_impossible_mechanism_is_avoided_even_if_preferred():
    few_plugin_devices = (*old_node("old-1", 2), *new_node("new-1", 4), claim_holding("new-1", 4))
    assert mechanism_in(*few_plugin_devices, policy=PREFER_PLUGIN, item=gpu_pod(amount=4)) == "dra"
    nodes = (*old_node("old-1", 8), *new_node("new-1", 4), *new_node("new-2", 4))
    few_dra_devices = state_with(*nodes, gpu_pod("full", 8, nodeName="old-1"), policy=PREFER_DRA)
    mechanism, reason, _ = decision_of(gpu_pod(amount=8), few_dra_devices)
    assert mechanism == "plugin"
    assert "no node with a driver could serve this pod" in reason


def test_free_devices_of_several_nodes_do_not_add_up():
    """Three devices are free on nodes with the device plugin, one on each node."""
    objects = (*MIXED, *(gpu_pod(f"full-{i}", 3, nodeName=f"old-{i}") for i in (1, 2, 3)))
    assert mechanism_in(*objects, policy=PREFER_PLUGIN, item=gpu_pod(amount=2)) == "dra"
    assert mechanism_in(*objects, policy=PREFER_PLUGIN, item=gpu_pod(amount=1)) == "plugin"


NODE_NAME = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["in-a"]}]}
CONSTRAINTS = {
    "its selector": {"nodeSelector": {"pool": "a"}},
    "its affinity": {"affinity": required_affinity(expression("pool", "In", "a"))},
    "its node's name": {"affinity": required_affinity(NODE_NAME)},
}


@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_a_pod_gets_its_only_possible_mechanism(constraint):
    in_a, in_b = {"labels": {"pool": "a"}}, {"labels": {"pool": "b"}}
    item = gpu_pod(**constraint)
    mechanism, reason, _ = decision_of(
        item, state_with(*old_node("in-a", **in_a), *new_node("in-b", **in_b), policy=PREFER_DRA)
    )
    assert mechanism == "plugin"
    assert reason == "0 of 1 reachable nodes serve claims, and node in-a serves nvidia.com/gpu by a device plugin"
    assert mechanism_in(*new_node("in-a", **in_a), *old_node("in-b", **in_b), policy=PREFER_PLUGIN, item=item) == "dra"


def test_devices_of_cordoned_or_tainted_nodes_are_not_free():
    cordoned = old_node("old-1", unschedulable=True)
    assert mechanism_in(*cordoned, *new_node("new-1"), policy=PREFER_PLUGIN) == "dra"
    tainted = (*old_node("old-1"), *new_node("new-1", taints=[{"key": "moving", "effect": "NoSchedule"}]))
    assert mechanism_in(*tainted, policy=PREFER_DRA) == "plugin"
    tolerant = gpu_pod(tolerations=[{"key": "moving", "operator": "Exists"}])
    assert mechanism_in(*tainted, policy=PREFER_DRA, item=tolerant) == "dra"


def test_ended_pods_and_pods_without_node_use_no_devices():
    nodes = (*old_node("old-1"), *new_node("new-1"))
    ended = gpu_pod("ended", 4, nodeName="old-1") | {"status": {"phase": "Succeeded"}}
    assert mechanism_in(*nodes, ended, gpu_pod("waits", 4), policy=PREFER_PLUGIN) == "plugin"
    runs = gpu_pod("runs", 4, nodeName="old-1") | {"status": {"phase": "Running"}}
    assert mechanism_in(*nodes, runs, policy=PREFER_PLUGIN) == "dra"


def test_unknown_device_usage_does_not_rule_out_the_preferred_mechanism():
    uncounted = {"counted": False}
    assert mechanism_in(*MIXED, policy=PREFER_PLUGIN, **uncounted) == "plugin"
    mechanism, reason, _ = decision_of(gpu_pod(), state_with(*MIXED, NEW_NODE_FULL, policy=PREFER_DRA, **uncounted))
    assert mechanism == "dra", "the webhook prefers device plugins without knowing that they have free devices"
    assert "no reachable node has enough free devices" not in reason
    # No device plugin has four GPUs. This is known without counting pods.
    nodes, four = (*old_node("old-1", 2), *new_node("new-1")), gpu_pod(amount=4)
    assert mechanism_in(*nodes, policy=PREFER_PLUGIN, item=four, **uncounted) == "dra"


def test_no_pod_gets_a_claim_while_the_cache_is_stale():
    state = msgspec.structs.replace(
        state_with(*MIXED, *OLD_NODES_FULL, policy=PREFER_PLUGIN), stock=None, confirmed=False
    )
    outcome = reviewing.decide_review("mutate", review(gpu_pod()), state)
    assert outcome.record.outcome == "left"
    assert "free devices are not known" in outcome.record.decisions[0].detail


def test_the_policy_has_no_effect_once_all_nodes_are_migrated():
    mechanism, reason, response = decision_of(
        gpu_pod(), state_with(*new_node("new-1"), *new_node("new-2"), policy=PREFER_PLUGIN)
    )
    assert mechanism == "dra"
    assert "served-by" not in response["auditAnnotations"]
    assert "prefer" not in reason


def test_every_key_is_left_unchanged_before_any_node_is_migrated():
    assert mechanism_in(*old_node("old-1"), *old_node("old-2"), policy=PREFER_DRA) == "plugin"
