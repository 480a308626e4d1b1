"""The choice of victims (the pods to evict), compared with all possible choices on small fleets."""

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator import allocate
from allocator.answer import with_allocation
from allocator.decisions import Placed, place
from allocator.preemption import (
    Enough,
    Unit,
    Victims,
    holders_below,
    make_room,
    may_preempt,
    without_pods,
    without_unused_claims,
)
from dra.objects import PodDisruptionBudget, PodGroup, ResourceClaimConsumerReference, protects
from dra.wire import convert
from tests.allocator import fleets
from tests.allocator.decisions.test_decider import stock_of
from tests.allocator.fleets import partitions, shared
from tests.allocator.search.test_compatibility import random_fleet as fleet_of_mixed_devices
from tests.allocator.service import sidecar
from tests.limits import draws
from tests.objects import exactly, typed


def aged_pod(name, *claims, age=0, node="n0", priority=0, **further_fields):
    """Return a pod that runs on a node, or a pending pod if `node` is empty. `age` is in seconds."""
    node_fields = {"nodeName": node} if node else {}
    created = f"2026-01-01T00:00:{59 - age:02}Z"
    return typed(
        sidecar.pod(name, *claims, creationTimestamp=created, priority=priority, **node_fields | further_fields)
    )


def budget(name, allowed, **labels):
    meta = {"name": name, "namespace": "default"}
    selector = {"matchLabels": labels}
    return convert(
        {"metadata": meta, "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}},
        PodDisruptionBudget,
    )


def with_running_claim(stock, name, count, *pods, node="n0"):
    """Return the stock with one more claim, which holds devices of a node and is reserved for pods."""
    new_claim = typed(sidecar.claim(name, count))
    allocated_claim = with_allocation(new_claim, allocate(stock, node, [new_claim]).allocations[0].allocation)
    consumers = [ResourceClaimConsumerReference(resource="pods", name=pod, uid=f"pod-{pod}") for pod in pods]
    return stock.with_object(
        replace(allocated_claim, status=replace(allocated_claim.status, reserved_for=tuple(consumers)))
    )


def frees_enough_for(pending_pod, stock):
    """Return a function that tells whether the eviction of victims frees enough devices for a pod."""

    def frees_enough(victims):
        later_stock = without_pods(stock, victims.pods)
        return not place([[(pending_pod, victims.node)]], Placed(later_stock)).problems[-1]

    return frees_enough


def node_and_victims(pending_pod, stock, pods, budgets=()):
    """Return the chosen node and the names of the victims on that node; None if no choice frees enough devices."""
    potential_victims = holders_below(pending_pod, pods, stock, budgets)
    choice = make_room(stock.nodes, potential_victims, stock, frees_enough_for(pending_pod, stock))
    return None if choice is None else (choice.node, sorted(pod.metadata.name for pod in choice.pods))


def crowded_fleet(*holders, nodes=1, per_node=4, requested=1):
    """Return a stock whose devices are allocated to `holders`, as (pod, number of devices), and a pending pod of higher priority."""
    stock = stock_of(sidecar.claim("want", requested), nodes=nodes, per_node=per_node)
    for holding_pod, count in holders:
        stock = with_running_claim(
            stock, f"c-{holding_pod.metadata.name}", count, holding_pod.metadata.name, node=holding_pod.spec.node_name
        )
    return stock, aged_pod("urgent", "want", priority=100, node="")


def holder(name, count, **further_fields):
    """Return a pod and the number of devices that its claim holds."""
    return aged_pod(name, f"c-{name}", **further_fields), count


@pytest.mark.parametrize(
    ("holders", "budgets", "requested_devices", "expected_victims"),
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
        "no pod is evicted if all pods of lower priority free too little",
        "no pod is evicted if a terminating pod frees enough",
    ],
)
def test_preemption_chooses_the_expected_victims(holders, budgets, requested_devices, expected_victims):
    stock, urgent = crowded_fleet(*holders, requested=requested_devices)
    node_and_names = node_and_victims(urgent, stock, [pod for pod, _ in holders], budgets)
    assert (node_and_names[1] if node_and_names else None) == expected_victims


def test_the_node_with_the_least_disruption_is_chosen():
    holders = [holder("a", 2, priority=5), holder("b", 2, priority=1, node="n1"), holder("c", 2, priority=9, node="n2")]
    stock, urgent = crowded_fleet(*holders, nodes=3, per_node=2)
    assert node_and_victims(urgent, stock, [pod for pod, _ in holders]) == ("n1", ["b"])


def test_a_shared_claim_is_freed_by_evicting_all_its_pods():
    stock, urgent = crowded_fleet(per_node=1)
    stock = with_running_claim(stock, "shared", 1, "a", "b")
    first_pod, second_pod = aged_pod("a", "shared"), aged_pod("b", "shared")
    assert node_and_victims(urgent, stock, [first_pod, second_pod]) == ("n0", ["a", "b"])
    assert node_and_victims(urgent, stock, [first_pod, aged_pod("b", "shared", priority=200)]) is None


@pytest.mark.parametrize(
    ("pods_of_claim", "is_freed"),
    [
        ([], True),
        ([aged_pod("a")], False),
        ([replace(aged_pod("a"), status=replace(aged_pod("a").status, phase="Succeeded"))], True),
        ([replace(aged_pod("a"), metadata=replace(aged_pod("a").metadata, uid="another"))], True),
    ],
    ids=[
        "its pods are deleted",
        "one of its pods runs",
        "its pod has succeeded",
        "another pod has the name of its pod",
    ],
)
def test_claims_are_freed_once_their_pods_are_gone_or_finished(pods_of_claim, is_freed):
    stock, _ = crowded_fleet(per_node=1)
    stock = with_running_claim(stock, "c", 1, "a", "b")
    pods_by_key = {("default", pod.metadata.name): pod for pod in pods_of_claim}
    later_stock = without_unused_claims(stock, ["default/c", "default/unknown"], pods_by_key)
    assert (later_stock.claims["default/c"].status.allocation is None) == is_freed


def test_a_pod_with_policy_never_may_not_preempt():
    assert may_preempt(aged_pod("p"))
    assert not may_preempt(aged_pod("p", preemptionPolicy="Never"))


def test_a_disruption_budget_protects_selected_pods_of_its_namespace():
    disruption_budget = budget("x", 0, app="x")
    assert protects(disruption_budget, aged_pod("p", labels={"app": "x"}))
    assert not protects(disruption_budget, aged_pod("p", labels={"app": "y"}))
    budget_of_other_namespace = replace(
        disruption_budget, metadata=replace(disruption_budget.metadata, namespace="other")
    )
    assert not protects(budget_of_other_namespace, aged_pod("p", labels={"app": "x"}))
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
        fields = {"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}}}
        budget_with_expression = convert({"metadata": {"namespace": "default"}} | fields, PodDisruptionBudget)
        assert protects(budget_with_expression, aged_pod("p", labels={"app": "x"})) is expected


# ---- the chosen victims, compared with all possible choices


GROUPS = {
    f"default/{name}": convert(
        {"metadata": {"name": name}, "spec": {"disruptionMode": {mode: {}}, "priority": priority}}, PodGroup
    )
    for name, mode, priority in (("a", "all", 1), ("b", "all", 0), ("high", "all", 99), ("each", "single", 2))
}


def units_of(pods):
    """Return the pods with a lower priority than 9 as units: the pods of the groups a and b are disrupted together."""
    units = []
    for pod in pods:
        group = pod.spec.scheduling_group
        name = group.pod_group_name if group else ""
        if name == "each":
            units.append(Unit((pod,), 2))
        elif not name:
            units.append(Unit((pod,), pod.spec.priority))
    for name, priority in (("a", 1), ("b", 0)):
        together = [
            pod for pod in pods if pod.spec.scheduling_group and pod.spec.scheduling_group.pod_group_name == name
        ]
        units += [Unit(tuple(together), priority)] if together else []
    return units


def least_disruption(potential_victims, units, nodes, frees_enough):
    """Return the least disruption of all choices that free enough, on all nodes; None if there is none."""
    costs = []
    for node in nodes:
        on_node = [unit for unit in units if any(pod.spec.node_name == node for pod in unit.pods)]
        for size in range(len(on_node) + 1):
            costs += [
                potential_victims.disruption(evicted)
                for evicted in combinations(on_node, size)
                if frees_enough(Victims(node, evicted))
            ]
    return min(costs, default=None)


def evictions_beyond_budgets(pods, budgets):
    """Return the number of evictions of these pods that disruption budgets do not allow, counted without optimisation."""
    return sum(
        max(0, sum(protects(budget, pod) for pod in pods) - budget.status.disruptions_allowed) for budget in budgets
    )


DRAWN_POD_FIELDS = st.fixed_dictionaries(
    {
        "priority": st.sampled_from([0, 0, 1, 2]),
        "age": st.integers(0, 3),
        "labels": st.fixed_dictionaries({"app": st.sampled_from("xyz"), "tier": st.sampled_from("ab")}),
        "schedulingGroup": st.sampled_from([None, None, "a", "b", "high", "each"]).map(
            lambda name: {"podGroupName": name} if name else None
        ),
    }
)
DRAWN_BUDGETS = st.tuples(
    st.integers(0, 1).map(lambda allowed: budget("x", allowed, app="x")),
    st.integers(0, 2).map(lambda allowed: budget("y", allowed, app="y")),
    st.integers(0, 1).map(lambda allowed: budget("a", allowed, tier="a")),
)
DRAWN_AMOUNTS = st.tuples(st.integers(0, 3), st.integers(0, 3))


@given(st.lists(st.tuples(DRAWN_AMOUNTS, DRAWN_POD_FIELDS), min_size=1, max_size=9), DRAWN_BUDGETS, DRAWN_AMOUNTS)
def test_no_victims_with_less_disruption_free_enough_amounts(pods_drawn, budgets, needed_amounts):
    """Each pod frees amounts of two resources. The search must find the best victims even if it first spared the wrong pods."""
    pods = [aged_pod(f"p{i}", **fields) for i, (_, fields) in enumerate(pods_drawn)]
    freed_amounts = {pod.metadata.uid: amounts for pod, (amounts, _) in zip(pods, pods_drawn, strict=True)}

    def frees_enough(victims):
        return all(sum(freed_amounts[pod.metadata.uid][i] for pod in victims.pods) >= needed_amounts[i] for i in (0, 1))

    stock = stock_of(nodes=1)
    potential_victims = holders_below(aged_pod("urgent", priority=9), pods, stock, budgets, GROUPS)
    chosen = make_room(["n0"], potential_victims, stock, frees_enough)
    least = least_disruption(potential_victims, units_of(pods), ["n0"], frees_enough)
    assert (potential_victims.disruption(chosen.units) if chosen else None) == least
    if chosen:
        assert frees_enough(chosen)
        assert least[0] == evictions_beyond_budgets(chosen.pods, budgets)


# Requests for three kinds of devices: with shared memory, partitions of a GPU, and (below) with compatibility rules.
SHARE_REQUESTS = [exactly("gpu", memory=amount) for amount in ("10Gi", "20Gi", "40Gi", "80Gi")]
PARTITION_REQUESTS = [exactly(profile) for profile in ("1g", "2g", "2g", "4g", "8g")]


def shared_devices(_):
    return fleets.fleet({"n0": [shared(f"s{i}", "80Gi") for i in range(2)]}), SHARE_REQUESTS


def partitioned_devices(rng):
    groups = rng.choice([(), ("one",)])
    return fleets.fleet({"n0": partitions("a", groups)}), PARTITION_REQUESTS


def incompatible_devices(rng):
    """Return a fleet of devices with compatibility groups, compatibleOnlyWith and counters, and requests for them."""
    requests = [exactly(name, count=rng.choice((1, 1, 2))) for name in ("any", "full", "mig", "mps")]
    return fleet_of_mixed_devices(rng), requests


def draw_full_node(draw_fleet, rng):
    """Draw a full node, the pods on it, some of which share a claim, and a pending pod."""
    stock, requests = draw_fleet(rng)
    [node] = stock.nodes
    pods = []
    for i in range(7):
        name, claim = f"p{i}", f"c{i}"
        fields = {"priority": rng.choice((0, 0, 1, 2)), "age": rng.randrange(4), "labels": {"app": rng.choice("xyz")}}
        new_claim = fleets.claim(claim, rng.choice(requests))
        answer = allocate(stock, node, [new_claim])
        if not answer.feasible:
            continue
        names = [name, f"{name}b"] if rng.random() < 0.2 else [name]
        consumers = tuple(
            ResourceClaimConsumerReference(resource="pods", name=name, uid=f"pod-{name}") for name in names
        )
        allocated_claim = fleets.allocated(new_claim, answer)
        stock = stock.with_object(
            replace(allocated_claim, status=replace(allocated_claim.status, reserved_for=consumers))
        )
        pods += [aged_pod(name, claim, node=node, **fields) for name in names]
    stock = stock.with_object(fleets.claim("want", rng.choice(requests)))
    return stock, pods[:8], aged_pod("urgent", "want", priority=rng.randrange(4), node="")


@pytest.mark.parametrize("draw_fleet", [shared_devices, partitioned_devices, incompatible_devices])
@pytest.mark.parametrize("seed", range(draws(25)))
def test_no_victims_with_less_disruption_free_enough_devices(draw_fleet, seed):
    rng = random.Random(f"{draw_fleet.__name__}-{seed}")
    stock, pods, pending_pod = draw_full_node(draw_fleet, rng)
    budgets = [budget(app, rng.randrange(2), app=app) for app in "xy"]
    potential_victims = holders_below(pending_pod, pods, stock, budgets)
    frees_enough = frees_enough_for(pending_pod, stock)
    chosen = make_room(stock.nodes, potential_victims, stock, frees_enough)
    less_important_pods = [pod for pod in pods if pod.spec.priority < pending_pod.spec.priority]
    assert (potential_victims.disruption(chosen.units) if chosen else None) == least_disruption(
        potential_victims, units_of(less_important_pods), stock.nodes, frees_enough
    )
    if chosen:
        assert frees_enough(chosen), "the evictions do not free enough devices"
        assert all(pod in less_important_pods for pod in chosen.pods)


def test_preemption_stopped_early_returns_enough_victims_or_none():
    """Sixteen pods are too many to examine all choices. A stopped search returns the best choice so far that frees enough."""
    holders = [holder(f"p{i}", 1, age=i % 7, priority=i % 3) for i in range(16)]
    stock, urgent = crowded_fleet(*holders, per_node=16, requested=5)
    potential_victims = holders_below(urgent, [pod for pod, _ in holders], stock)
    frees_enough = frees_enough_for(urgent, stock)
    choices = []
    for checks in (0, 1, 6, 18, 40, 200):
        remaining_checks = iter(range(checks))

        def frees_enough_in_time(victims, remaining=remaining_checks):
            if next(remaining, None) is None:
                raise Enough  # the search has had enough time
            return frees_enough(victims)

        choices.append(make_room(stock.nodes, potential_victims, stock, frees_enough_in_time))
    assert choices[:3] == [None, None, None], "a search returned victims before any choice freed enough devices"
    assert all(frees_enough(choice) for choice in choices[3:])
    assert [len(choice.pods) for choice in choices[3:]] == [5, 5, 5]
