import pytest
from msgspec.structs import replace

from allocator import FleetMemo
from dra import wire
from dra.budget import Budget
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.objects.taint import DeviceTaintRule
from dra.stock.stock import Stock
from tests.objects import allocated, claim, device_class, exactly, node, resource_slice, result, typed
from webhook.admission import feasibility
from webhook.admission.feasibility import KINDS, Feasibility, judge
from webhook.refusals import Code
from webhook.translate import PodClaim

DRIVER = "gpu.nvidia.com"


def typed_node(name):
    return typed(node(name))


def gpu_slice(node, count, *, memory="80Gi", slices=1, **device):
    """A slice with GPUs of a node, each with these fields."""
    devices = [{"name": f"gpu-{i}", "capacity": {"memory": {"value": memory}}} | device for i in range(count)]
    fields = {"driver": DRIVER, "pool": node, "nodeName": node, "resourceSliceCount": slices}
    return typed(resource_slice(f"{node}-s", *devices, **fields))


def typed_class(name=DRIVER, expression=f"device.driver == '{DRIVER}'"):
    return typed(device_class(name, expression))


def claim_for(count=1, *, name="c", cel="", held=(), class_=DRIVER, **constraint):
    """A claim for so many GPUs; `held` are those of node n0 that it has."""
    request = exactly(class_, count=count, selector=cel)
    status = allocated(*(result(device, driver=DRIVER, pool="n0") for device in held)) if held else None
    constraints = [constraint] if constraint else []
    return typed(claim(name, request, namespace="ns", constraints=constraints, status=status))


def stock(*more, nodes=("n0", "n1"), count=4, **slices):
    objects = [*more]
    return Stock.of(
        nodes=[typed_node(name) for name in nodes],
        slices=[gpu_slice(name, count, **slices) for name in nodes],
        classes=[typed_class(), *[o for o in objects if isinstance(o, DeviceClass)]],
        claims=[o for o in objects if isinstance(o, ResourceClaim)],
        rules=[o for o in objects if isinstance(o, DeviceTaintRule)],
    )


def test_a_claim_that_free_devices_serve_fits():
    assert judge(stock(), [claim_for(4)]).verdict is Feasibility.FITS


def test_more_than_any_node_has_never_fits():
    told = judge(stock(), [claim_for(5)])
    assert told.verdict is Feasibility.NEVER
    assert "none of 2 nodes" in told.text
    assert "the largest node has 4" in told.text
    assert (told.code, told.remedy) == (
        Code.TOO_MANY,
        "it would fit if claim c, request r asked for no more than 4 devices",
    )


def test_an_allocated_device_is_busy():
    holders = [claim_for(4, name="holder", held=[f"gpu-{i}" for i in range(4)])]
    told = judge(stock(*holders, nodes=("n0",)), [claim_for(1)])
    assert told.verdict is Feasibility.BUSY
    assert "n0" in told.text
    assert "in use" in told.text


def test_a_selector_that_no_device_satisfies_is_never():
    told = judge(stock(), [claim_for(1, cel="device.driver == 'other'")])
    assert told.verdict is Feasibility.NEVER


def test_an_unknown_class_is_never_and_names_the_known_ones():
    told = judge(stock(typed_class("b"), typed_class("a")), [claim_for(1, class_="nope")])
    assert told.verdict is Feasibility.NEVER
    assert f"there is a, b, {DRIVER}" in told.text


def test_claims_of_one_pod_are_judged_together():
    assert judge(stock(), [claim_for(3, name="a")]).verdict is Feasibility.FITS
    assert judge(stock(), [claim_for(3, name="a"), claim_for(3, name="b")]).verdict is Feasibility.NEVER


def test_a_constraint_that_loses_every_device_is_never():
    told = judge(stock(), [claim_for(1, requests=["r"], matchAttribute="resource.kubernetes.io/pcieRoot")])
    assert told.verdict is Feasibility.NEVER


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_does_not_make_a_claim_impossible(effect):
    rule = wire.convert(
        {
            "metadata": {"name": "drain"},
            "spec": {"deviceSelector": {"driver": DRIVER}, "taint": {"key": "maintenance", "effect": effect}},
        },
        DeviceTaintRule,
    )
    assert judge(stock(rule), [claim_for(1)]).verdict is Feasibility.BUSY


def test_an_incomplete_pool_does_not_make_a_claim_impossible():
    assert judge(stock(slices=2), [claim_for(9)]).verdict is Feasibility.BUSY


@pytest.mark.parametrize(("keeps", "verdict"), [(True, Feasibility.BUSY), (False, Feasibility.NEVER)])
def test_an_empty_newer_generation_makes_a_claim_impossible(keeps, verdict):
    old = gpu_slice("n0", 4)
    pool = replace(old.spec.pool, generation=2)
    meta, spec = replace(old.metadata, name="new"), replace(old.spec, pool=pool, devices=())
    slices = [old] * keeps + [ResourceSlice(metadata=meta, spec=spec)]
    assert (
        judge(Stock.of(nodes=[typed_node("n0")], slices=slices, classes=[typed_class()]), [claim_for(1)]).verdict
        is verdict
    )


def test_a_selector_that_fails_at_run_time_is_not_refused():
    told = judge(stock(), [claim_for(1, cel=f"device.attributes['{DRIVER}'].missing == 'x'")])
    assert told.verdict is Feasibility.BUSY
    assert "error" in told.text


def test_a_cluster_without_any_slice_promises_nothing():
    empty = Stock.of(nodes=[typed_node("n0")], classes=[typed_class()])
    assert judge(empty, [claim_for(1)]).verdict is Feasibility.UNKNOWN


def test_an_alternative_that_exists_makes_an_unknown_class_harmless():
    sub = [{"name": n, "deviceClassName": c, "allocationMode": "ExactCount", "count": 1} for n, c in (("a", "nope"), ("b", DRIVER))]  # fmt: skip
    value = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "firstAvailable": sub}]}}}
    told = judge(stock(), [wire.convert(value, ResourceClaim)])
    assert told.verdict is not Feasibility.NEVER


@pytest.mark.parametrize(
    ("memory", "count", "remedy"),
    [
        ("160Gi", 1, "no more than 80Gi of memory, or for 2 devices with 80Gi each"),
        ("200Gi", 1, "no more than 80Gi of memory, or for 3 devices with 68267Mi each"),
        ("400Gi", 1, "no more than 80Gi of memory"),
        ("160Gi", 2, "no more than 80Gi of memory"),
    ],
)
def test_a_refused_amount_has_the_split_over_several_devices_that_fits(memory, count, remedy):
    wanted = typed(claim("c", exactly(DRIVER, count=count, memory=memory), namespace="ns"))
    assert judge(stock(), [wanted]).remedy == f"it would fit if claim c, request r asked for {remedy}"


def test_a_search_that_runs_out_of_steps_promises_nothing():
    assert judge(stock(), [claim_for(4)], steps=0).verdict is Feasibility.UNKNOWN


def test_a_small_budget_yields_only_never_or_unknown():
    tied = [claim_for(2), claim_for(3, name="d", cel="true")]
    assert (
        judge(stock(), tied, budget=Budget()).remedy
        == "it would fit if claim c, request r asked for no more than 1 device"
    )
    for steps in (2, 100, 1_000):
        hurried = judge(stock(), tied, budget=Budget(steps))
        assert hurried.verdict in (Feasibility.NEVER, Feasibility.UNKNOWN)
    assert judge(stock(), tied, budget=Budget(2)).verdict is Feasibility.UNKNOWN


def test_equal_claims_beyond_a_node_report_the_sum():
    told = judge(stock(), [claim_for(name=f"c{at}") for at in range(5)])
    assert (told.code, told.remedy) == (Code.TOO_MANY, "it would fit if they asked for no more than 4 devices")
    asked = "; ".join(f"claim c{at}, request r" for at in range(4))
    assert told.text.endswith(f"{asked} and 1 more together ask for 5 devices of class {DRIVER} on one node, and the largest node has 4")  # fmt: skip
    many = judge(stock(), [claim_for(name=f"c{at}") for at in range(40)])
    assert "together ask for 40 devices" in many.text
    main = "container main (nvidia.com/gpu: 40)"
    asker = PodClaim("", users=("main",), words={"nvidia.com/gpu": 40})
    one = judge(stock(), [claim_for(32, name="a"), claim_for(8, name="b")], given={"a": asker, "b": asker})
    assert f"{main} asks for 40 devices" in one.text, "more than one claim holds"
    assert (one.claim, one.remedy) == ("a", "it would fit if container main asked for no more than 4 devices")


ODD = {
    "selector": claim_for(3, name="d", cel="true"),
    "constraint": claim_for(3, name="d", requests=["r"], distinctAttribute="x/y"),
}


@pytest.mark.parametrize("odd", ODD)
def test_claims_that_ask_for_different_devices_are_not_added_up(odd):
    told = judge(stock(), [claim_for(2), ODD[odd]])
    assert told.verdict is Feasibility.NEVER
    assert "together" not in told.text


def test_shareable_devices_are_not_counted_as_whole():
    memory = {"value": "80Gi", "requestPolicy": {"default": "40Gi"}}
    fleet = stock(count=1, capacity={"memory": memory}, allowMultipleAllocations=True)
    assert judge(fleet, [claim_for(name="a"), claim_for(name="b")]).verdict is Feasibility.FITS
    told = judge(fleet, [claim_for(name=name) for name in "abc"])
    assert told.verdict is Feasibility.NEVER
    assert "together" not in told.text


CURED = {
    "a taint": ({"key": "maintenance", "effect": "NoSchedule"}, {}),
    "a pool that is not complete": (None, {"slices": 2}),
}


@pytest.mark.parametrize("what", CURED)
def test_a_curable_obstacle_is_never_impossible_without_budget(what):
    """Whatever the budget: the search may have ended, and the look at what is in the way has not."""
    taint, pools = CURED[what]
    rules = []
    if taint:
        spec = {"deviceSelector": {"driver": DRIVER, "device": "gpu-8"}, "taint": taint}
        rules = [wire.convert({"metadata": {"name": "drain"}, "spec": spec}, DeviceTaintRule)]
    fleet = stock(*rules, nodes=("n0",), count=9, **pools)
    found = set()
    for steps in range(10, 3_000, 31):
        told = judge(fleet, [claim_for(name=f"c{at}") for at in range(9)], budget=Budget(steps))
        found.add(told.verdict)
        assert "spent" not in told.text, "a question that ended early gives no reason"
    assert found == {Feasibility.UNKNOWN, Feasibility.BUSY} - ({Feasibility.UNKNOWN} if pools else set())


def test_no_insufficient_amount_is_offered_after_a_timeout():
    offered = {judge(stock(), [claim_for(9)], budget=Budget(steps)).remedy for steps in range(10, 2_000, 13)}
    assert offered == {"", "it would fit if claim c, request r asked for no more than 4 devices"}


def test_a_device_plugin_key_is_not_offered_another_class():
    fleet = stock(typed_class("none", "false"))
    assert judge(fleet, [claim_for(class_="none")]).remedy == f"it would fit with class {DRIVER}"
    told = judge(fleet, [claim_for(class_="none")], given={"c": PodClaim("", users=("main",))})
    assert told.remedy == "request a device that a node has, or ask an administrator for nodes with such devices"


@pytest.mark.parametrize(
    ("class_name", "words"),
    [
        ("mig.nvidia.com", "no node has MIG devices"),
        ("hami-core-gpu.project-hami.io", "no node shares GPUs"),
        ("dranet", "no node has a network device"),
        ("acme", "no node has devices of it"),
    ],
)
def test_where_no_node_has_a_device_of_the_class_that_is_said_and_what_there_is_and_no_selector(class_name, words):
    fleet = stock(typed_class(class_name, "device.driver == 'gone.example.com' && device.attributes['x'].y == 'z'"))
    for more in ((), (claim_for(4, name="held", held=[f"gpu-{at}" for at in range(4)]),)):
        told = judge(stock(*fleet.classes.values(), *more), [claim_for(class_=class_name)])
        assert (told.verdict, told.code) == (Feasibility.NEVER, Code.NO_DEVICE)
        assert told.text.startswith(
            f"none of 2 nodes could serve this pod even if idle: claim c, request r asks for class {class_name}, and {words}"
        )
        assert "device." not in told.text


def test_alternatives_of_empty_classes_are_reported_together():
    fleet = stock(typed_class("mig.nvidia.com", "false"), typed_class("acme", "device.driver == 'acme'"))
    told = judge(fleet, [alternatives("mig.nvidia.com", "acme")])
    assert (told.verdict, told.code) == (Feasibility.NEVER, Code.NO_DEVICE)
    assert "asks for class mig.nvidia.com or acme, and no node has MIG devices or has devices of acme" in told.text
    told = judge(fleet, [alternatives("mig.nvidia.com", DRIVER, cel="device.driver == 'other'")])
    assert "no device matches what claim c, request r/s1 asks for" in told.text
    assert "device.driver" not in told.text
    assert told.remedy == "request a device that a node has, or ask an administrator for nodes with such devices"


def alternatives(*classes, cel=None):
    selectors = [{"cel": {"expression": cel}}] if cel else []
    body = {"allocationMode": "ExactCount", "count": 1, "selectors": selectors}
    listed = [{"name": f"s{at}", "deviceClassName": name} | body for at, name in enumerate(classes)]
    requests = [{"name": "r", "firstAvailable": listed}]
    value = {"metadata": {"name": "c", "namespace": "ns"}, "spec": {"devices": {"requests": requests}}}
    return wire.convert(value, ResourceClaim)


def test_products_and_profiles_that_there_are_are_named():
    fleet = stock(typed_class("mig.nvidia.com", "false"))
    piece = wire.convert(
        {
            "metadata": {"name": "s"},
            "spec": {
                "driver": DRIVER,
                "nodeName": "n0",
                "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {"name": f"g{at}", "attributes": {"productName": {"string": name}, "uuid": {"string": f"u{at}"}}}
                    for at, name in enumerate(("L40S", "H100"))
                ],
            },
        },
        ResourceSlice,
    )
    mixed = Stock.of(nodes=[typed_node("n0")], slices=[piece], classes=fleet.classes.values())
    told = judge(mixed, [claim_for(class_="mig.nvidia.com")])
    assert told.text.endswith("and no node has MIG devices; productName is one of H100, L40S")


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_the_offered_class_is_independent_of_informer_order(names):
    others = [typed_class(name, f"device.driver == '{DRIVER}'") for name in names]
    assert (
        judge(stock(typed_class("none", "false"), *others), [claim_for(class_="none")]).remedy
        == "it would fit with class a"
    )


def test_a_missing_product_never_fits_and_existing_ones_are_listed():
    def gpu(name):
        return {"attributes": {"productName": {"string": name}, "uuid": {"string": f"GPU-{name}"}}}

    fleet = Stock.of(
        nodes=[typed_node("n0"), typed_node("n1")],
        slices=[gpu_slice("n0", 1, **gpu("A100")), gpu_slice("n1", 1, **gpu("L40S"))],
        classes=[typed_class()],
    )
    read = f"device.attributes['{DRIVER}']"
    told = judge(fleet, [claim_for(1, cel=f"{read}.productName == 'H200' && {read}.uuid != ''")])
    assert (told.verdict, told.code) == (Feasibility.NEVER, Code.NO_DEVICE)
    assert "productName is one of A100, L40S" in told.text
    assert "GPU-" not in told.text
    assert "device.attributes" not in told.text


@pytest.mark.parametrize("more", ["", " && device.attributes['gpu.nvidia.com'].productName == 'A100'"])
def test_an_attribute_that_no_device_publishes_is_named_as_the_cause(more):
    fleet = Stock.of(
        nodes=[typed_node("n0")],
        slices=[gpu_slice("n0", 1, attributes={"productName": {"string": "A100"}})],
        classes=[typed_class()],
    )
    told = judge(
        fleet,
        [
            claim_for(
                cel=f'"room" in device.attributes["{DRIVER}"] && device.attributes["{DRIVER}"]["room"] == "b"{more}'
            )
        ],
    )
    assert told.code == Code.NO_DEVICE
    assert "asks for; none has room" in told.text
    assert ("productName is one of A100" in told.text) is bool(more)
    assert told.remedy.startswith("request a device that a node has")


def test_a_reason_names_the_container_and_not_the_generated_claim():
    told = judge(
        stock(),
        [claim_for(9, name="drawbridge-main-gpu")],
        given={"drawbridge-main-gpu": PodClaim("", users=("main",))},
    )
    assert "container main asks for 9 devices" in told.text
    assert "claim" not in told.text


def test_an_offered_amount_was_tried_on_the_largest_node():
    """Seventeen kinds of node, the largest last; and devices of which only some can be used at a time."""
    nodes = [typed_node(f"n{i}") for i in range(20)]
    slices = [gpu_slice(f"n{i}", i + 1, memory=f"{i + 1}Gi") for i in range(20)]
    fleet = Stock.of(nodes=nodes, slices=slices, classes=[typed_class()])
    told = judge(fleet, [claim_for(21)])
    assert "the largest node has 20" in told.text
    assert "no more than 20 devices" in told.remedy


def test_one_tainted_kind_of_node_is_enough_for_not_now():
    """Words are made from the first kinds of node only; whether something may change is asked of all."""
    names = [f"n{i:02}" for i in range(KINDS + 2)]
    small = [gpu_slice(name, 1 + i) for i, name in enumerate(names[1:])]
    tainted = gpu_slice(names[0], 40, taints=[{"key": "broken", "effect": "NoSchedule"}])
    fleet = Stock.of(
        nodes=[typed_node(name) for name in names], slices=[*small, tainted], classes=[typed_class()], claims=[]
    )
    assert judge(fleet, [claim_for(30)]).verdict is Feasibility.BUSY


@pytest.fixture
def diagnosed(monkeypatch):
    """The claims whose reasons were searched, by name, each time."""
    names = []
    judge_idle = feasibility._Diagnosis.judge_idle

    def searching(self):
        names.append([claim.metadata.name for claim in self.claims])
        return judge_idle(self)

    monkeypatch.setattr(feasibility._Diagnosis, "judge_idle", searching)
    return names


def test_the_reasons_of_equal_claims_are_searched_once_for_a_stock(diagnosed):
    here, memo = stock(), FleetMemo()
    refused = [judge(here, [claim_for(5)], memo=memo) for _ in range(3)]
    assert diagnosed == [["c"]]
    assert refused == [judge(stock(), [claim_for(5)])] * 3


@pytest.mark.parametrize(
    "change",
    [
        {"claims": [claim_for(6)]},
        {"claims": [claim_for(5, name="d")]},
        {"claims": [claim_for(5), claim_for(5, name="d")]},
        {"given": {"c": PodClaim("c", {}, ("main",), {"nvidia.com/gpu": "5"})}},
        {"given": {"c": PodClaim("c", {}, ("main",), requesters={"r": "container other"})}},
        {"subject": "claim"},
        {"prospects": stock(nodes=("new",), count=8)},
        {"stock": stock(nodes=("n0",))},
    ],
    ids=lambda change: next(iter(change)),
)
def test_reasons_of_another_question_are_searched_anew(diagnosed, change):
    asked = {"stock": stock(), "claims": [claim_for(5)]}
    memo = FleetMemo()
    before = judge(**asked, memo=memo)
    asked |= change
    told = judge(**asked, memo=memo)
    assert told == judge(**asked)
    assert told != before
    assert len(diagnosed) > 2


def test_other_reachable_nodes_need_a_new_search_for_reasons():
    sizes = {"n0": 2, "n1": 4, "n2": 8}
    here = Stock.of(
        nodes=[typed_node(name) for name in sizes],
        slices=[gpu_slice(name, count) for name, count in sizes.items()],
        classes=[typed_class()],
    )
    memo = FleetMemo()
    told = {name: judge(here, [claim_for(6)], within=frozenset({name}), memo=memo) for name in sizes}
    assert told == {name: judge(here, [claim_for(6)], within=frozenset({name})) for name in sizes}
    assert len(set(told.values())) == 3


def test_reasons_that_were_cut_short_are_not_kept(diagnosed):
    here, memo = stock(), FleetMemo()
    looks = iter([False] * 3)
    late = judge(here, [claim_for(5)], memo=memo, budget=Budget(1_000_000, lambda: next(looks, True)))
    whole = judge(here, [claim_for(5)], memo=memo)
    assert late != whole == judge(here, [claim_for(5)])
    assert len(diagnosed) == 3


def test_conclusions_about_a_stock_are_bounded_and_end_with_it(monkeypatch):
    monkeypatch.setattr(feasibility._Diagnosis, "judge_idle", lambda _: feasibility.Judgement(Feasibility.BUSY, "x"))
    here, memo = stock(), FleetMemo()
    for number in range(6_000):
        judge(here, [claim_for(5, name=f"c{number}")], memo=memo)
    assert 1_000 < len(memo.conclusions(here)) < 5_000
    assert len(memo.conclusions(stock())) == 0
