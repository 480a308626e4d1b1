"""The choice of victims (the pods to evict), compared with all possible choices on small fleets."""

import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator import allocate
from allocator.answer import with_allocation
from allocator.decisions import Decider
from allocator.one_node import Options
from allocator.preemption import (
    Enough,
    Victims,
    holders_below,
    make_room,
    may_preempt,
    without_pods,
    without_unused_claims,
)
from dra.objects import PodDisruptionBudget, ResourceClaimConsumerReference, protects
from dra.wire import convert
from tests.allocator import fleets
from tests.allocator.decisions.test_decider import stock_of
from tests.allocator.fleets import partitions, shared
from tests.allocator.search.test_compatibility import random_fleet as mixed_devices
from tests.allocator.service import sidecar
from tests.draws import draws
from tests.objects import exactly, typed


def aged_pod(name, *claims, age=0, node="n0", priority=0, **fields):
    """Return a pod that runs on a node, or a pending pod if `node` is empty. The pod is older the greater `age` is."""
    node_fields = {"nodeName": node} if node else {}
    created = f"2026-01-01T00:00:{59 - age:02}Z"
    return typed(sidecar.pod(name, *claims, creationTimestamp=created, priority=priority, **node_fields | fields))


def budget(name, allowed, **labels):
    meta = {"name": name, "namespace": "default"}
    selector = {"matchLabels": labels}
    return convert(
        {"metadata": meta, "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}},
        PodDisruptionBudget,
    )


def running(stock, name, count, *pods, node="n0"):
    """Return the stock with one more claim, which holds devices of a node and is reserved for pods."""
    claim = typed(sidecar.claim(name, count))
    allocated = with_allocation(claim, allocate(stock, node, [claim]).allocations[0].allocation)
    consumers = [ResourceClaimConsumerReference(resource="pods", name=pod, uid=f"pod-{pod}") for pod in pods]
    return stock.with_object(replace(allocated, status=replace(allocated.status, reserved_for=tuple(consumers))))


def enough_for(wanted, stock):
    def frees_enough(room):
        after = without_pods(stock, room.pods)
        return not isinstance(Decider().serve(wanted, room.node, after, uncached=Options()), str)

    return frees_enough


def victims(wanted, stock, pods, budgets=()):
    """Return the chosen node and the names of the victims on that node; None if no choice frees enough devices."""
    holders = holders_below(wanted, pods, stock, budgets)
    chosen = make_room(stock.nodes, holders, stock, enough_for(wanted, stock))
    return None if chosen is None else (chosen.node, sorted(pod.metadata.name for pod in chosen.pods))


def crowd(*holders, nodes=1, each=4, want=1):
    """Return a stock whose devices are allocated to `holders`, as (pod, number of devices), and a pending pod of higher priority."""
    stock = stock_of(sidecar.claim("want", want), nodes=nodes, per_node=each)
    for holder, count in holders:
        stock = running(stock, f"c-{holder.metadata.name}", count, holder.metadata.name, node=holder.spec.node_name)
    return stock, aged_pod("urgent", "want", priority=100, node="")


def holder(name, count, **fields):
    return aged_pod(name, f"c-{name}", **fields), count


@pytest.mark.parametrize(
    ("holders", "budgets", "want", "expected"),
    [
        ([holder("low", 2, priority=1), holder("high", 2, priority=5)], [], 2, ["low"]),
        ([holder("old", 2, age=9), holder("young", 2, age=1)], [], 2, ["young"]),
        ([holder("a", 1), holder("b", 1), holder("big", 2, age=9)], [], 2, ["big"]),
        ([holder("a", 2, labels={"app": "x"}), holder("b", 2, priority=9)], [budget("x", 0, app="x")], 2, ["b"]),
        ([holder("a", 2, labels={"app": "x"}), holder("b", 2, priority=9)], [budget("x", 1, app="x")], 2, ["a"]),
        ([holder("a", 2, priority=100), holder("b", 2, priority=200)], [], 1, None),
        ([holder("a", 2), holder("b", 2, priority=200)], [], 3, None),
        ([holder("gone", 2, deletionTimestamp="2026-01-01T00:01:00Z"), holder("b", 2)], [], 2, []),
    ],
    ids=[
        "the pod of lower priority is evicted",
        "of two pods of equal priority the younger is evicted",
        "one large pod is evicted rather than two small pods",
        "a pod that a disruption budget protects stays",
        "a pod is evicted if its disruption budget allows one eviction",
        "no pod of equal or higher priority is evicted",
        "no pod is evicted if all lower pods free too little",
        "no pod is evicted if a terminating pod frees enough",
    ],
)
def test_preemption_chooses_the_expected_victims(holders, budgets, want, expected):
    stock, urgent = crowd(*holders, want=want)
    chosen = victims(urgent, stock, [pod for pod, _ in holders], budgets)
    assert (chosen[1] if chosen else None) == expected


def test_the_node_with_the_least_disruption_is_chosen():
    holders = [holder("a", 2, priority=5), holder("b", 2, priority=1, node="n1"), holder("c", 2, priority=9, node="n2")]
    stock, urgent = crowd(*holders, nodes=3, each=2)
    assert victims(urgent, stock, [pod for pod, _ in holders]) == ("n1", ["b"])


def test_a_shared_claim_is_freed_by_all_its_pods():
    stock, urgent = crowd(each=1)
    stock = running(stock, "shared", 1, "a", "b")
    low, other = aged_pod("a", "shared"), aged_pod("b", "shared")
    assert victims(urgent, stock, [low, other]) == ("n0", ["a", "b"])
    assert victims(urgent, stock, [low, aged_pod("b", "shared", priority=200)]) is None


@pytest.mark.parametrize(
    ("pods_of_claim", "is_free"),
    [
        ([], True),
        ([aged_pod("a")], False),
        ([replace(aged_pod("a"), status=replace(aged_pod("a").status, phase="Succeeded"))], True),
        ([replace(aged_pod("a"), metadata=replace(aged_pod("a").metadata, uid="another"))], True),
    ],
    ids=["its pods are deleted", "one of its pods runs", "its pod has succeeded", "another pod has the name of its pod"],
)
def test_a_claim_is_free_if_its_pods_are_finished(pods_of_claim, is_free):
    stock, _ = crowd(each=1)
    stock = running(stock, "c", 1, "a", "b")
    pods = {("default", pod.metadata.name): pod for pod in pods_of_claim}
    after = without_unused_claims(stock, ["default/c", "default/unknown"], pods)
    assert (after.claims["default/c"].status.allocation is None) == is_free


def test_a_pod_with_policy_never_may_not_preempt():
    assert may_preempt(aged_pod("p"))
    assert not may_preempt(aged_pod("p", preemptionPolicy="Never"))


def test_a_disruption_budget_protects_selected_pods_of_its_namespace():
    disruption_budget = budget("x", 0, app="x")
    assert protects(disruption_budget, aged_pod("p", labels={"app": "x"}))
    assert not protects(disruption_budget, aged_pod("p", labels={"app": "y"}))
    elsewhere = replace(disruption_budget, metadata=replace(disruption_budget.metadata, namespace="other"))
    assert not protects(elsewhere, aged_pod("p", labels={"app": "x"}))
    assert not protects(
        replace(disruption_budget, spec=replace(disruption_budget.spec, selector=None)),
        aged_pod("p", labels={"app": "x"}),
    )
    for operator, values, expected in (
        ("In", ["x"], True),
        ("NotIn", ["x"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ):
        rule = {"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}}}
        raw = convert({"metadata": {"namespace": "default"}} | rule, PodDisruptionBudget)
        assert protects(raw, aged_pod("p", labels={"app": "x"})) is expected


# ---- the chosen victims, compared with all possible choices


def cheapest(holders, pods, nodes, frees_enough):
    """Return the least disruption of all choices on all nodes."""
    costs = []
    for node in nodes:
        running_pods = [pod for pod in pods if pod.spec.node_name == node]
        for size in range(len(running_pods) + 1):
            costs += [
                holders.disruption(victims_)
                for victims_ in combinations(running_pods, size)
                if frees_enough(Victims(node, victims_))
            ]
    return min(costs, default=None)


def violations(pods, budgets):
    """Return the number of evictions of these pods that disruption budgets do not allow, counted without optimisation."""
    return sum(
        max(0, sum(protects(budget, pod) for pod in pods) - budget.status.disruptions_allowed) for budget in budgets
    )


ATTRIBUTES = st.fixed_dictionaries(
    {
        "priority": st.sampled_from([0, 0, 1, 2]),
        "age": st.integers(0, 3),
        "labels": st.fixed_dictionaries({"app": st.sampled_from("xyz"), "tier": st.sampled_from("ab")}),
    }
)
BUDGETS = st.tuples(
    st.integers(0, 1).map(lambda allowed: budget("x", allowed, app="x")),
    st.integers(0, 2).map(lambda allowed: budget("y", allowed, app="y")),
    st.integers(0, 1).map(lambda allowed: budget("a", allowed, tier="a")),
)
AMOUNTS = st.tuples(st.integers(0, 3), st.integers(0, 3))


@given(st.lists(st.tuples(AMOUNTS, ATTRIBUTES), min_size=1, max_size=9), BUDGETS, AMOUNTS)
@settings(max_examples=draws(400), deadline=None)
def test_no_victims_with_less_disruption_free_enough_amounts(given_up, budgets, wanted):
    """Each pod frees amounts of two resources. The search must find the best victims even if it first spared the wrong pods."""
    pods = [aged_pod(f"p{i}", **fields) for i, (_, fields) in enumerate(given_up)]
    freed = {pod.metadata.uid: amounts for pod, (amounts, _) in zip(pods, given_up, strict=True)}

    def frees_enough(room):
        return all(sum(freed[pod.metadata.uid][i] for pod in room.pods) >= wanted[i] for i in (0, 1))

    stock = stock_of(nodes=1)
    holders = holders_below(aged_pod("urgent", priority=9), pods, stock, budgets)
    chosen = make_room(["n0"], holders, stock, frees_enough)
    expected = cheapest(holders, pods, ["n0"], frees_enough)
    assert (holders.disruption(chosen.pods) if chosen else None) == expected
    if chosen:
        assert frees_enough(chosen)
        assert expected[0] == violations(chosen.pods, budgets)


# Requests for three kinds of devices: with shared memory, partitions of a GPU, and (below) with compatibility rules.
SHARES = [exactly("gpu", memory=amount) for amount in ("10Gi", "20Gi", "40Gi", "80Gi")]
PARTS = [exactly(profile) for profile in ("1g", "2g", "2g", "4g", "8g")]


def shared_devices(_):
    return fleets.fleet({"n0": [shared(f"s{i}", "80Gi") for i in range(2)]}), SHARES


def partitioned_devices(rng):
    groups = rng.choice([(), ("one",)])
    return fleets.fleet({"n0": partitions("a", groups)}), PARTS


def incompatible_devices(rng):
    """Return a fleet of devices with compatibility groups, compatibleOnlyWith and counters, and requests for them."""
    requests = [exactly(name, count=rng.choice((1, 1, 2))) for name in ("any", "full", "mig", "mps")]
    return mixed_devices(rng), requests


def crowded(devices, rng):
    """Draw a full node, the pods on it, some of which share a claim, and a pending pod."""
    stock, requests = devices(rng)
    [node] = stock.nodes
    pods = []
    for i in range(7):
        name, claim = f"p{i}", f"c{i}"
        fields = {"priority": rng.choice((0, 0, 1, 2)), "age": rng.randrange(4), "labels": {"app": rng.choice("xyz")}}
        wanted = fleets.claim(claim, rng.choice(requests))
        answer = allocate(stock, node, [wanted])
        if not answer.feasible:
            continue
        names = [name, f"{name}b"] if rng.random() < 0.2 else [name]
        users = tuple(ResourceClaimConsumerReference(resource="pods", name=name, uid=f"pod-{name}") for name in names)
        held = fleets.allocated(wanted, answer)
        stock = stock.with_object(replace(held, status=replace(held.status, reserved_for=users)))
        pods += [aged_pod(name, claim, node=node, **fields) for name in names]
    stock = stock.with_object(fleets.claim("want", rng.choice(requests)))
    return stock, pods[:8], aged_pod("urgent", "want", priority=rng.randrange(4), node="")


@pytest.mark.parametrize("devices", [shared_devices, partitioned_devices, incompatible_devices])
@pytest.mark.parametrize("seed", range(draws(25)))
def test_no_victims_with_less_disruption_free_enough_devices(devices, seed):
    rng = random.Random(f"{devices.__name__}-{seed}")
    stock, pods, wanted = crowded(devices, rng)
    budgets = [budget(app, rng.randrange(2), app=app) for app in "xy"]
    holders = holders_below(wanted, pods, stock, budgets)
    frees_enough = enough_for(wanted, stock)
    chosen = make_room(stock.nodes, holders, stock, frees_enough)
    below = [pod for pod in pods if pod.spec.priority < wanted.spec.priority]
    assert (holders.disruption(chosen.pods) if chosen else None) == cheapest(holders, below, stock.nodes, frees_enough)
    if chosen:
        assert frees_enough(chosen), "the evictions do not free enough devices"
        assert all(pod in below for pod in chosen.pods)


def test_preemption_stopped_early_still_returns_enough_victims():
    """Sixteen pods are too many to examine all choices. A stopped search returns the best choice so far that frees enough."""
    holders = [holder(f"p{i}", 1, age=i % 7, priority=i % 3) for i in range(16)]
    stock, urgent = crowd(*holders, each=16, want=5)
    crowded_by = holders_below(urgent, [pod for pod, _ in holders], stock)
    frees_enough = enough_for(urgent, stock)
    rooms = []
    for patience in (0, 1, 6, 18, 40, 200):
        left = iter(range(patience))

        def suffices(victims, left=left):
            if next(left, None) is None:
                raise Enough
            return frees_enough(victims)

        rooms.append(make_room(stock.nodes, crowded_by, stock, suffices))
    assert rooms[:3] == [None, None, None], "a search returned victims before any choice freed enough devices"
    assert all(frees_enough(room) for room in rooms[3:])
    assert [len(room.pods) for room in rooms[3:]] == [5, 5, 5]
