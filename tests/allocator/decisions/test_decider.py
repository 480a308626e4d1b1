"""Decisions about a pod: which nodes can serve it, with scores and reasons."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.decisions import (
    Decider,
    Outlook,
    Serving,
    advice,
    devices_ready,
    find_claims,
    with_pods,
)
from allocator.decisions import decider as deciders
from allocator.one_node import Options
from allocator.preemption import without_pods
from allocator.strategies import DEFAULT, STRATEGIES, StrategyCache, choose_devices, node_view, read_placement
from dra import step_limits
from dra.budget import Budget
from dra.objects import Device, DeviceClass, Node, PodExtendedResourceClaimStatus, ResourceClaim
from dra.stock import Stock
from dra.wire import convert
from tests.allocator import fleets
from tests.allocator.service import sidecar
from tests.draws import draws
from tests.objects import exactly, typed


def stock_of(*claims, nodes=2, per_node=2):
    stock = Stock.of()
    for obj in (*sidecar.fleet(nodes, per_node), *claims):
        stock = stock.with_object(obj if isinstance(obj, ResourceClaim) else typed(obj))
    return stock


def typed_pod(name, *claims, **fields):
    return typed(sidecar.pod(name, *claims, **fields))


def granted(name, count, stock, node, *pods):
    """Return a claim that is allocated on a node and reserved for some pods."""
    requesting_pod = typed_pod("x", name)
    allocation = Decider().serve(requesting_pod, node, stock).answer.allocations[0].allocation
    consumers = [{"resource": "pods", "name": pod, "uid": f"pod-{pod}"} for pod in pods]
    raw = sidecar.claim(name, count) | {"status": {"reservedFor": consumers}}
    claim = typed(raw)
    return replace(claim, status=replace(claim.status, allocation=allocation))


def test_a_full_fleet_and_an_unsuitable_fleet_have_different_outlooks():
    stock = stock_of(sidecar.claim("all", 2), sidecar.claim("one"), sidecar.claim("three", 3), nodes=1)
    full_stock = stock.with_object(granted("all", 2, stock, "n0", "x"))
    decider = Decider()
    assert decider.outlook(typed_pod("p", "one"), stock).outlook is Outlook.FITS
    assert decider.outlook(typed_pod("p", "one"), full_stock).outlook is Outlook.FULL
    assert decider.outlook(typed_pod("p", "three"), full_stock).outlook is Outlook.NEVER


def test_the_message_counts_every_node_by_its_commonest_reason():
    stock = stock_of(sidecar.claim("two", 2), nodes=3)
    single = typed(sidecar.gpus("n2", 1))
    fleet_outlook = Decider().outlook(typed_pod("p", "two", nodeName=""), stock.with_object(single))
    assert fleet_outlook.outlook is Outlook.FITS
    assert [(hindrance.count, hindrance.nodes) for hindrance in fleet_outlook.hindrances] == [(1, ("n2",))]
    assert Decider().outlook(typed_pod("p", "two"), Stock.of()).message


def test_a_pinned_pod_gets_the_reasons_of_its_nodes_first():
    """The pod's node selector permits three nodes: two without devices, and a full one. Devices are free on the other eleven nodes."""
    stock = stock_of(sidecar.claim("one"), sidecar.claim("all", 2), nodes=14)
    for i in range(14):
        labels = {"zone": "b"} if i < 3 else {}
        meta = {"name": f"n{i}", "labels": labels}
        spec = {"taints": [{"key": f"team-{i}", "effect": "NoSchedule"}], "unschedulable": i > 8} if i > 5 else {}
        stock = stock.with_object(convert({"metadata": meta, "spec": spec}, Node))
    for i in (0, 1):  # nodes without devices
        stock = stock.with_object(typed(sidecar.gpus(f"n{i}", 0)))
    stock = stock.with_object(granted("all", 2, stock, "n2", "x"))
    pinned = typed_pod("p", "one", nodeSelector={"zone": "b"})
    fleet_outlook = Decider().outlook(pinned, stock)
    assert fleet_outlook.outlook is Outlook.FULL
    assert [hindrance.nodes for hindrance in fleet_outlook.hindrances[:2]] == [("n2",), ("n0", "n1")]
    not_selected = "node(s) didn't match Pod's node affinity/selector"
    assert fleet_outlook.message.startswith(
        "0 of 14 nodes can serve the claims: 1 node(s) cannot serve request r: 2 of 2 devices are in use: held by"
    )
    assert fleet_outlook.message.endswith(
        f"; 5 node(s) were unschedulable and node(s) had untolerated taint(s) and {not_selected}; 3 {not_selected}; 3 node(s) for other reasons"
    )
    assert advice(pinned, stock, fleet_outlook.hindrances) == "nearest is n2: would fit once default/all ends"
    nowhere = typed_pod("p", "one", nodeSelector={"zone": "c"})
    assert Decider().outlook(nowhere, stock).outlook is Outlook.FITS  # the scheduler checks the node selector
    for name in [name for name in stock.nodes if name not in ("n0", "n1", "n2")]:
        stock = stock.with_object(typed(sidecar.gpus(name, 0)))
    fleet_outlook = Decider().outlook(nowhere, stock)
    assert fleet_outlook.outlook is Outlook.NEVER
    assert "in use" not in fleet_outlook.message
    assert advice(nowhere, stock, fleet_outlook.hindrances) == ""


def test_a_strategy_scores_nodes_differently_and_equal_nodes_equally():
    stock = stock_of(sidecar.claim("held"), sidecar.claim("one"), nodes=3)
    used = stock.with_object(granted("held", 1, stock, "n1", "x"))
    scores = Decider().outlook(typed_pod("p", "one"), used, read_placement("CompactFirst")).nodes
    assert scores["n1"] > scores["n0"] == scores["n2"]
    spread = Decider().outlook(typed_pod("p", "one"), used, read_placement("LowLoadFirst")).nodes
    assert spread["n1"] < spread["n0"] == spread["n2"]


def test_nodes_beyond_the_budget_fit_with_score_zero(monkeypatch):
    """Without a budget, 300 nodes that share 3,200 devices with node selectors take ten seconds for each pod."""
    looked_at = []
    numbered = node_view._numbered
    monkeypatch.setattr(node_view, "_numbered", lambda sites: looked_at.append(len(sites)) or numbered(sites))
    stock = stock_of(sidecar.claim("one"), nodes=80, per_node=8)
    fleet_outlook = Decider().outlook(typed_pod("p", "one"), stock, read_placement("topology"))
    assert min(fleet_outlook.nodes.values()) > 0
    assert sum(looked_at) == 80 * 8
    looked_at.clear()
    monkeypatch.setattr(step_limits, "QUESTION", 1_000)
    fleet_outlook = Decider().outlook(typed_pod("p", "one"), stock, read_placement("topology"))
    assert set(fleet_outlook.nodes.values()) == {0}
    assert len(fleet_outlook.nodes) == 80
    assert sum(looked_at) <= 1_000 / 2


def test_foreign_and_terminating_template_claims_are_not_used():
    mine = sidecar.claim("made")
    mine["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-p", "controller": True}]  # fmt: skip
    going = sidecar.claim("going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stock = stock_of(mine, going)
    entry = {"name": "g", "resourceClaimTemplateName": "t"}
    status = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "made"}]}

    def owner(name):
        return typed(sidecar.pod(name, resourceClaims=[entry]) | {"status": status})

    assert find_claims(owner("p"), stock).waits_for == ""
    assert "not created for this pod" in find_claims(owner("q"), stock).waits_for
    assert "being deleted" in find_claims(typed_pod("r", "going"), stock).waits_for


@pytest.mark.parametrize(("consumers", "waits"), [(255, False), (256, True)])
def test_a_claim_that_256_pods_share_has_no_room(consumers, waits):
    stock = stock_of(sidecar.claim("a"))
    shared = granted("a", 1, stock, "n0", *(f"u{i}" for i in range(consumers)))
    assert bool(find_claims(typed_pod("p", "a"), stock.with_object(shared)).waits_for) is waits
    assert find_claims(typed_pod("u0", "a"), stock.with_object(shared)).waits_for == ""


def test_earlier_pods_take_devices_and_leaving_pods_return_them():
    stock = stock_of(sidecar.claim("a"), sidecar.claim("b"), nodes=1, per_node=1)
    first = with_pods(stock, "n0", [typed_pod("p", "a")])
    decider = Decider()
    assert isinstance(decider.serve(typed_pod("q", "b"), "n0", first, uncached=Options()), str)
    held = stock.with_object(granted("a", 1, stock, "n0", "p", "other"))
    still = without_pods(held, [typed_pod("p", "a")])
    assert isinstance(decider.serve(typed_pod("q", "b"), "n0", still, uncached=Options()), str)
    free = without_pods(held, [typed_pod("p", "a"), typed_pod("other", "a")])
    assert not isinstance(decider.serve(typed_pod("q", "b"), "n0", free, uncached=Options()), str)


NAMED = {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": sidecar.device_class()["spec"] | {"extendedResourceName": "example.com/gpu"}}  # fmt: skip
CONTAINER = st.fixed_dictionaries({"limits": st.fixed_dictionaries({"example.com/gpu": st.integers(0, 3).map(str), "cpu": st.just("1")})})  # fmt: skip
STARTING = st.tuples(CONTAINER, st.sampled_from(["", "Always"]))


@given(st.lists(STARTING, max_size=3), st.lists(CONTAINER, min_size=1, max_size=3), st.integers(1, 4))
@settings(max_examples=draws(60), deadline=None)
def test_an_extended_resource_is_decided_like_its_claim(starting, containers, each):
    """A pod that requests an extended resource gets the same answer before its claim exists and after its status names the claim."""
    init = [
        {"name": f"i{i}", "resources": resources, "restartPolicy": policy}
        for i, (resources, policy) in enumerate(starting)
    ]
    main = [{"name": f"c{i}", "resources": resources} for i, resources in enumerate(containers)]
    stock = stock_of(nodes=2, per_node=each).with_object(convert(NAMED, DeviceClass))
    thought = typed_pod("p", initContainers=init, containers=main)
    before = find_claims(thought, stock)
    fleet_outlook = Decider().outlook(thought, stock)
    if before.uncreated is None:
        assert fleet_outlook.outlook is Outlook.SKIP
        return
    claim, mappings = before.uncreated
    claim = replace(claim, metadata=replace(claim.metadata, uid="u"))
    status = PodExtendedResourceClaimStatus(request_mappings=mappings, resource_claim_name=claim.metadata.name)
    assigned_pod = replace(thought, status=replace(thought.status, extended_resource_claim_status=status))
    claims = find_claims(assigned_pod, stock.with_object(claim))
    assert (claims.claims, claims.uncreated, claims.waits_for) == ((claim,), None, "")
    later = Decider().outlook(assigned_pod, stock.with_object(claim))
    assert (later.outlook, later.nodes) == (fleet_outlook.outlook, fleet_outlook.nodes)
    assert (fleet_outlook.outlook is Outlook.FITS) == (most_at_once(init, main) <= each)


def most_at_once(init, main):
    """Return how many devices the containers of a pod use at the same time, by Kubernetes' rule for the requests of a pod."""
    count = lambda container_: int(container_["resources"]["limits"]["example.com/gpu"])  # noqa: E731
    lasting = maximum = 0
    for container_ in init:
        if container_["restartPolicy"] == "Always":
            lasting += count(container_)
            maximum = max(maximum, lasting)
        else:
            maximum = max(maximum, lasting + count(container_))
    return max(maximum, lasting + sum(map(count, main)))


def conditioned(*true):
    result = {"request": "r", "driver": "d", "pool": "n0", "device": "x", "bindingConditions": ["Ready", "Linked"], "bindingFailureConditions": ["Broken"]}  # fmt: skip
    conditions = [{"type": type_, "status": "True"} for type_ in true]
    entry = {"driver": "d", "pool": "n0", "device": "x", "conditions": conditions}
    status = {"allocation": {"devices": {"results": [result]}}, "devices": [entry] if true else []}
    return typed(sidecar.claim("a") | {"status": status})


def test_devices_are_ready_when_all_binding_conditions_are_true():
    assert devices_ready([conditioned()]).waits_for == "waits for device x of d to report Ready, Linked"
    assert devices_ready([conditioned("Ready")]).waits_for == "waits for device x of d to report Linked"
    ready = devices_ready([conditioned("Ready", "Linked")])
    assert (ready.failed, ready.waits_for) == ("", "")
    assert devices_ready([conditioned("Ready", "Linked", "Broken")]).failed == "device x of d reports Broken"


@pytest.mark.parametrize(
    ("kind", "words"),
    [("PodGroup", "claim made was created from a template of PodGroup pair, which is not supported"), ("Pod", "claim made was not created for this pod")],
)  # fmt: skip
def test_a_template_claim_of_another_owner_is_reported(kind, words):
    raw = sidecar.claim("made")
    raw["metadata"]["ownerReferences"] = [{"kind": kind, "name": "pair", "uid": "u", "controller": True}]
    entry = {"name": "made", "resourceClaimTemplateName": "t"}
    status = {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "made"}]}
    asking = typed(sidecar.pod("p", resourceClaims=[entry]) | {"status": status})
    fleet_outlook = Decider().outlook(asking, stock_of(typed(raw)))
    assert fleet_outlook.outlook is Outlook.WAITING
    assert fleet_outlook.message.startswith(words)


def test_a_device_that_consumes_node_cpu_is_refused():
    """If the allocator decides, nothing counts the CPU that the device uses, because the scheduler plugin for this is off."""
    stock = stock_of(typed(sidecar.claim("a")), nodes=1, per_node=1)
    [slice_] = stock.slices.values()
    assert isinstance(Decider().serve(typed_pod("p", "a"), "n0", stock), Serving)
    taking = {"cpu": {"mapping": {"deviceMultiplier": "4"}}}
    device = convert({"name": "gpu-0", "nodeAllocatableResources": taking}, Device)
    changed = replace(slice_, spec=replace(slice_.spec, devices=(device,)))
    refusal = Decider().serve(typed_pod("p", "a"), "n0", stock.with_object(changed))
    assert isinstance(refusal, str)
    assert "device gpu.example.com/n0/gpu-0 uses cpu of the node" in refusal
    assert "let the default scheduler place the pod" in refusal


# ---- scores of nodes


def pairs(count=12):
    """Return a fleet of nodes with two GPUs each. On every third node the two GPUs share a PCIe root."""
    roots = {f"n{n}": ("r0", "r0" if n % 3 == 0 else "r1") for n in range(count)}
    return fleets.fleet(
        {name: [fleets.gpu(f"gpu-{i}", root=f"{name}-{root}") for i, root in enumerate(roots_of_node)] for name, roots_of_node in roots.items()},
        labels={name: {"rack": f"rack-{number % 2}"} for number, name in enumerate(roots)},
    )  # fmt: skip


def scores(stock, strategy):
    stock_with_claim = stock.with_object(fleets.claim("two", exactly("gpu", count=2)))
    return Decider().outlook(typed_pod("p", "two"), stock_with_claim, read_placement(strategy)).nodes


def scores_of_each(stock, strategy):
    """Return the strategy's score of each node alone, without any cache."""
    claim = fleets.claim("two", exactly("gpu", count=2))
    return {node: round(choose_devices(stock, node, [claim], strategy=strategy).score) for node in stock.nodes}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != DEFAULT])
def test_nodes_are_scored_once_if_equal_to_the_strategy(strategy):
    stock = pairs()
    assert scores(stock, strategy) == scores_of_each(stock, strategy)


def test_all_callers_weigh_hardware_by_the_largest_of_the_fleet():
    """Weighed by the largest device of each node, n1 would have the higher score. Weighed by the largest device of the fleet, n0 has."""

    def gpu(name, memory, cores):
        device = fleets.shared(name, memory)
        return device | {"capacity": {**device["capacity"], "cores": {"value": cores}}}

    stock = fleets.fleet(
        {
            "n0": [gpu("gpu-0", "80Gi", "10"), gpu("gpu-1", "40Gi", "50")],
            "n1": [gpu("gpu-0", "16Gi", "10"), gpu("gpu-1", "16Gi", "100")],
        }
    )
    claim = fleets.claim("one", exactly("gpu", memory="8Gi"))
    ask = partial(choose_devices, strategy="CompactFirst", cache=StrategyCache())
    simulated = {node: round(ask(stock, node, [claim]).score) for node in stock.nodes}
    alone = {node: round(choose_devices(stock, node, [claim], strategy="CompactFirst").score) for node in stock.nodes}
    decider = Decider()
    live = decider.outlook(typed_pod("p", "one"), stock.with_object(claim), read_placement("CompactFirst")).nodes
    assert live == simulated == alone == {"n0": 29, "n1": 15}
    [large] = fleets.fleet({"n2": [gpu("gpu-0", "800Gi", "10")]}).slices.values()
    # The larger device changes the weights, so what the cache holds is invalid.
    with_larger_device = stock.with_all([claim, large])
    scores_later = {node: round(ask(with_larger_device, node, [claim]).score) for node in stock.nodes}
    live = decider.outlook(typed_pod("p", "one"), with_larger_device, read_placement("CompactFirst")).nodes
    assert {node: live[node] for node in stock.nodes} == scores_later != simulated


def test_nodes_are_judged_within_one_budget(monkeypatch):
    """One budget is for the search, and one for the scores of all nodes. Scoring does not match slices with nodes again."""
    budgets, matched, pools = [], [], Stock.pools
    monkeypatch.setattr(deciders, "Budget", lambda *args, **more: budgets.append(Budget(*args, **more)) or budgets[-1])
    monkeypatch.setattr(Stock, "pools", lambda stock, *of: matched.append(len(of) < 2) or pools(stock, *of))
    stock = pairs()
    by_node = scores(stock, "topology")
    assert len(set(by_node.values())) == 2
    assert len(budgets) == 2
    assert not any(matched)
    monkeypatch.setattr(step_limits, "QUESTION", budgets[1].spent // 2)
    assert scores(stock, "topology").keys() == by_node.keys()
    assert scores(stock, "topology") != by_node
