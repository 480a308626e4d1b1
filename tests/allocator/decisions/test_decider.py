"""Decisions about a pod: which nodes can serve it, with scores and reasons."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator.decisions import (
    Decider,
    Outlook,
    Placed,
    Serving,
    find_claims,
    place,
    why_unready,
)
from allocator.decisions import decider as decider_module
from allocator.decisions.place import TAKEN
from allocator.preemption import without_pods
from allocator.strategies import DEFAULT, STRATEGIES, StrategyCache, choose_devices, node_view, read_placement
from dra import step_limits
from dra.budget import Budget
from dra.objects import Device, DeviceClass, Node, PodExtendedResourceClaimStatus, ResourceClaim
from dra.stock import Stock
from dra.wire import convert
from tests.allocator import fleets
from tests.allocator.service import sidecar
from tests.objects import exactly, typed


def stock_of(*claims, nodes=2, per_node=2):
    stock = Stock.of()
    for obj in (*sidecar.fleet(nodes, per_node), *claims):
        stock = stock.with_object(obj if isinstance(obj, ResourceClaim) else typed(obj))
    return stock


def typed_pod(name, *claims, **fields):
    return typed(sidecar.pod(name, *claims, **fields))


def allocated_claim(name, count, stock, node, *pods):
    """Return a claim that is allocated on a node and reserved for some pods."""
    requesting_pod = typed_pod("x", name)
    allocation = Decider().serve(requesting_pod, node, stock).allocated[0].status.allocation
    consumers = [{"resource": "pods", "name": pod, "uid": f"pod-{pod}"} for pod in pods]
    raw = sidecar.claim(name, count) | {"status": {"reservedFor": consumers}}
    claim = typed(raw)
    return replace(claim, status=replace(claim.status, allocation=allocation))


def test_a_full_fleet_and_an_unsuitable_fleet_have_different_outlooks():
    stock = stock_of(sidecar.claim("all", 2), sidecar.claim("one"), sidecar.claim("three", 3), nodes=1)
    full_stock = stock.with_object(allocated_claim("all", 2, stock, "n0", "x"))
    decider = Decider()
    assert decider.outlook(typed_pod("p", "one"), stock).outlook is Outlook.FITS
    assert decider.outlook(typed_pod("p", "one"), full_stock).outlook is Outlook.FULL
    assert decider.outlook(typed_pod("p", "three"), full_stock).outlook is Outlook.NEVER


def test_unsuitable_nodes_are_named_and_empty_fleets_have_a_message():
    stock = stock_of(sidecar.claim("two", 2), nodes=3)
    slice_of_one_gpu = typed(sidecar.gpus("n2", 1))
    fleet_outlook = Decider().outlook(typed_pod("p", "two", nodeName=""), stock.with_object(slice_of_one_gpu))
    assert fleet_outlook.outlook is Outlook.FITS
    assert [reason.nodes for reason in fleet_outlook.reasons] == [("n2",)]
    assert Decider().outlook(typed_pod("p", "two"), Stock.of()).reason.text


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
    stock = stock.with_object(allocated_claim("all", 2, stock, "n2", "x"))
    pinned_pod = typed_pod("p", "one", nodeSelector={"zone": "b"})
    fleet_outlook = Decider().outlook(pinned_pod, stock)
    assert fleet_outlook.outlook is Outlook.FULL
    assert [reason.nodes for reason in fleet_outlook.reasons[:2]] == [("n2",), ("n0", "n1")]
    not_selected = "node(s) didn't match Pod's node affinity/selector"
    assert fleet_outlook.reason.text.startswith(
        "0 of 14 nodes can serve the claims: 1 node(s) cannot serve request r: 2 of 2 devices are in use: held by"
    )
    assert fleet_outlook.reason.text.endswith(
        f"; 5 node(s) were unschedulable and node(s) had untolerated taint(s) and {not_selected}; 3 {not_selected}; 3 node(s) for other reasons"
    )
    pod_without_node = typed_pod("p", "one", nodeSelector={"zone": "c"})
    assert Decider().outlook(pod_without_node, stock).outlook is Outlook.FITS  # the scheduler checks the node selector
    for name in [name for name in stock.nodes if name not in ("n0", "n1", "n2")]:
        stock = stock.with_object(typed(sidecar.gpus(name, 0)))
    fleet_outlook = Decider().outlook(pod_without_node, stock)
    assert fleet_outlook.outlook is Outlook.NEVER
    assert "in use" not in fleet_outlook.reason.text


def test_nodes_beyond_the_budget_fit_with_score_zero(monkeypatch):
    """Without a budget, 300 nodes that share 3,200 devices with node selectors take ten seconds for each pod."""
    # To compare nodes, `_numbered` gets one site for each device of a node: the device's place on buses and links.
    site_counts = []
    number_sites = node_view._numbered
    monkeypatch.setattr(node_view, "_numbered", lambda sites: site_counts.append(len(sites)) or number_sites(sites))
    stock = stock_of(sidecar.claim("one"), nodes=80, per_node=8)
    fleet_outlook = Decider().outlook(typed_pod("p", "one"), stock, read_placement("topology"))
    assert min(fleet_outlook.nodes.values()) > 0
    assert sum(site_counts) == 80 * 8
    site_counts.clear()
    monkeypatch.setattr(step_limits, "QUESTION", 1_000)
    fleet_outlook = Decider().outlook(typed_pod("p", "one"), stock, read_placement("topology"))
    assert set(fleet_outlook.nodes.values()) == {0}
    assert len(fleet_outlook.nodes) == 80
    assert sum(site_counts) <= 1_000 / 2


def test_claims_of_other_pods_and_terminating_claims_are_not_used():
    owned_claim = sidecar.claim("made")
    owned_claim["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-p", "controller": True}]  # fmt: skip
    terminating_claim = sidecar.claim("going")
    terminating_claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stock = stock_of(owned_claim, terminating_claim)
    entry = {"name": "g", "resourceClaimTemplateName": "t"}
    status = {"resourceClaimStatuses": [{"name": "g", "resourceClaimName": "made"}]}

    def pod_with_template(name):
        return typed(sidecar.pod(name, resourceClaims=[entry]) | {"status": status})

    assert find_claims(pod_with_template("p"), stock).waits_for is None
    assert "not created for this pod" in find_claims(pod_with_template("q"), stock).waits_for.text
    assert "being deleted" in find_claims(typed_pod("r", "going"), stock).waits_for.text


@pytest.mark.parametrize(("pod_count", "is_full"), [(255, False), (256, True)])
def test_a_claim_has_room_for_256_pods(pod_count, is_full):
    stock = stock_of(sidecar.claim("a"))
    shared_claim = allocated_claim("a", 1, stock, "n0", *(f"u{i}" for i in range(pod_count)))
    assert bool(find_claims(typed_pod("p", "a"), stock.with_object(shared_claim)).waits_for) is is_full
    assert find_claims(typed_pod("u0", "a"), stock.with_object(shared_claim)).waits_for is None


def test_earlier_pods_take_devices_and_leaving_pods_return_them():
    stock = stock_of(sidecar.claim("a"), sidecar.claim("b"), nodes=1, per_node=1)
    first, second = [(typed_pod("p", "a"), "n0")], [(typed_pod("q", "b"), "n0")]
    assert place([first, second], Placed(stock)).problems == ("", TAKEN)
    stock_with_both = stock.with_object(allocated_claim("a", 1, stock, "n0", "p", "other"))
    stock_without_p = without_pods(stock_with_both, [typed_pod("p", "a")])
    assert place([second], Placed(stock_without_p)).problems == (TAKEN,)
    stock_without_both = without_pods(stock_with_both, [typed_pod("p", "a"), typed_pod("other", "a")])
    assert place([second], Placed(stock_without_both)).problems == ("",)


CLASS_WITH_EXTENDED_RESOURCE = {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": sidecar.device_class()["spec"] | {"extendedResourceName": "example.com/gpu"}}  # fmt: skip
CONTAINER = st.fixed_dictionaries({"limits": st.fixed_dictionaries({"example.com/gpu": st.integers(0, 3).map(str), "cpu": st.just("1")})})  # fmt: skip
INIT_CONTAINER = st.tuples(CONTAINER, st.sampled_from(["", "Always"]))


@given(st.lists(INIT_CONTAINER, max_size=3), st.lists(CONTAINER, min_size=1, max_size=3), st.integers(1, 4))
def test_an_extended_resource_is_decided_like_its_claim(init_containers, containers, gpus_per_node):
    """A pod that requests an extended resource gets the same answer before its claim exists and after its status names the claim."""
    init_specs = [
        {"name": f"i{i}", "resources": resources, "restartPolicy": policy}
        for i, (resources, policy) in enumerate(init_containers)
    ]
    main_specs = [{"name": f"c{i}", "resources": resources} for i, resources in enumerate(containers)]
    stock = stock_of(nodes=2, per_node=gpus_per_node).with_object(convert(CLASS_WITH_EXTENDED_RESOURCE, DeviceClass))
    pod = typed_pod("p", initContainers=init_specs, containers=main_specs)
    claims_before = find_claims(pod, stock)
    fleet_outlook = Decider().outlook(pod, stock)
    if claims_before.uncreated is None:
        assert fleet_outlook.outlook is Outlook.SKIP
        return
    claim, mappings = claims_before.uncreated
    claim = replace(claim, metadata=replace(claim.metadata, uid="u"))
    status = PodExtendedResourceClaimStatus(request_mappings=mappings, resource_claim_name=claim.metadata.name)
    assigned_pod = replace(pod, status=replace(pod.status, extended_resource_claim_status=status))
    claims_after = find_claims(assigned_pod, stock.with_object(claim))
    assert (claims_after.claims, claims_after.uncreated, claims_after.waits_for) == ((claim,), None, None)
    later_outlook = Decider().outlook(assigned_pod, stock.with_object(claim))
    assert (later_outlook.outlook, later_outlook.nodes) == (fleet_outlook.outlook, fleet_outlook.nodes)
    assert (fleet_outlook.outlook is Outlook.FITS) == (max_devices_at_once(init_specs, main_specs) <= gpus_per_node)


def max_devices_at_once(init_containers, main_containers):
    """Return how many devices the containers of a pod use at the same time, by Kubernetes' rule for the requests of a pod."""
    devices_of = lambda container_: int(container_["resources"]["limits"]["example.com/gpu"])  # noqa: E731
    running = most = 0
    for container_ in init_containers:
        if container_["restartPolicy"] == "Always":
            running += devices_of(container_)
            most = max(most, running)
        else:
            most = max(most, running + devices_of(container_))
    return max(most, running + sum(map(devices_of, main_containers)))


def claim_with_conditions(*true_conditions):
    result = {"request": "r", "driver": "d", "pool": "n0", "device": "x", "bindingConditions": ["Ready", "Linked"], "bindingFailureConditions": ["Broken"]}  # fmt: skip
    conditions = [{"type": type_, "status": "True"} for type_ in true_conditions]
    entry = {"driver": "d", "pool": "n0", "device": "x", "conditions": conditions}
    status = {"allocation": {"devices": {"results": [result]}}, "devices": [entry] if true_conditions else []}
    return typed(sidecar.claim("a") | {"status": status})


def test_devices_are_ready_when_all_binding_conditions_are_true():
    assert why_unready([claim_with_conditions()]).text == "waits for device x of d to report Ready, Linked"
    assert why_unready([claim_with_conditions("Ready")]).text == "waits for device x of d to report Linked"
    assert why_unready([claim_with_conditions("Ready", "Linked")]) is None
    failed = why_unready([claim_with_conditions("Ready", "Linked", "Broken")])
    assert (failed.text, failed.never) == ("device x of d reports Broken", True)


@pytest.mark.parametrize(
    ("kind", "words"),
    [("PodGroup", "claim made was created from a template of PodGroup pair, which is not supported"), ("Pod", "claim made was not created for this pod")],
)  # fmt: skip
def test_a_template_claim_of_another_owner_is_reported(kind, words):
    raw = sidecar.claim("made")
    raw["metadata"]["ownerReferences"] = [{"kind": kind, "name": "pair", "uid": "u", "controller": True}]
    entry = {"name": "made", "resourceClaimTemplateName": "t"}
    status = {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "made"}]}
    pod = typed(sidecar.pod("p", resourceClaims=[entry]) | {"status": status})
    fleet_outlook = Decider().outlook(pod, stock_of(typed(raw)))
    assert fleet_outlook.outlook is Outlook.WAITING
    assert fleet_outlook.reason.text.startswith(words)


def test_a_device_that_consumes_node_cpu_is_refused():
    """If the allocator decides, nothing counts the CPU that the device uses, because the scheduler plugin for this is off."""
    stock = stock_of(typed(sidecar.claim("a")), nodes=1, per_node=1)
    [slice_] = stock.slices.values()
    assert isinstance(Decider().serve(typed_pod("p", "a"), "n0", stock), Serving)
    node_resources = {"cpu": {"mapping": {"deviceMultiplier": "4"}}}
    device = convert({"name": "gpu-0", "nodeAllocatableResources": node_resources}, Device)
    changed_slice = replace(slice_, spec=replace(slice_.spec, devices=(device,)))
    refusal = Decider().serve(typed_pod("p", "a"), "n0", stock.with_object(changed_slice))
    assert isinstance(refusal, str)
    assert "device gpu.example.com/n0/gpu-0 uses cpu of the node" in refusal
    assert "let the default scheduler place the pod" in refusal


# ---- scores of nodes


def fleet_of_gpu_pairs(count=12):
    """Return a fleet of nodes with two GPUs each. On every third node the two GPUs share a PCIe root."""
    roots = {f"n{n}": ("r0", "r0" if n % 3 == 0 else "r1") for n in range(count)}
    return fleets.fleet(
        {name: [fleets.gpu(f"gpu-{i}", root=f"{name}-{root}") for i, root in enumerate(node_roots)] for name, node_roots in roots.items()},
        labels={name: {"rack": f"rack-{number % 2}"} for number, name in enumerate(roots)},
    )  # fmt: skip


def scores_for_two_gpus(stock, strategy):
    stock_with_claim = stock.with_object(fleets.claim("two", exactly("gpu", count=2)))
    return Decider().outlook(typed_pod("p", "two"), stock_with_claim, read_placement(strategy)).nodes


def scores_of_each_node_alone(stock, strategy):
    """Return the strategy's score of each node alone, without any cache."""
    claim = fleets.claim("two", exactly("gpu", count=2))
    return {node: round(choose_devices(stock, node, [claim], strategy=strategy).score) for node in stock.nodes}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != DEFAULT])
def test_the_decider_scores_each_node_as_the_strategy_alone_does(strategy):
    stock = fleet_of_gpu_pairs()
    assert scores_for_two_gpus(stock, strategy) == scores_of_each_node_alone(stock, strategy)


def test_all_callers_weigh_devices_by_the_largest_of_the_fleet():
    """Weighed by the largest device of each node, n1 would have the higher score. Weighed by the largest device of the fleet, n0 has."""

    def shared_gpu(name, memory, cores):
        device = fleets.shared(name, memory)
        return device | {"capacity": {**device["capacity"], "cores": {"value": cores}}}

    stock = fleets.fleet(
        {
            "n0": [shared_gpu("gpu-0", "80Gi", "10"), shared_gpu("gpu-1", "40Gi", "50")],
            "n1": [shared_gpu("gpu-0", "16Gi", "10"), shared_gpu("gpu-1", "16Gi", "100")],
        }
    )
    claim = fleets.claim("one", exactly("gpu", memory="8Gi"))
    choose = partial(choose_devices, strategy="CompactFirst", cache=StrategyCache())
    simulated_scores = {node: round(choose(stock, node, [claim]).score) for node in stock.nodes}
    scores_alone = {
        node: round(choose_devices(stock, node, [claim], strategy="CompactFirst").score) for node in stock.nodes
    }
    decider = Decider()
    live_scores = decider.outlook(typed_pod("p", "one"), stock.with_object(claim), read_placement("CompactFirst")).nodes
    assert live_scores == simulated_scores == scores_alone == {"n0": 29, "n1": 15}
    [slice_with_large_gpu] = fleets.fleet({"n2": [shared_gpu("gpu-0", "800Gi", "10")]}).slices.values()
    # The larger device changes the weights, so what the cache holds is invalid.
    with_larger_device = stock.with_all([claim, slice_with_large_gpu])
    scores_later = {node: round(choose(with_larger_device, node, [claim]).score) for node in stock.nodes}
    live_scores = decider.outlook(typed_pod("p", "one"), with_larger_device, read_placement("CompactFirst")).nodes
    assert {node: live_scores[node] for node in stock.nodes} == scores_later != simulated_scores


def test_the_scores_of_all_nodes_share_one_budget(monkeypatch):
    """One budget is for the search, and one for the scores of all nodes. Scoring does not match slices with nodes again."""
    budgets, slice_matches, pools = [], [], Stock.pools
    monkeypatch.setattr(
        decider_module, "Budget", lambda *args, **keywords: budgets.append(Budget(*args, **keywords)) or budgets[-1]
    )
    monkeypatch.setattr(
        Stock, "pools", lambda stock, *arguments: slice_matches.append(len(arguments) < 2) or pools(stock, *arguments)
    )
    stock = fleet_of_gpu_pairs()
    by_node = scores_for_two_gpus(stock, "topology")
    assert len(set(by_node.values())) == 2
    assert len(budgets) == 2
    assert not any(slice_matches)
    monkeypatch.setattr(step_limits, "QUESTION", budgets[1].spent // 2)
    assert scores_for_two_gpus(stock, "topology").keys() == by_node.keys()
    assert scores_for_two_gpus(stock, "topology") != by_node
