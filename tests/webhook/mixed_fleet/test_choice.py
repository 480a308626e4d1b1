"""In a mixed fleet a pod gets its devices from a device plugin or by a claim; the webhook and the files report which, and why."""

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
DRA, PLUGIN = {"prefer": "dra"}, {"prefer": "plugin"}
CLASS = device_class(DRIVER, f"device.driver == '{DRIVER}'")


def plugin_node(name, amount=None, *, labels=None, **spec):
    """Return a node whose device plugin offers `amount` GPUs."""
    return node(name, allocatable=None if amount is None else {GPU: str(amount)}, labels=labels, **spec)


def published(name, count=4):
    return resource_slice(name, *(device(i) for i in range(count)), driver=DRIVER, pool=name, nodeName=name)


def old(name, amount=4, **more):
    """Return a node that is not migrated: its device plugin offers `amount` GPUs."""
    return [plugin_node(name, amount, **more)]


def new(name, count=4, **more):
    """A migrated node; its kubelet still reports the resource name with the amount 0."""
    return [plugin_node(name, 0, **more), published(name, count)]


def held(name, count):
    """Return a claim that holds `count` devices of a node."""
    status = allocated(*(result(f"gpu-{i}", driver=DRIVER, pool=name) for i in range(count)))
    return claim(f"of-{name}", exactly(DRIVER, count=count), namespace="x", uid=name, status=status)


def gpu_pod(name="p", amount=1, *, nodeName="", namespace="ns", **spec):
    amounts = {GPU: amount}
    where = {"nodeName": nodeName} if nodeName else {}
    return pod(name, namespace=namespace, limits=amounts, requests=amounts, **where, **spec)


IDLE = gpu_pod("idle", 0, nodeName="elsewhere") | {"metadata": {"name": "idle", "namespace": "x"}}
IDLE["spec"]["containers"][0]["resources"] = {"limits": {"example.com/other": 1}}


def fleet(*objects, policy=None, counted=True, **fields):
    """Return the state with these objects; `counted` adds an idle pod, so that the pods of the cluster count as known."""
    flat = [CLASS, *(IDLE for _ in range(counted))]
    for obj in objects:
        flat += obj if isinstance(obj, list) else [obj]
    if policy is not None:
        fields["mixed"] = {GPU: policy}
    state = state_of_files(manifests.parse(manifests.dump(flat)), configured(mode="enforce", **fields))
    return msgspec.structs.replace(state, keys=(KEY,))


def decided(item, world):
    """Return the mechanism that the webhook chooses for a pod, the reason, and the response, after a check that a file gets the same."""
    outcome = reviewing.decide_review("mutate", review(item, namespace=item["metadata"]["namespace"]), world)
    response = answer(outcome)
    assert response["allowed"], response
    translated = "patch" in response
    verdict = decide_object(item, world)
    assert bool(verdict.operations) is translated, "files and webhook agree"
    assert not verdict.refusals
    reasons = {decision.key: decision.basis if translated else decision.detail for decision in outcome.record.decisions}
    filed = {decision.key: decision.basis if translated else decision.detail for decision in verdict.decisions}
    assert reasons[GPU] == filed[GPU]
    assert {str(decision.outcome) for decision in outcome.record.decisions} == {"translated" if translated else "left"}
    if not translated:
        assert applied(item, outcome) == item
        assert outcome.record.templates == ()
    return ("dra" if translated else "plugin"), reasons[GPU], response


MIXED = (*old("old-1"), *old("old-2"), *old("old-3"), *new("new-1"))
OLD_FULL = tuple(gpu_pod(f"full-{i}", 4, nodeName=f"old-{i}") for i in (1, 2, 3))
NEW_FULL = held("new-1", 4)


def test_without_a_policy_advertising_nodes_keep_the_key():
    outcome = reviewing.decide_review("mutate", review(gpu_pod()), fleet(*MIXED))
    assert outcome.record.outcome == "left"
    assert "still serves it" in outcome.record.decisions[0].detail


@pytest.mark.parametrize(
    ("policy", "besides", "side", "words"),
    [
        (DRA, (), "dra", "nodes with a driver are preferred"),
        (PLUGIN, (), "plugin", "nodes with a device plugin are preferred"),
        (
            DRA,
            (NEW_FULL,),
            "plugin",
            "no node with a driver has enough free devices; node old-1, with a device plugin, has enough",
        ),
        (
            PLUGIN,
            OLD_FULL,
            "dra",
            "no node with a device plugin has enough free devices; node new-1, with a driver, has enough",
        ),
        (DRA, (NEW_FULL, *OLD_FULL), "dra", "no reachable node has enough free devices"),
        (PLUGIN, (NEW_FULL, *OLD_FULL), "plugin", "no reachable node has enough free devices"),
        (PLUGIN, OLD_FULL[:2], "plugin", "nodes with a device plugin are preferred"),
    ],
    ids=["dra", "plugin", "dra is full", "plugins are full", "all full, dra", "all full, plugin", "one node is free"],
)
def test_the_preferred_mechanism_is_used_unless_only_it_is_full(policy, besides, side, words):
    went, why, response = decided(gpu_pod(), fleet(*MIXED, *besides, policy=policy))
    assert went == side
    assert words in why
    assert (
        response["auditAnnotations"]["served-by"]
        == why.rpartition("publish it as a whole GPU (class gpu.nvidia.com); ")[2]
    )


def test_a_pod_without_the_preferred_mechanism_is_warned():
    assert "warnings" not in decided(gpu_pod(), fleet(*MIXED, policy=PLUGIN))[2]
    assert "warnings" not in decided(gpu_pod(), fleet(*MIXED, policy=DRA))[2]
    [warning] = decided(gpu_pod(), fleet(*MIXED, NEW_FULL, policy=DRA))[2]["warnings"]
    assert "no node with a driver has enough free devices" in warning
    [warning] = decided(gpu_pod(), fleet(*MIXED, *OLD_FULL, policy=PLUGIN))[2]["warnings"]
    assert "node new-1, with a driver, has enough" in warning


def test_an_impossible_mechanism_is_avoided_even_if_preferred():
    wide = fleet(*old("old-1", 2), *new("new-1", 4), held("new-1", 4), policy=PLUGIN)
    assert decided(gpu_pod(amount=4), wide)[0] == "dra"
    narrow = fleet(
        *old("old-1", 8), *new("new-1", 4), *new("new-2", 4), gpu_pod("full", 8, nodeName="old-1"), policy=DRA
    )
    side, why, _ = decided(gpu_pod(amount=8), narrow)
    assert side == "plugin"
    assert "no node with a driver could serve this pod" in why


def test_devices_spread_over_nodes_serve_no_pod():
    """Four devices are free on nodes with the device plugin, and no node has two of them."""
    ones = [gpu_pod(f"full-{i}", 3, nodeName=f"old-{i}") for i in (1, 2, 3)]
    assert decided(gpu_pod(amount=2), fleet(*MIXED, *ones, policy=PLUGIN))[0] == "dra"
    assert decided(gpu_pod(amount=1), fleet(*MIXED, *ones, policy=PLUGIN))[0] == "plugin"


WHERE = {
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


@pytest.mark.parametrize("where", WHERE.values(), ids=WHERE)
def test_a_pod_goes_to_its_only_possible_mechanism(where):
    in_a, in_b = {"labels": {"pool": "a"}}, {"labels": {"pool": "b"}}
    item = gpu_pod(**where)
    side, why, _ = decided(item, fleet(*old("in-a", **in_a), *new("in-b", **in_b), policy=DRA))
    assert side == "plugin"
    assert why == "0 of 1 reachable nodes serve claims, and node in-a serves nvidia.com/gpu by a device plugin"
    assert decided(item, fleet(*new("in-a", **in_a), *old("in-b", **in_b), policy=PLUGIN))[0] == "dra"


def test_a_drained_node_has_no_free_devices():
    assert decided(gpu_pod(), fleet(*old("old-1", unschedulable=True), *new("new-1"), policy=PLUGIN))[0] == "dra"
    taint = {"key": "moving", "effect": "NoSchedule"}
    assert decided(gpu_pod(), fleet(*old("old-1"), *new("new-1", taints=[taint]), policy=DRA))[0] == "plugin"
    tolerant = gpu_pod(tolerations=[{"key": "moving", "operator": "Exists"}])
    assert decided(tolerant, fleet(*old("old-1"), *new("new-1", taints=[taint]), policy=DRA))[0] == "dra"


def test_pods_that_have_ended_or_have_no_node_hold_nothing():
    ended = gpu_pod("ended", 4, nodeName="old-1") | {"status": {"phase": "Succeeded"}}
    assert (
        decided(gpu_pod(), fleet(*old("old-1"), *new("new-1"), ended, gpu_pod("waits", 4), policy=PLUGIN))[0]
        == "plugin"
    )
    runs = gpu_pod("runs", 4, nodeName="old-1") | {"status": {"phase": "Running"}}
    assert decided(gpu_pod(), fleet(*old("old-1"), *new("new-1"), runs, policy=PLUGIN))[0] == "dra"


def test_unknown_device_usage_does_not_rule_out_the_preferred_mechanism():
    uncounted = {"counted": False}
    assert decided(gpu_pod(), fleet(*MIXED, policy=PLUGIN, **uncounted))[0] == "plugin"
    side, why, _ = decided(gpu_pod(), fleet(*MIXED, NEW_FULL, policy=DRA, **uncounted))
    assert side == "dra", "it is not known that the others have a free one"
    assert "no reachable node has enough free devices" not in why
    # No device plugin has four GPUs. This is known without counting pods.
    assert decided(gpu_pod(amount=4), fleet(*old("old-1", 2), *new("new-1"), policy=PLUGIN, **uncounted))[0] == "dra"


def test_a_stale_cache_does_not_change_the_mechanism():
    world = msgspec.structs.replace(fleet(*MIXED, *OLD_FULL, policy=PLUGIN), stock=None, confirmed=False)
    outcome = reviewing.decide_review("mutate", review(gpu_pod()), world)
    assert outcome.record.outcome == "left"
    assert "free devices are not known" in outcome.record.decisions[0].detail


def test_the_policy_ends_when_all_nodes_have_moved():
    side, why, response = decided(gpu_pod(), fleet(*new("new-1"), *new("new-2"), policy=PLUGIN))
    assert side == "dra"
    assert "served-by" not in response["auditAnnotations"]
    assert "prefer" not in why


def test_before_any_node_has_moved_every_key_is_left_unchanged():
    outcome = reviewing.decide_review("mutate", review(gpu_pod()), fleet(*old("old-1"), *old("old-2"), policy=DRA))
    assert outcome.record.outcome == "left"


def test_a_namespace_may_have_its_own_policy():
    policy = DRA | {"namespaces": {"slow": PLUGIN}}
    assert decided(gpu_pod(), fleet(*MIXED, policy=policy))[0] == "dra"
    side, why, _ = decided(gpu_pod(namespace="slow"), fleet(*MIXED, policy=policy))
    assert side == "plugin"
    assert "in namespace slow nodes with a device plugin are preferred" in why


def test_pods_that_require_a_node_with_these_labels_prefer_drivers():
    """All nodes have the label, so that nothing but the policy decides."""
    both = {"labels": {"tier": "fast"}}
    world = fleet(*old("old-1", **both), *new("new-1", **both), policy={"nodeSelector": {"tier": "fast"}})
    assert decided(gpu_pod(nodeSelector={"tier": "fast"}), world)[0] == "dra"
    side, why, _ = decided(gpu_pod(), world)
    assert side == "plugin"
    assert "does not require a node with tier=fast" in why


def owned(number, kind="ReplicaSet", name="web-5d9"):
    item = gpu_pod(f"{name}-{number}")
    item["metadata"] |= {
        "labels": {"pod-template-hash": "5d9"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": True}],
    }
    return item


def test_a_growing_percentage_only_adds_workloads():
    sides = {}
    for percent in (0, 20, 60, 100):
        world = fleet(*MIXED, policy={"percent": percent})
        sides[percent] = {name for name in map(str, range(40)) if decided(gpu_pod(name), world)[0] == "dra"}
        assert sides[percent] == {name for name in map(str, range(40)) if decided(gpu_pod(name), world)[0] == "dra"}
    assert not sides[0]
    assert sides[0] < sides[20] < sides[60] < sides[100]
    assert len(sides[100]) == 40
    half = fleet(*MIXED, policy={"percent": 50})
    assert len({decided(owned(number), half)[0] for number in range(8)}) == 1, "the pods of a workload stay together"


def test_a_deployment_in_a_file_is_decided_like_its_pods():
    half = fleet(*MIXED, policy={"percent": 50})
    for name in map("app-{}".format, range(12)):
        template = {"metadata": {"labels": {"a": "b"}}, "spec": gpu_pod()["spec"]}
        deployment = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
        item = owned(1, name=f"{name}-5d9")
        assert bool(decide_object(deployment, half).operations) is (decided(item, half)[0] == "dra")


def test_observe_and_warn_decide_equally_without_changes():
    for mode in ("observe", "warn"):
        for policy, would in ((PLUGIN, "left"), (DRA, "would translate")):
            world = fleet(*MIXED, policy=policy)
            world = msgspec.structs.replace(world, namespaces={"ns": {MODE_LABEL: mode}})
            outcome = reviewing.decide_review("mutate", review(gpu_pod(), namespace="ns"), world)
            assert outcome.record.outcome == would
            assert "patch" not in answer(outcome)


def test_a_pod_with_claims_of_its_own_has_no_choice():
    item = gpu_pod(resourceClaims=[{"name": "own", "resourceClaimName": "c"}])
    outcome = reviewing.decide_review("mutate", review(item), fleet(*MIXED, policy=PLUGIN))
    assert outcome.record.outcome == "translated"


def test_a_translated_pod_stays_translated_on_reinvocation():
    """After another webhook's change the API server calls the webhook again. The devices may be in use by then."""
    before = fleet(*MIXED, policy=DRA)
    after = applied(gpu_pod(), reviewing.decide_review("mutate", review(gpu_pod()), before))
    full = fleet(*MIXED, NEW_FULL, policy=DRA)
    outcome = reviewing.decide_review("mutate", review(after), full)
    assert "patch" not in answer(outcome)


def test_a_lying_node_affects_only_itself():
    """A stolen node that reports free devices attracts pods, with and without drawbridge. It does not hide free devices of other nodes."""
    liar = plugin_node("liar", 10**9)
    assert decided(gpu_pod(), fleet(*MIXED, liar, policy=DRA))[0] == "dra"
    assert decided(gpu_pod(), fleet(*MIXED, plugin_node("liar", -4), policy=PLUGIN))[0] == "plugin"
    beyond = gpu_pod("beyond", 10**9, nodeName="liar")
    assert decided(gpu_pod(), fleet(*MIXED, liar, beyond, policy=PLUGIN))[0] == "plugin"


def test_labels_for_shared_gpus_take_precedence():
    """A policy states which nodes are preferred, not what a unit means: replicas stay with their plugin."""
    shared = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    nodes = [node for i in range(3) for node in old(f"shared-{i}", labels=shared)]
    outcome = reviewing.decide_review("mutate", review(gpu_pod()), fleet(*nodes, *new("new-1"), policy=DRA))
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
        world = fleet(*MIXED, NEW_FULL, *OLD_FULL, policy=policy)
        return answer(
            reviewing.decide_review("validate", review(deployment, group="apps", resource="deployments"), world)
        ).get("warnings", [])

    assert any("waits until devices are free" in text for text in warnings_with(DRA))
    assert warnings_with(PLUGIN) == []


def test_each_node_is_examined_once_per_question():
    many = [obj for i in range(60) for obj in (*old(f"o-{i}", 1), *new(f"n-{i}", 1))]
    held_by = [gpu_pod(f"f-{i}", 1, nodeName=f"o-{i}") for i in range(60)]
    world = fleet(*many, *held_by, policy=PLUGIN)
    preference = read_preference(gpu_pod(), workload("ns", {}), ["nvidia.com/gpu"], world)
    spent = Budget(10**6)
    chosen = choose(preference, [], world, spent)
    assert chosen is not None
    assert 10**6 - spent.left < 400


@pytest.mark.parametrize("terms", [8, 200])
def test_very_many_node_selector_terms_cost_little(terms):
    """Each term costs a scan of the nodes, so their number is limited: a pod with more terms counts as able to reach every node."""
    expressions = [{"key": f"pool-{at}", "operator": "NotIn", "values": ["v"]} for at in range(4)]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}] * terms}
    wordy = gpu_pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    many = [node for i in range(60) for node in old(f"o-{i}", 1)]
    for policy, side in ((PLUGIN, "plugin"), (DRA, "dra")):
        world = fleet(*many, *new("new-1"), policy=policy)
        assert decided(wordy, world)[0] == side
        budget = Budget(10**6)
        assert len(NodeIndex(world.fleet.nodes).reach(node_constraints(wordy["spec"]), budget).nodes) == 61
        assert budget.spent < 1_000
