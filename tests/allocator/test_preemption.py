"""Who has to go: compared with every choice there is, on small fleets; and what a choice must never be."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allocator import allocate
from allocator.answer import with_allocation
from allocator.decisions import Decider, Unserved, wants_of
from allocator.preemption import disruption, holders_below, least, make_room, may_preempt, without_pods
from dra.objects import Pod, PodDisruptionBudget, ResourceClaim, ResourceClaimConsumerReference, protects
from dra.wire import convert
from tests.allocator.decisions.test_decider import stock_of
from tests.allocator.service import sidecar


def pod(name, *claims, priority=0, age=0, node="n0", labels=None, deleted="", **spec):
    raw = sidecar.pod(name, *claims, priority=priority, **({"nodeName": node} if node else {}), **spec)
    raw["metadata"] |= {"creationTimestamp": f"2026-01-01T00:00:{59 - age:02}Z", "labels": labels or {}}
    if deleted:
        raw["metadata"]["deletionTimestamp"] = deleted
    return convert(raw, Pod)


def budget(name, allowed, **labels):
    meta = {"name": name, "namespace": "default"}
    selector = {"matchLabels": labels}
    return convert(
        {"metadata": meta, "spec": {"selector": selector}, "status": {"disruptionsAllowed": allowed}},
        PodDisruptionBudget,
    )


def running(stock, name, count, *pods, node="n0"):
    """The stock once a claim was given devices of a node, for pods."""
    claim = convert(sidecar.claim(name, count), ResourceClaim)
    given = with_allocation(claim, allocate(stock, node, [claim]).allocations[0].allocation)
    consumers = [ResourceClaimConsumerReference(resource="pods", name=one, uid=f"pod-{one}") for one in pods]
    return stock.with_(replace(given, status=replace(given.status, reserved_for=tuple(consumers))))


def asking(wanted, stock):
    def fits(node, gone):
        return not isinstance(Decider().serve(wanted, node, without_pods(stock, gone), kept=False), Unserved)

    return fits


def victims(wanted, stock, pods, budgets=()):
    """Who goes, on which node."""
    holders = holders_below(wanted, pods, stock, budgets)
    fits = asking(wanted, stock)
    found = [choice for node in stock.nodes if (choice := make_room(node, holders, stock, fits))]
    chosen = least(found, budgets)
    return None if chosen is None else (chosen.node, sorted(one.metadata.name for one in chosen.pods))


def crowd(*holders, nodes=1, each=4, want=1):
    """A fleet whose devices are held: (pod, devices) each; and somebody important who wants some."""
    stock = stock_of(sidecar.claim("want", want), nodes=nodes, each=each)
    for one, count in holders:
        stock = running(stock, f"c-{one.metadata.name}", count, one.metadata.name, node=one.spec.node_name)
    return stock, pod("urgent", "want", priority=100, node="")


def holder(name, count, **what):
    return pod(name, f"c-{name}", **what), count


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
        ([holder("gone", 2, deleted="2026-01-01T00:01:00Z"), holder("b", 2)], [], 2, []),
    ],
    ids=[
        "the less important goes",
        "of equals the younger goes",
        "fewer go rather than more",
        "whom a budget protects stays",
        "a budget that allows one protects none",
        "nobody as important goes",
        "nobody goes in vain",
        "who leaves already is enough",
    ],
)
def test_who_goes(holders, budgets, want, expected):
    stock, urgent = crowd(*holders, want=want)
    found = victims(urgent, stock, [one for one, _ in holders], budgets)
    assert (found[1] if found else None) == expected


def test_the_node_where_least_is_disrupted_is_taken():
    holders = [holder("a", 2, priority=5), holder("b", 2, priority=1, node="n1"), holder("c", 2, priority=9, node="n2")]
    stock, urgent = crowd(*holders, nodes=3, each=2)
    assert victims(urgent, stock, [one for one, _ in holders]) == ("n1", ["b"])


def test_a_shared_claim_is_free_only_when_all_who_share_it_go():
    stock, urgent = crowd(each=1)
    stock = running(stock, "shared", 1, "a", "b")
    low, other = pod("a", "shared"), pod("b", "shared")
    assert victims(urgent, stock, [low, other]) == ("n0", ["a", "b"])
    assert victims(urgent, stock, [low, pod("b", "shared", priority=200)]) is None


def test_a_pod_that_must_not_preempt_says_so():
    assert may_preempt(pod("p"))
    assert not may_preempt(pod("p", preemptionPolicy="Never"))


def test_a_budget_protects_the_pods_its_selector_finds_in_its_namespace():
    one = budget("x", 0, app="x")
    assert protects(one, pod("p", labels={"app": "x"}))
    assert not protects(one, pod("p", labels={"app": "y"}))
    elsewhere = replace(one, metadata=replace(one.metadata, namespace="other"))
    assert not protects(elsewhere, pod("p", labels={"app": "x"}))
    assert not protects(replace(one, spec=replace(one.spec, selector=None)), pod("p", labels={"app": "x"}))
    for operator, values, expected in (
        ("In", ["x"], True),
        ("NotIn", ["x"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
    ):
        rule = {"spec": {"selector": {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}}}
        raw = convert({"metadata": {"namespace": "default"}} | rule, PodDisruptionBudget)
        assert protects(raw, pod("p", labels={"app": "x"})) is expected


# Every choice there is


@st.composite
def fleets(draw):
    """Two nodes of four devices, pods that hold some of them, some sharing a claim, some protected."""
    stock = stock_of(nodes=2, each=4)
    pods = []
    for at in range(draw(st.integers(0, 6))):
        name, node = f"p{at}", draw(st.sampled_from(["n0", "n0", "n1"]))
        shared = [one for one in pods if one.spec.node_name == node] if draw(st.integers(0, 4)) == 0 else []
        what = {
            "priority": draw(st.sampled_from([0, 0, 1, 2])),
            "age": draw(st.integers(0, 3)),
            "labels": {"app": draw(st.sampled_from("xyz"))},
        }
        if shared:
            claims = wants_of(shared[0], stock).claims
            [held] = claims
            user = ResourceClaimConsumerReference(resource="pods", name=name, uid=f"pod-{name}")
            stock = stock.with_(
                replace(held, status=replace(held.status, reserved_for=(*held.status.reserved_for, user)))
            )
            pods.append(pod(name, held.metadata.name, node=node, **what))
            continue
        count = draw(st.integers(1, 2))
        try:
            stock = running(stock, f"c-{name}", count, name, node=node)
        except IndexError:
            continue  # the node is full
        pods.append(pod(name, f"c-{name}", node=node, **what))
    budgets = tuple(budget(app, draw(st.integers(0, 1)), app=app) for app in "xy")
    stock = stock.with_(convert(sidecar.claim("want", draw(st.integers(1, 4))), ResourceClaim))
    return stock, pods, budgets, pod("urgent", "want", priority=draw(st.integers(0, 3)), node="")


def best_of_all(wanted, stock, pods, budgets):
    """The least disruption of any choice on any node, by looking at all of them."""
    fits = asking(wanted, stock)
    below = [one for one in pods if one.spec.priority < wanted.spec.priority]
    costs = []
    for node in stock.nodes:
        here = [one for one in below if one.spec.node_name == node]
        for size in range(len(here) + 1):
            costs += [disruption(choice, budgets) for choice in combinations(here, size) if fits(node, choice)]
    return min(costs, default=None)


@given(fleets())
@settings(max_examples=120, deadline=None)
def test_no_choice_disrupts_less_than_the_one_that_is_made(fleet):
    stock, pods, budgets, wanted = fleet
    holders = holders_below(wanted, pods, stock, budgets)
    fits = asking(wanted, stock)
    found = [choice for node in stock.nodes if (choice := make_room(node, holders, stock, fits))]
    chosen = least(found, budgets)
    expected = best_of_all(wanted, stock, pods, budgets)
    assert (disruption(chosen.pods, budgets) if chosen else None) == expected
    if chosen:
        assert fits(chosen.node, chosen.pods), "evicted in vain"
        assert all(one.spec.priority < wanted.spec.priority for one in chosen.pods)
