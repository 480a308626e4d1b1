"""In a mixed fleet, a pod gets its devices from a device plugin or by a claim. The webhook and commands on files report which, and why."""

import msgspec
import pytest

from cluster import manifests
from dra.budget import Budget
from tests.objects import allocated, claim, device_class, exactly, node, pod, resource_slice, result
from tests.webhook.admission.reviews import KEY, answer, applied, device, review
from tests.webhook.pods import configured, state_of_files
from webhook.admission import decide_object
from webhook.admission import review as reviewing
from webhook.mixed_fleet import node_constraints, read_preference
from webhook.mixed_fleet.choice import choose
from webhook.mixed_fleet.reach import NodeIndex
from webhook.names import MODE_LABEL
from webhook.state import workload

GPU, DRIVER = "nvidia.com/gpu", "gpu.nvidia.com"
PREFER_DRA, PREFER_PLUGIN = {"prefer": "dra"}, {"prefer": "plugin"}
CLASS = device_class(DRIVER, f"device.driver == '{DRIVER}'")


def plugin_node(name, amount=None, *, labels=None, **spec):
    """Return a node whose device plugin offers `amount` GPUs."""
    return node(name, allocatable=None if amount is None else {GPU: str(amount)}, labels=labels, **spec)


def published(name, count=4):
    return resource_slice(name, *(device(i) for i in range(count)), driver=DRIVER, pool=name, nodeName=name)


def old_node(name, amount=4, **fields):
    """Return a node that is not migrated: its device plugin offers `amount` GPUs."""
    return [plugin_node(name, amount, **fields)]


def new_node(name, count=4, **fields):
    """Return a migrated node and its ResourceSlice. The kubelet still reports the resource name with the amount 0."""
    return [plugin_node(name, 0, **fields), published(name, count)]


def claim_holding(name, count):
    """Return a claim to which `count` devices of a node are allocated."""
    status = allocated(*(result(f"gpu-{i}", driver=DRIVER, pool=name) for i in range(count)))
    return claim(f"of-{name}", exactly(DRIVER, count=count), namespace="x", uid=name, status=status)


def gpu_pod(name="p", amount=1, *, nodeName="", namespace="ns", **spec):
    amounts = {GPU: amount}
    assignment = {"nodeName": nodeName} if nodeName else {}
    return pod(name, namespace=namespace, limits=amounts, requests=amounts, **assignment, **spec)


IDLE_POD = gpu_pod("idle", 0, nodeName="elsewhere") | {"metadata": {"name": "idle", "namespace": "x"}}
IDLE_POD["spec"]["containers"][0]["resources"] = {"limits": {"example.com/other": 1}}


def state_with(*objects, policy=None, counted=True, **fields):
    """Return the state of a webhook with these objects. `counted` adds a pod without GPUs, so that the pods of the cluster are known."""
    flat = [CLASS, *(IDLE_POD for _ in range(counted))]
    for obj in objects:
        flat += obj if isinstance(obj, list) else [obj]
    if policy is not None:
        fields["mixed"] = {GPU: policy}
    state = state_of_files(manifests.parse(manifests.dump(flat)), configured(mode="enforce", **fields))
    return msgspec.structs.replace(state, keys=(KEY,))


def decision_of(item, state):
    """Return the mechanism that the webhook chooses for a pod, the reason, and the response. A pod in a file must get the same."""
    outcome = reviewing.decide_review("mutate", review(item, namespace=item["metadata"]["namespace"]), state)
    response = answer(outcome)
    assert response["allowed"], response
    translated = "patch" in response
    verdict = decide_object(item, state)
    assert bool(verdict.operations) is translated, "the pod gets another mechanism in a file"
    assert not verdict.refusals
    reasons = {decision.key: decision.basis if translated else decision.detail for decision in outcome.record.decisions}
    reasons_in_file = {
        decision.key: decision.basis if translated else decision.detail for decision in verdict.decisions
    }
    assert reasons[GPU] == reasons_in_file[GPU]
    assert {str(decision.outcome) for decision in outcome.record.decisions} == {"translated" if translated else "left"}
    if not translated:
        assert applied(item, outcome) == item
        assert outcome.record.templates == ()
    return ("dra" if translated else "plugin"), reasons[GPU], response


MIXED = (*old_node("old-1"), *old_node("old-2"), *old_node("old-3"), *new_node("new-1"))
OLD_NODES_FULL = tuple(gpu_pod(f"full-{i}", 4, nodeName=f"old-{i}") for i in (1, 2, 3))
NEW_NODE_FULL = claim_holding("new-1", 4)


def test_without_a_policy_a_key_that_nodes_advertise_is_left_unchanged():
    outcome = reviewing.decide_review("mutate", review(gpu_pod()), state_with(*MIXED))
    assert outcome.record.outcome == "left"
    assert "still serves it" in outcome.record.decisions[0].detail


@pytest.mark.parametrize(
    ("policy", "other_objects", "expected_mechanism", "reason_part"),
    [
        (PREFER_DRA, (), "dra", "nodes with a driver are preferred"),
        (PREFER_PLUGIN, (), "plugin", "nodes with a device plugin are preferred"),
        (
            PREFER_DRA,
            (NEW_NODE_FULL,),
            "plugin",
            "no node with a driver has enough free devices; node old-1, with a device plugin, has enough",
        ),
        (
            PREFER_PLUGIN,
            OLD_NODES_FULL,
            "dra",
            "no node with a device plugin has enough free devices; node new-1, with a driver, has enough",
        ),
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
    assert (
        response["auditAnnotations"]["served-by"]
        == reason.rpartition("publish it as a whole GPU (class gpu.nvidia.com); ")[2]
    )


def test_a_pod_without_the_preferred_mechanism_is_warned():
    assert "warnings" not in decision_of(gpu_pod(), state_with(*MIXED, policy=PREFER_PLUGIN))[2]
    assert "warnings" not in decision_of(gpu_pod(), state_with(*MIXED, policy=PREFER_DRA))[2]
    [warning] = decision_of(gpu_pod(), state_with(*MIXED, NEW_NODE_FULL, policy=PREFER_DRA))[2]["warnings"]
    assert "no node with a driver has enough free devices" in warning
    [warning] = decision_of(gpu_pod(), state_with(*MIXED, *OLD_NODES_FULL, policy=PREFER_PLUGIN))[2]["warnings"]
    assert "node new-1, with a driver, has enough" in warning


def test_an_impossible_mechanism_is_avoided_even_if_preferred():
    wide = state_with(*old_node("old-1", 2), *new_node("new-1", 4), claim_holding("new-1", 4), policy=PREFER_PLUGIN)
    assert decision_of(gpu_pod(amount=4), wide)[0] == "dra"
    narrow = state_with(
        *old_node("old-1", 8),
        *new_node("new-1", 4),
        *new_node("new-2", 4),
        gpu_pod("full", 8, nodeName="old-1"),
        policy=PREFER_DRA,
    )
    mechanism, reason, _ = decision_of(gpu_pod(amount=8), narrow)
    assert mechanism == "plugin"
    assert "no node with a driver could serve this pod" in reason


def test_free_devices_of_several_nodes_do_not_add_up():
    """Four devices are free on nodes with the device plugin, and no node has two of them."""
    ones = [gpu_pod(f"full-{i}", 3, nodeName=f"old-{i}") for i in (1, 2, 3)]
    assert decision_of(gpu_pod(amount=2), state_with(*MIXED, *ones, policy=PREFER_PLUGIN))[0] == "dra"
    assert decision_of(gpu_pod(amount=1), state_with(*MIXED, *ones, policy=PREFER_PLUGIN))[0] == "plugin"


CONSTRAINTS = {
    "its selector": {"nodeSelector": {"pool": "a"}},
    "its affinity": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}]
                }
            }
        }
    },
    "its node's name": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["in-a"]}]}
                    ]
                }
            }
        }
    },
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
    assert (
        decision_of(item, state_with(*new_node("in-a", **in_a), *old_node("in-b", **in_b), policy=PREFER_PLUGIN))[0]
        == "dra"
    )


def test_a_drained_node_has_no_free_devices():
    assert (
        decision_of(
            gpu_pod(), state_with(*old_node("old-1", unschedulable=True), *new_node("new-1"), policy=PREFER_PLUGIN)
        )[0]
        == "dra"
    )
    taint = {"key": "moving", "effect": "NoSchedule"}
    assert (
        decision_of(gpu_pod(), state_with(*old_node("old-1"), *new_node("new-1", taints=[taint]), policy=PREFER_DRA))[0]
        == "plugin"
    )
    tolerant = gpu_pod(tolerations=[{"key": "moving", "operator": "Exists"}])
    assert (
        decision_of(tolerant, state_with(*old_node("old-1"), *new_node("new-1", taints=[taint]), policy=PREFER_DRA))[0]
        == "dra"
    )


def test_pods_that_have_ended_or_have_no_node_use_no_devices():
    ended = gpu_pod("ended", 4, nodeName="old-1") | {"status": {"phase": "Succeeded"}}
    assert (
        decision_of(
            gpu_pod(),
            state_with(*old_node("old-1"), *new_node("new-1"), ended, gpu_pod("waits", 4), policy=PREFER_PLUGIN),
        )[0]
        == "plugin"
    )
    runs = gpu_pod("runs", 4, nodeName="old-1") | {"status": {"phase": "Running"}}
    assert (
        decision_of(gpu_pod(), state_with(*old_node("old-1"), *new_node("new-1"), runs, policy=PREFER_PLUGIN))[0]
        == "dra"
    )


def test_unknown_device_usage_does_not_rule_out_the_preferred_mechanism():
    uncounted = {"counted": False}
    assert decision_of(gpu_pod(), state_with(*MIXED, policy=PREFER_PLUGIN, **uncounted))[0] == "plugin"
    mechanism, reason, _ = decision_of(gpu_pod(), state_with(*MIXED, NEW_NODE_FULL, policy=PREFER_DRA, **uncounted))
    assert mechanism == "dra", "the webhook prefers device plugins without knowing that they have free devices"
    assert "no reachable node has enough free devices" not in reason
    # No device plugin has four GPUs. This is known without counting pods.
    assert (
        decision_of(
            gpu_pod(amount=4), state_with(*old_node("old-1", 2), *new_node("new-1"), policy=PREFER_PLUGIN, **uncounted)
        )[0]
        == "dra"
    )


def test_a_stale_cache_does_not_change_the_mechanism():
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
    outcome = reviewing.decide_review(
        "mutate", review(gpu_pod()), state_with(*old_node("old-1"), *old_node("old-2"), policy=PREFER_DRA)
    )
    assert outcome.record.outcome == "left"


def test_a_namespace_may_have_its_own_policy():
    policy = PREFER_DRA | {"namespaces": {"slow": PREFER_PLUGIN}}
    assert decision_of(gpu_pod(), state_with(*MIXED, policy=policy))[0] == "dra"
    mechanism, reason, _ = decision_of(gpu_pod(namespace="slow"), state_with(*MIXED, policy=policy))
    assert mechanism == "plugin"
    assert "in namespace slow nodes with a device plugin are preferred" in reason


def test_pods_that_require_a_node_with_these_labels_prefer_drivers():
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
    item["metadata"] |= {
        "labels": {"pod-template-hash": "5d9"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": True}],
    }
    return item


def test_a_growing_percentage_only_adds_workloads():
    translated_names = {}
    for percent in (0, 20, 60, 100):
        state = state_with(*MIXED, policy={"percent": percent})
        translated_names[percent] = {
            name for name in map(str, range(40)) if decision_of(gpu_pod(name), state)[0] == "dra"
        }
        assert translated_names[percent] == {
            name for name in map(str, range(40)) if decision_of(gpu_pod(name), state)[0] == "dra"
        }
    assert not translated_names[0]
    assert translated_names[0] < translated_names[20] < translated_names[60] < translated_names[100]
    assert len(translated_names[100]) == 40
    half_of_workloads = state_with(*MIXED, policy={"percent": 50})
    assert len({decision_of(owned_pod(number), half_of_workloads)[0] for number in range(8)}) == 1, (
        "the pods of a workload stay together"
    )


def test_a_deployment_in_a_file_is_decided_like_its_pods():
    half_of_workloads = state_with(*MIXED, policy={"percent": 50})
    for name in map("app-{}".format, range(12)):
        template = {"metadata": {"labels": {"a": "b"}}, "spec": gpu_pod()["spec"]}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
        item = owned_pod(1, name=f"{name}-5d9")
        assert bool(decide_object(deployment, half_of_workloads).operations) is (
            decision_of(item, half_of_workloads)[0] == "dra"
        )


def test_observe_and_warn_decide_equally_without_changes():
    for mode in ("observe", "warn"):
        for policy, outcome_ in ((PREFER_PLUGIN, "left"), (PREFER_DRA, "would translate")):
            state = state_with(*MIXED, policy=policy)
            state = msgspec.structs.replace(state, namespaces={"ns": {MODE_LABEL: mode}})
            outcome = reviewing.decide_review("mutate", review(gpu_pod(), namespace="ns"), state)
            assert outcome.record.outcome == outcome_
            assert "patch" not in answer(outcome)


def test_a_pod_with_its_own_claims_is_translated_despite_the_policy():
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


def test_a_lying_node_affects_only_itself():
    """A compromised node that reports free devices attracts pods, with and without drawbridge. It does not hide free devices of other nodes."""
    lying_node = plugin_node("liar", 10**9)
    assert decision_of(gpu_pod(), state_with(*MIXED, lying_node, policy=PREFER_DRA))[0] == "dra"
    assert decision_of(gpu_pod(), state_with(*MIXED, plugin_node("liar", -4), policy=PREFER_PLUGIN))[0] == "plugin"
    pod_on_lying_node = gpu_pod("beyond", 10**9, nodeName="liar")
    assert (
        decision_of(gpu_pod(), state_with(*MIXED, lying_node, pod_on_lying_node, policy=PREFER_PLUGIN))[0] == "plugin"
    )


def test_labels_for_shared_gpus_take_precedence():
    """A policy states which nodes are preferred, not what a unit means. Replicas of a GPU stay with their device plugin."""
    shared = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    nodes = [node for i in range(3) for node in old_node(f"shared-{i}", labels=shared)]
    outcome = reviewing.decide_review(
        "mutate", review(gpu_pod()), state_with(*nodes, *new_node("new-1"), policy=PREFER_DRA)
    )
    assert outcome.record.outcome == "left"
    assert "time-slicing" in outcome.record.decisions[0].detail


def test_a_device_plugin_workload_has_no_claim_warnings():
    template = {"metadata": {"labels": {"a": "b"}}, "spec": gpu_pod(amount=4)["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "app", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }

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
    assert 10**6 - budget.left < 400


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
