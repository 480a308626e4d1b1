"""Feasibility: the reasons and remedies of a refusal, and the caches of reasons."""

import pytest

from allocator import FleetMemo
from dra import wire
from dra.budget import Budget
from dra.objects.claim import ResourceClaim
from dra.stock.stock import Stock
from tests.objects import claim, exactly, resource_slice, typed
from tests.webhook.admission.fleets import DRIVER, claim_for, gpu_slice, stock, typed_class, typed_node
from webhook.placement import feasibility
from webhook.placement.feasibility import can_any_node_serve
from webhook.placement.impossible import MAX_KINDS, Feasibility, busy
from webhook.refusals import Code
from webhook.translate import PodClaim


def test_the_remedy_for_a_translated_key_names_no_class():
    fleet = stock(typed_class("none", f"device.driver == '{DRIVER}' && false"))
    assert (
        can_any_node_serve(fleet, [claim_for(class_="none")]).remedy
        == f"use DeviceClass {DRIVER} in claim c, request r"
    )
    judgement = can_any_node_serve(fleet, [claim_for(class_="none")], generated={"c": PodClaim("", users=("main",))})
    assert judgement.code == Code.NO_DEVICE
    assert judgement.remedy
    assert DRIVER not in judgement.remedy


@pytest.mark.parametrize(
    ("class_name", "words"),
    [
        ("mig.nvidia.com", "no node has MIG devices"),
        ("hami-core-gpu.project-hami.io", "no node shares GPUs"),
        ("dranet", "no node has a network device"),
        ("acme", "no node has devices of this class"),
    ],
)
def test_a_class_without_devices_is_reported_without_its_selector_expressions(class_name, words):
    fleet = stock(typed_class(class_name, "device.driver == 'gone.example.com' && device.attributes['x'].y == 'z'"))
    for holders in ((), (claim_for(4, name="held", held_devices=[f"gpu-{index}" for index in range(4)]),)):
        judgement = can_any_node_serve(stock(*fleet.classes.values(), *holders), [claim_for(class_=class_name)])
        assert (judgement.verdict, judgement.code) == (Feasibility.NEVER, Code.NO_DEVICE)
        assert judgement.text.startswith(
            f"none of the 2 nodes can serve this pod, even with all devices free: claim c, request r requests class {class_name}, but {words}"
        )
        assert "device." not in judgement.text


def test_alternatives_of_empty_classes_are_reported_together():
    fleet = stock(typed_class("mig.nvidia.com", "false"), typed_class("acme", "device.driver == 'acme'"))
    judgement = can_any_node_serve(fleet, [alternatives("mig.nvidia.com", "acme")])
    assert (judgement.verdict, judgement.code) == (Feasibility.NEVER, Code.NO_DEVICE)
    assert "requests class mig.nvidia.com or acme, but no node has MIG devices or has devices of acme" in judgement.text
    judgement = can_any_node_serve(fleet, [alternatives("mig.nvidia.com", DRIVER, cel="device.driver == 'other'")])
    assert "no device matches what claim c, request r/s1 requests" in judgement.text
    assert "device.driver" not in judgement.text
    assert judgement.remedy == "request a device that a node has, or ask an administrator for nodes with such devices"


def alternatives(*classes, cel=None):
    selectors = [{"cel": {"expression": cel}}] if cel else []
    body = {"allocationMode": "ExactCount", "count": 1, "selectors": selectors}
    listed = [{"name": f"s{index}", "deviceClassName": name} | body for index, name in enumerate(classes)]
    requests = [{"name": "r", "firstAvailable": listed}]
    value = {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": {"requests": requests}}}
    return wire.convert(value, ResourceClaim)


def test_published_products_are_listed_for_a_class_without_devices():
    fleet = stock(typed_class("mig.nvidia.com", "false"))
    devices = [
        {"name": f"g{index}", "attributes": {"productName": {"string": name}, "uuid": {"string": f"u{index}"}}}
        for index, name in enumerate(("L40S", "H100"))
    ]
    slice_ = typed(resource_slice("s", *devices, driver=DRIVER, pool="n0", nodeName="n0"))
    fleet_of_two_products = Stock.of(nodes=[typed_node("n0")], slices=[slice_], classes=fleet.classes.values())
    judgement = can_any_node_serve(fleet_of_two_products, [claim_for(class_="mig.nvidia.com")])
    assert judgement.text.endswith("but no node has MIG devices; published values of productName: H100, L40S")


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_the_offered_class_is_independent_of_the_order_of_classes(names):
    classes = [typed_class(name, f"device.driver == '{DRIVER}'") for name in names]
    assert (
        can_any_node_serve(
            stock(typed_class("none", f"device.driver == '{DRIVER}' && false"), *classes), [claim_for(class_="none")]
        ).remedy
        == "use DeviceClass a in claim c, request r"
    )


def test_the_largest_amount_that_a_node_has_is_offered():
    """One node has a card of 80Gi, and two nodes have two cards of 40Gi, which are nearer to a fit by their number."""
    cards = {"n0": (1, "80Gi"), "n1": (2, "40Gi"), "n2": (2, "40Gi")}
    fleet = Stock.of(
        nodes=[typed_node(name) for name in cards],
        slices=[gpu_slice(name, count, memory=size) for name, (count, size) in cards.items()],
        classes=[typed_class()],
    )
    large = typed(claim("c", exactly(DRIVER, memory="90000Mi"), namespace="ns"))
    judgement = can_any_node_serve(fleet, [large])
    assert "nearest is n0" in judgement.text
    assert judgement.remedy.startswith("request at most 80Gi of memory")


def test_a_product_with_other_digits_is_not_suggested():
    products = {"attributes": {"productName": {"string": "NVIDIA-A100-PCIE"}}}
    fleet = Stock.of(nodes=[typed_node("n0")], slices=[gpu_slice("n0", 1, **products)], classes=[typed_class()])
    selects = lambda product: f"device.attributes['{DRIVER}'].productName == '{product}'"  # noqa: E731
    remedies = [
        can_any_node_serve(fleet, [claim_for(1, cel=selects(name))]).remedy
        for name in ("H100", "NVIDIA-H100-PCIE", "NVIDA-A100-PCIE")
    ]
    assert remedies == ["request one of these values"] * 2 + ["did you mean NVIDIA-A100-PCIE?"]


def test_a_missing_product_never_fits_and_existing_ones_are_listed():
    def gpu(name):
        return {"attributes": {"productName": {"string": name}, "uuid": {"string": f"GPU-{name}"}}}

    fleet = Stock.of(
        nodes=[typed_node("n0"), typed_node("n1")],
        slices=[gpu_slice("n0", 1, **gpu("A100")), gpu_slice("n1", 1, **gpu("L40S"))],
        classes=[typed_class()],
    )
    attributes = f"device.attributes['{DRIVER}']"
    judgement = can_any_node_serve(
        fleet, [claim_for(1, cel=f"{attributes}.productName == 'H200' && {attributes}.uuid != ''")]
    )
    assert (judgement.verdict, judgement.code) == (Feasibility.NEVER, Code.NO_DEVICE)
    assert "published values of productName: A100, L40S" in judgement.text
    assert "GPU-" not in judgement.text
    assert "device.attributes" not in judgement.text


@pytest.mark.parametrize("condition", ["", " && device.attributes['gpu.nvidia.com'].productName == 'A100'"])
def test_an_unpublished_attribute_is_reported_as_the_cause(condition):
    fleet = Stock.of(
        nodes=[typed_node("n0")],
        slices=[gpu_slice("n0", 1, attributes={"productName": {"string": "A100"}})],
        classes=[typed_class()],
    )
    attributes = f'device.attributes["{DRIVER}"]'
    cel = f'"room" in {attributes} && {attributes}["room"] == "b"{condition}'
    judgement = can_any_node_serve(fleet, [claim_for(cel=cel)])
    assert judgement.code == Code.NO_DEVICE
    assert "requests; no device publishes room" in judgement.text
    assert ("published values of productName: A100" in judgement.text) is bool(condition)
    assert judgement.remedy.startswith("request a device that a node has")


def test_a_reason_names_the_container_and_not_the_generated_claim():
    judgement = can_any_node_serve(
        stock(),
        [claim_for(9, name="drawbridge-main-gpu")],
        generated={"drawbridge-main-gpu": PodClaim("", users=("main",))},
    )
    assert "container main requests 9 devices" in judgement.text
    assert "claim" not in judgement.text


def test_a_remedy_offers_the_amount_of_the_largest_node():
    """The cluster has 20 kinds of node, more than the search for reasons compares. The largest node is the last one."""
    nodes = [typed_node(f"n{i}") for i in range(20)]
    slices = [gpu_slice(f"n{i}", i + 1, memory=f"{i + 1}Gi") for i in range(20)]
    fleet = Stock.of(nodes=nodes, slices=slices, classes=[typed_class()])
    judgement = can_any_node_serve(fleet, [claim_for(21)])
    assert judgement.most_devices == 20
    assert "at most 20 devices" in judgement.remedy


def test_a_single_tainted_node_kind_makes_a_verdict_temporary():
    """The reasons are from the first kinds of node only. All kinds determine whether the verdict may change."""
    names = [f"n{i:02}" for i in range(MAX_KINDS + 2)]
    small = [gpu_slice(name, 1 + i) for i, name in enumerate(names[1:])]
    tainted = gpu_slice(names[0], 40, taints=[{"key": "broken", "effect": "NoSchedule"}])
    fleet = Stock.of(
        nodes=[typed_node(name) for name in names], slices=[*small, tainted], classes=[typed_class()], claims=[]
    )
    assert can_any_node_serve(fleet, [claim_for(30)]).verdict is Feasibility.BUSY


def test_equal_claims_on_one_stock_share_a_search_for_reasons(monkeypatch):
    names = []
    judge_idle = feasibility.judge_idle

    def record_and_judge(demand):
        names.append([claim.metadata.name for claim in demand.claims])
        return judge_idle(demand)

    monkeypatch.setattr(feasibility, "judge_idle", record_and_judge)
    fleet, memo = stock(), FleetMemo()
    refused = [can_any_node_serve(fleet, [claim_for(5)], memo=memo) for _ in range(3)]
    assert names == [["c"]]
    assert refused == [can_any_node_serve(stock(), [claim_for(5)])] * 3


@pytest.mark.parametrize(
    "change",
    [
        {"claims": [claim_for(6)]},
        {"claims": [claim_for(5, name="d")]},
        {"claims": [claim_for(5), claim_for(5, name="d")]},
        {"generated": {"c": PodClaim("c", {}, ("main",), {"nvidia.com/gpu": "5"})}},
        {"generated": {"c": PodClaim("c", {}, ("main",), requesters={"r": "container other"})}},
        {"subject": "claim"},
        {"prospects": stock(nodes=("new",), count=8)},
        {"stock": stock(nodes=("n0",))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_reasons_are_not_reused_for_another_question(change):
    question = {"stock": stock(), "claims": [claim_for(5)]}
    memo = FleetMemo()
    first_judgement = can_any_node_serve(**question, memo=memo)
    question |= change
    judgement = can_any_node_serve(**question, memo=memo)
    assert judgement == can_any_node_serve(**question)
    assert judgement != first_judgement


def test_other_reachable_nodes_need_a_new_search_for_reasons():
    sizes = {"n0": 2, "n1": 4, "n2": 8}
    fleet = Stock.of(
        nodes=[typed_node(name) for name in sizes],
        slices=[gpu_slice(name, count) for name, count in sizes.items()],
        classes=[typed_class()],
    )
    memo = FleetMemo()
    judgements = {
        name: can_any_node_serve(fleet, [claim_for(6)], within=frozenset({name}), memo=memo) for name in sizes
    }
    assert judgements == {name: can_any_node_serve(fleet, [claim_for(6)], within=frozenset({name})) for name in sizes}
    assert len(set(judgements.values())) == 3


def test_incomplete_reasons_are_not_cached():
    fleet, memo = stock(), FleetMemo()
    answers = iter([False] * 3)
    late_judgement = can_any_node_serve(
        fleet, [claim_for(5)], memo=memo, budget=Budget(1_000_000, lambda: next(answers, True))
    )
    full_judgement = can_any_node_serve(fleet, [claim_for(5)], memo=memo)
    assert late_judgement != full_judgement == can_any_node_serve(fleet, [claim_for(5)])


def test_cached_conclusions_are_bounded_and_belong_to_one_stock(monkeypatch):
    monkeypatch.setattr(feasibility, "judge_idle", lambda _: busy("x"))
    fleet, memo = stock(), FleetMemo()
    for number in range(6_000):
        can_any_node_serve(fleet, [claim_for(5, name=f"c{number}")], memo=memo)
    assert 1_000 < len(memo.conclusions(fleet)) < 5_000
    assert len(memo.conclusions(stock())) == 0
