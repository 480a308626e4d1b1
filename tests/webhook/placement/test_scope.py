"""Which pods a policy of a mixed fleet applies to: all of a cluster, of a namespace, or a percentage of workloads. Which pods it leaves out."""

import msgspec
import pytest

from dra.budget import Budget
from tests import objects
from tests.webhook.admission.reviews import answer, applied, review
from tests.webhook.placement.mixed_nodes import (
    MIXED,
    NEW_NODE_FULL,
    OLD_NODES_FULL,
    PREFER_DRA,
    PREFER_PLUGIN,
    decision_of,
    gpu_pod,
    mechanism_in,
    new_node,
    old_node,
    plugin_node,
    state_with,
)
from webhook.admission import decide_object
from webhook.admission import review as reviewing
from webhook.names import MODE_LABEL
from webhook.placement import read_preference
from webhook.placement.choice import choose
from webhook.state import node_constraints, workload
from webhook.state.reach import NodeIndex


def test_a_namespace_may_have_its_own_policy():
    policy = PREFER_DRA | {"namespaces": {"slow": PREFER_PLUGIN}}
    assert decision_of(gpu_pod(), state_with(*MIXED, policy=policy))[0] == "dra"
    mechanism, reason, _ = decision_of(gpu_pod(namespace="slow"), state_with(*MIXED, policy=policy))
    assert mechanism == "plugin"
    assert "in namespace slow nodes with a device plugin are preferred" in reason


def test_only_pods_that_select_the_policys_nodes_prefer_drivers():
    """All nodes have the label, so that nothing but the policy decides."""
    labels = {"labels": {"tier": "fast"}}
    state = state_with(
        *old_node("old-1", **labels), *new_node("new-1", **labels), policy={"nodeSelector": {"tier": "fast"}}
    )
    assert decision_of(gpu_pod(nodeSelector={"tier": "fast"}), state)[0] == "dra"
    mechanism, reason, _ = decision_of(gpu_pod(), state)
    assert mechanism == "plugin"
    assert "does not require a node with tier=fast" in reason


def owned_pod(number, kind="ReplicaSet", name="web-5d9"):
    item = gpu_pod(f"{name}-{number}")
    owners = [objects.owner(kind, name, "apps/v1")]
    item["metadata"] |= {"labels": {"pod-template-hash": "5d9"}, "ownerReferences": owners}
    return item


def test_a_growing_percentage_only_adds_workloads():
    translated_names = {}
    for percent in (0, 20, 60, 100):
        state = state_with(*MIXED, policy={"percent": percent})
        translated_names[percent] = {
            name for name in map(str, range(40)) if decision_of(gpu_pod(name), state)[0] == "dra"
        }
    assert not translated_names[0]
    assert translated_names[0] < translated_names[20] < translated_names[60] < translated_names[100]
    assert len(translated_names[100]) == 40
    state_for_half = state_with(*MIXED, policy={"percent": 50})
    assert len({decision_of(owned_pod(number), state_for_half)[0] for number in range(8)}) == 1, (
        "the pods of a workload stay together"
    )


def test_a_deployment_in_a_file_is_decided_like_its_pods():
    state_for_half = state_with(*MIXED, policy={"percent": 50})
    for name in map("app-{}".format, range(12)):
        deployment = objects.workload("Deployment", name, gpu_pod()["spec"], labels={"a": "b"}, namespace="ns")
        item = owned_pod(1, name=f"{name}-5d9")
        assert bool(decide_object(deployment, state_for_half).operations) is (
            decision_of(item, state_for_half)[0] == "dra"
        )


def test_modes_observe_and_warn_decide_but_change_no_pod():
    for mode in ("observe", "warn"):
        for policy, expected_outcome in ((PREFER_PLUGIN, "left"), (PREFER_DRA, "would translate")):
            state = state_with(*MIXED, policy=policy)
            state = msgspec.structs.replace(state, namespaces={"ns": {MODE_LABEL: mode}})
            outcome = reviewing.decide_review("mutate", review(gpu_pod(), namespace="ns"), state)
            assert outcome.record.outcome == expected_outcome
            assert "patch" not in answer(outcome)


def test_a_pod_with_own_claims_is_translated_despite_policy():
    item = gpu_pod(resourceClaims=[{"name": "own", "resourceClaimName": "c"}])
    outcome = reviewing.decide_review("mutate", review(item), state_with(*MIXED, policy=PREFER_PLUGIN))
    assert outcome.record.outcome == "translated"


def test_a_translated_pod_stays_translated_on_reinvocation():
    """After another webhook's change the API server calls the webhook again. The devices may be in use by then."""
    state = state_with(*MIXED, policy=PREFER_DRA)
    patched_pod = applied(gpu_pod(), reviewing.decide_review("mutate", review(gpu_pod()), state))
    full_state = state_with(*MIXED, NEW_NODE_FULL, policy=PREFER_DRA)
    outcome = reviewing.decide_review("mutate", review(patched_pod), full_state)
    assert "patch" not in answer(outcome)


def test_a_false_amount_of_one_node_changes_no_mechanism():
    """A compromised node that reports free devices attracts pods, with and without drawbridge. It does not hide free devices of other nodes."""
    compromised_node = plugin_node("compromised", 10**9)
    assert mechanism_in(*MIXED, compromised_node, policy=PREFER_DRA) == "dra"
    assert mechanism_in(*MIXED, plugin_node("compromised", -4), policy=PREFER_PLUGIN) == "plugin"
    pod_on_compromised_node = gpu_pod("beyond", 10**9, nodeName="compromised")
    assert mechanism_in(*MIXED, compromised_node, pod_on_compromised_node, policy=PREFER_PLUGIN) == "plugin"


def test_labels_for_shared_gpus_take_precedence_over_the_policy():
    """A policy states which nodes are preferred, not what a unit means. Replicas of a GPU stay with their device plugin."""
    shared = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    nodes = [node for i in range(3) for node in old_node(f"shared-{i}", labels=shared)]
    outcome = reviewing.decide_review(
        "mutate", review(gpu_pod()), state_with(*nodes, *new_node("new-1"), policy=PREFER_DRA)
    )
    assert outcome.record.outcome == "left"
    assert "time-slicing" in outcome.record.decisions[0].detail


def test_a_workload_for_device_plugins_gets_no_warning_about_claims():
    deployment = objects.workload("Deployment", "app", gpu_pod(amount=4)["spec"], labels={"a": "b"}, namespace="ns")

    def warnings_with(policy):
        state = state_with(*MIXED, NEW_NODE_FULL, *OLD_NODES_FULL, policy=policy)
        return answer(
            reviewing.decide_review("validate", review(deployment, group="apps", resource="deployments"), state)
        ).get("warnings", [])

    assert any("waits until devices are free" in text for text in warnings_with(PREFER_DRA))
    assert warnings_with(PREFER_PLUGIN) == []


def test_a_choice_examines_each_node_only_a_few_times():
    nodes = [obj for i in range(60) for obj in (*old_node(f"o-{i}", 1), *new_node(f"n-{i}", 1))]
    running_pods = [gpu_pod(f"f-{i}", 1, nodeName=f"o-{i}") for i in range(60)]
    state = state_with(*nodes, *running_pods, policy=PREFER_PLUGIN)
    preference = read_preference(gpu_pod(), workload("ns", {}), ["nvidia.com/gpu"], state)
    budget = Budget(10**6)
    choice = choose(preference, [], state, budget)
    assert choice is not None
    assert 10**6 - budget.left < 400  # fewer than four steps for each of the 120 nodes


@pytest.mark.parametrize("terms", [8, 200])
def test_very_many_node_selector_terms_cost_little(terms):
    """Each term costs a scan of the nodes, so their number is limited. The webhook treats a pod with more terms as able to reach every node."""
    expressions = [{"key": f"pool-{index}", "operator": "NotIn", "values": ["v"]} for index in range(4)]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}] * terms}
    pod_with_terms = gpu_pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    nodes = [node for i in range(60) for node in old_node(f"o-{i}", 1)]
    for policy, mechanism in ((PREFER_PLUGIN, "plugin"), (PREFER_DRA, "dra")):
        state = state_with(*nodes, *new_node("new-1"), policy=policy)
        assert decision_of(pod_with_terms, state)[0] == mechanism
        budget = Budget(10**6)
        assert len(NodeIndex(state.fleet.nodes).reach(node_constraints(pod_with_terms["spec"]), budget).nodes) == 61
        assert budget.spent < 1_000
