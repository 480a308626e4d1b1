"""All nodes at once must say what each node alone says, from the start and after every change."""

import copy
import random
from types import SimpleNamespace

import pytest

from allocator import Answer, FleetMemo, Options, Verdict, allocate, fleet
from allocator.problem import OPTIONAL_OPERATIONS, attributes
from dra.budget import Budget
from dra.cache import Cache
from dra.cel import selector
from dra.objects import node as node_objects
from dra.objects.claim import DeviceClass, ResourceClaim
from dra.objects.device import ResourceSlice
from dra.objects.node import Node
from dra.objects.own_kinds import DeviceCompatibility
from dra.server import EVERYTHING, OLDEST
from dra.stock import pool
from dra.stock.stock import Stock
from dra.wire import convert
from tests.allocator import fleets
from tests.allocator.generate import FAMILIES, case_of
from tests.allocator.servers import any_server
from tests.dra.samples import slice_
from tests.draws import draws
from tests.objects import exactly

OPTIONAL = (OPTIONAL_OPERATIONS,)


def moved(case, node):
    """A case's slices and claims in use, on another node and under other pool names where the pool is the node's own."""
    case = copy.deepcopy(case)
    own = {one["spec"]["pool"]["name"] for one in case["slices"] if one["spec"].get("nodeName")}
    for one in case["slices"]:
        spec = one["spec"]
        one["metadata"]["name"] += f"-{node}"
        if spec.get("nodeName") == "n0":
            spec["nodeName"] = node
        if spec["pool"]["name"] in own:
            spec["pool"]["name"] += f"-{node}"
    for claim in case["allocatedClaims"]:
        claim["metadata"]["name"] += f"-{node}"
        for result in claim["status"]["allocation"]["devices"]["results"]:
            if result["pool"] in own:
                result["pool"] += f"-{node}"
    return case


def assembled(family, seed, rng, server=EVERYTHING):
    """A fleet of six nodes out of two or three cases, so that some nodes are equal."""
    cases = [case_of(family, seed + n) for n in range(rng.choice((1, 2, 3)))]
    parts = [moved(rng.choice(cases), f"n{n}") for n in range(6)]
    nodes = [
        {**part["node"], "metadata": {**part["node"]["metadata"], "name": f"n{n}"}} for n, part in enumerate(parts)
    ]
    stock = Stock.of(
        nodes=[convert(node, Node) for node in nodes],
        slices=[convert(one, ResourceSlice) for part in parts for one in part["slices"]],
        classes=[convert(one, DeviceClass) for one in cases[0]["classes"]],
        claims=[convert(one, ResourceClaim) for part in parts for one in part["allocatedClaims"]],
        server=server,
    )
    return stock, [convert(one, ResourceClaim) for one in cases[0]["claims"]]


def same(stock, claims):
    together = fleet(stock, claims, options=Options(steps=20_000))
    for node in stock.nodes:
        alone = allocate(stock, node, claims, options=Options(steps=20_000))
        found = together[node]
        assert (found.verdict, found.allocations, found.error, found.node_only) == (
            alone.verdict,
            alone.allocations,
            alone.error,
            alone.node_only,
        ), node
        assert together.verdict(node) == found.verdict


@pytest.fixture(params=["by value", "by answer"])
def compared(request, monkeypatch):
    """How attributes tell nodes apart; by answer, as on large fleets, where even two values differ."""
    if request.param == "by answer":
        monkeypatch.setattr(attributes, "_SAMPLE", 2)


@pytest.mark.usefixtures("compared")
def test_a_fleet_answers_like_each_of_its_nodes():
    for family in FAMILIES:
        for seed in range(draws(8)):
            stock, claims = assembled(family, 40_000 + seed, random.Random(seed))
            same(stock, claims)


@pytest.mark.usefixtures("compared")
def test_a_fleet_without_gates_answers_like_its_nodes():
    for family in FAMILIES:
        for seed in random.Random(family).sample(range(4), draws(4)):
            rng = random.Random(seed)
            server = any_server(OLDEST + seed, rng)
            stock, claims = assembled(family, 40_000 + seed, rng, server)
            same(stock, claims)


@pytest.mark.usefixtures("compared")
def test_a_fleet_follows_changes():
    for family in ("general", "shares", "parts", "places"):
        for seed in range(4):
            rng = random.Random(seed)
            server = any_server(OLDEST + seed, rng)
            stock, claims = assembled(family, 50_000 + seed, rng, server)
            other, _ = assembled(family, 60_000 + seed, rng)
            same(stock, claims)
            for _ in range(6):
                kind = rng.randrange(4)
                if kind == 0 and stock.claims:
                    stock = stock.without("ResourceClaim", rng.choice(list(stock.claims)))
                elif kind == 1 and other.claims:
                    stock = stock.with_object(rng.choice(list(other.claims.values())))
                elif kind == 2:
                    stock = stock.with_object(rng.choice(list(other.slices.values())))
                elif len(stock.nodes) > 2:
                    stock = stock.without("Node", rng.choice(list(stock.nodes)))
                same(stock, claims)


def test_equal_nodes_are_answered_once():
    stock = fleets.fleet({f"n{n}": [fleets.gpu("a", memory="80Gi"), fleets.gpu("b")] for n in range(50)})
    answers = fleet(stock, [fleets.claim("c", exactly("gpu", count=2))])
    assert len(answers.feasible) == 50
    assert len(answers.equal_nodes()) == 1
    assert answers["n7"].allocations[0].allocation.devices.results[0].pool == "n7"


def test_a_node_publishing_in_all_pools_stays_cheap():
    """It takes a slice a node to write, and a search a node for each pod to answer: a fleet of thousands would have no time left."""
    names = [f"n{n}" for n in range(50)]
    stock = fleets.fleet({name: [fleets.gpu("a", memory="80Gi"), fleets.gpu("b")] for name in names})
    claims = [fleets.claim("c", exactly("gpu", count=2))]
    for generation in (1, 2**62):
        lies = [slice_(f"lie-{at}", "a", pool=at, driver=fleets.DRIVER, generation=generation) for at in names[1:]]
        lied = stock.with_all(lies)
        answers = fleet(lied, claims)
        assert len(answers.feasible) == 50
        assert len(answers.equal_nodes()) == 2
        same(lied, claims)


def test_a_large_node_leaves_budget_to_the_others():
    honest = {f"n{n}": [fleets.gpu("a", memory="80Gi")] for n in range(9)}
    many = [fleets.gpu(f"g{at}", memory=f"{at + 1}Mi") for at in range(2_000)]
    stock = fleets.fleet({"evil": many} | honest)
    claims = [
        fleets.claim(
            "c",
            exactly("gpu", selector=f'device.capacity["{fleets.DRIVER}"].memory.compareTo(quantity("1Gi")) > 0'),
        )
    ]
    answers = fleet(stock, claims, options=Options(budget=Budget(5_000)))
    assert answers.verdict("evil") is Verdict.UNDECIDED
    assert sorted(answers.feasible) == sorted(honest)
    assert list(answers) == list(stock.nodes)


UUID = f'device.attributes["{fleets.DRIVER}"].uuid'


def gpus(node, count=2, **more):
    """Devices with an attribute that no other device has."""
    made = [fleets.gpu(f"gpu-{at}", **more) for at in range(count)]
    for one in made:
        one["attributes"]["uuid"] = {"string": f"{node}-{one['name']}"}
    return made


@pytest.mark.parametrize(
    ("expression", "looks", "feasible"),
    [
        (f'{UUID} != "n7-gpu-0"', 2, 199),
        (f'{UUID} == "n7-gpu-0"', 2, 0),
        (f'{UUID} in ["n7-gpu-0", "n7-gpu-1"]', 2, 1),
        (f'{UUID}.startsWith("n1")', 2, 111),
        (f'device.attributes["{fleets.DRIVER}"].profile == "gpu" && {UUID} != "n7-gpu-0"', 2, 199),
        (f"{UUID}.nothing", 200, 0),  # fails on each device, with the device in the words
    ],
)
def test_unique_attribute_values_do_not_make_nodes_unequal(expression, looks, feasible):
    stock = fleets.fleet({f"n{n}": gpus(f"n{n}") for n in range(200)})
    answers = fleet(stock, [fleets.claim("c", exactly("gpu", selector=expression, count=2))])
    assert (len(answers.equal_nodes()), len(answers.feasible)) == (looks, feasible)


@pytest.mark.parametrize("constraint", ["matchAttribute", "distinctAttribute"])
def test_values_that_differ_on_every_node_are_compared_within_it(constraint):
    stock = fleets.fleet({f"n{n}": gpus(f"n{n}") for n in range(200)})
    claim = fleets.claim("c", exactly("gpu", count=2), constraints=[{constraint: f"{fleets.DRIVER}/uuid"}])
    answers = fleet(stock, [claim])
    assert len(answers.equal_nodes()) == 1
    assert len(answers.feasible) == (200 if constraint == "distinctAttribute" else 0)


def test_only_what_changed_is_looked_at_again():
    stock = fleets.fleet({f"n{n}": [fleets.gpu("a")] for n in range(20)})
    claims, memo = [fleets.claim("c", exactly("gpu"))], FleetMemo()
    before = fleet(stock, claims, memo=memo)
    after = fleet(stock.with_object(fleets.taken("n3", "a")), claims, memo=memo)
    assert set(before.feasible) - set(after.feasible) == {"n3"}
    assert before["n3"].feasible
    assert len(before.equal_nodes()) + len(after.equal_nodes()) == 3
    assert [id(after._found[node]) == id(before._found[node]) for node in ("n2", "n3", "n4")] == [True, False, True]


def test_a_feasibility_check_on_idle_nodes_ignores_current_holders():
    stock = fleets.fleet({"n0": [fleets.gpu("a")]}, fleets.taken("n0", "a"))
    one, two = [fleets.claim("c", exactly("gpu", count=count)) for count in (1, 2)]
    assert not fleet(stock, [one]).feasible
    assert fleet(stock, [one], idle=True).feasible
    refusal = fleet(stock, [two], idle=True)["n0"]
    assert refusal.verdict is Verdict.INFEASIBLE
    assert refusal.reasons


def test_claims_that_differ_in_name_only_share_a_search():
    stock = fleets.fleet({"n0": [fleets.shared("a", "80Gi")], "n1": [fleets.gpu("a")]})
    memo = FleetMemo()
    answers = [fleet(stock, [fleets.claim(name, exactly("gpu"))], memo=memo) for name in ("one", "other")]
    assert len(memo) == 1
    granted = [answer["n0"].allocations[0] for answer in answers]
    assert [one.claim for one in granted] == ["default/one", "default/other"]
    assert len({one.allocation.devices.results[0].share_id for one in granted}) == 2


def test_nodes_differing_in_fields_of_a_rule_are_unequal():
    serial = f'device.attributes["{fleets.DRIVER}"].serial'
    rule = convert(
        {
            "metadata": {"name": "r"},
            "spec": {"driver": fleets.DRIVER, "selector": f'{serial} == "1"', "compatibleOnlyWith": "false"},
        },
        DeviceCompatibility,
    )
    nodes = {}
    for node in ("n0", "n1"):
        devices = [fleets.gpu("a"), fleets.gpu("b")]
        for device in devices:
            device["attributes"]["serial"] = {"string": node[1]}
        nodes[node] = devices
    stock = fleets.fleet(nodes).with_object(rule)
    claims = [fleets.claim("c", exactly("gpu", count=2))]
    assert fleet(stock, claims).feasible == ["n0"]
    same(stock, claims)


@pytest.mark.parametrize("features", [((), OPTIONAL), (OPTIONAL, ())])
def test_nodes_of_one_pool_with_different_features_are_unequal(features):
    """Devices whose node operations may be skipped are there for nodes with the feature only; nodes of one pool may differ in it."""
    nodes = [
        convert({"metadata": {"name": f"n{at}"}, "status": {"declaredFeatures": list(declared)}}, Node)
        for at, declared in enumerate(features)
    ]
    pages = [slice_("a", fleets.gpu("x"), driver=fleets.DRIVER, allNodes=True, skipNodeOperations=["*"])]
    stock = Stock.of(slices=pages, nodes=nodes, classes=fleets.fleet({}).classes.values())
    claims = [fleets.claim("c", exactly("gpu"))]
    assert fleet(stock, claims).feasible == [f"n{features.index(OPTIONAL)}"]
    same(stock, claims)


def test_a_fleet_without_nodes_has_no_answer():
    stock = Stock.of(slices=[slice_("a", "x")])
    assert len(fleet(stock, [])) == 0


def test_an_impatient_caller_gets_partial_answers():
    stock = fleets.fleet({f"n{n}": [fleets.gpu(f"d{i}") for i in range(n + 4)] for n in range(6)})
    claims = [fleets.claim("c", *(exactly("gpu", name=f"r{n}", count=2) for n in range(6)))]
    hurried = fleet(stock, claims, options=Options(budget=Budget(impatient=lambda: True)))
    patient = fleet(stock, claims)
    assert all(patient.verdict(node) is not Verdict.UNDECIDED for node in stock.nodes)
    assert len(hurried) == len(patient)


def waiting_for(looks):
    """Options of a question that has stopped waiting once that was looked at so often."""
    left = iter(range(looks))
    return Options(budget=Budget(impatient=lambda: next(left, None) is None))


def test_an_unexamined_node_is_undecided():
    """Kubernetes cannot parse the node selector of the slice, and nobody has looked at it yet."""
    unparsable = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Maybe", "values": ["a"]}]}]}
    stock = fleets.fleet({"n0": [fleets.gpu("a")]}).with_object(slice_("s", "x", nodeSelector=unparsable))
    claims = [fleets.claim("c", exactly("gpu"))]
    gone = Options(budget=Budget(10**9, lambda: True))
    assert fleet(stock, claims, options=gone)["n0"].verdict is Verdict.UNDECIDED
    assert fleet(stock, claims)["n0"].verdict is Verdict.ERROR


def test_a_fleet_check_resumes_where_time_ran_out():
    """Unread pages were all read first: 5,000 nodes took 34 ms of a budget of 7."""
    stock = fleets.fleet({f"n{n:03}": [fleets.gpu("a")] for n in range(300)})
    claims, memo = [fleets.claim("c", exactly("gpu"))], FleetMemo()
    decided = [0]
    while decided[-1] < len(stock.nodes):
        answers = fleet(stock, claims, options=waiting_for(4), memo=memo)
        decided.append(sum(answers.verdict(node) is not Verdict.UNDECIDED for node in answers))
        assert 0 < decided[-1] - decided[-2] <= 4 * 32
        stock = stock.with_object(fleets.taken(f"n{len(decided):03}", "a"))  # one that was looked at
    assert len(decided) > 3
    patient = fleet(stock, claims)
    answers = fleet(stock, claims, memo=memo)
    assert {node: answers.verdict(node) for node in answers} == {node: patient.verdict(node) for node in patient}
    assert [node for node in answers if answers.verdict(node) is Verdict.UNDECIDED] == []
    assert len(patient.feasible) == 300 - len(decided) + 1


def selective(nodes, devices, values=1):
    """A fleet whose devices are for nodes one by one, each by its own selector of a label that differs on every node."""

    def other_hosts(number):
        values_ = [f"other-{number}-{at}" for at in range(values)]
        return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "host", "operator": "NotIn", "values": values_}]}]}

    per_slice = [range(at, min(at + 100, devices)) for at in range(0, devices, 100)]
    return Stock.of(
        nodes=[convert({"metadata": {"name": f"n{n}", "labels": {"host": f"h{n}"}}}, Node) for n in range(nodes)],
        slices=[
            slice_(
                f"s{some[0]}",
                *[{"name": f"d{n}", "nodeSelector": other_hosts(n)} for n in some],
                count=len(per_slice),
                perDeviceNodeSelection=True,
            )
            for some in per_slice
        ],
        classes=[convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)],
    )


def test_device_node_selectors_count_toward_the_budget():
    """Each of them is matched with each node: 32 nodes and 3,200 devices took 0.4 s between two looks at the clock."""
    stock = selective(100, 128)
    answers = fleet(stock, [fleets.claim("c", exactly("gpu"))], options=waiting_for(20))
    assert 20 <= sum(answers.verdict(node) is Verdict.FEASIBLE for node in answers) <= 20 * 4


@pytest.fixture
def matched(monkeypatch):
    """The names of the nodes with which a device or slice was matched, each time."""
    names = []

    def matches(selector, node):
        names.append(node.metadata.name)
        return node_objects.matches(selector, node)

    monkeypatch.setattr(pool, "nodes", SimpleNamespace(matches=matches))
    return names


@pytest.mark.parametrize("steps", [1, 2_000, 6_000])
def test_matching_devices_with_nodes_respects_the_budget(steps, matched):
    """300 nodes and 3,200 devices, each with 900 values, took 4 s of which nothing was charged: even a spent budget did not end it."""
    stock, claims = selective(60, 200, values=20), [fleets.claim("c", exactly("gpu"))]
    answers = fleet(stock, claims, options=Options(budget=Budget(steps)))
    assert len(matched) <= 2 * steps
    undecided = [node for node in answers if answers.verdict(node) is Verdict.UNDECIDED]
    assert undecided
    assert {answers[node].error for node in undecided} == {"the budget of steps is spent"}


def test_nodes_that_one_question_matched_are_known_to_the_next(matched):
    stock, claims, memo = selective(60, 200), [fleets.claim("c", exactly("gpu"))], FleetMemo()
    decided = [0]
    while decided[-1] < len(stock.nodes):
        answers = fleet(stock, claims, options=Options(budget=Budget(6_000)), memo=memo)
        decided.append(sum(answers.verdict(node) is Verdict.FEASIBLE for node in answers))
        assert decided[-1] > decided[-2]
    assert len(decided) > 3
    matched.clear()
    assert len(fleet(stock, [fleets.claim("c", exactly("gpu", count=2))], memo=memo).feasible) == 60
    assert len(matched) < 1_000
    alone = fleet(
        stock.with_object(convert({"metadata": {"name": "n7", "labels": {"host": "other-3-0"}}}, Node)),
        claims,
        memo=memo,
    )
    assert len(alone.equal_nodes()) == 2


def test_nodes_with_equal_selected_labels_are_matched_once(matched):
    """5,000 nodes and 100 pools, each for a zone, took a second."""
    zones = [
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [f"z{n}"]}]}]}
        for n in range(4)
    ]
    stock = Stock.of(
        nodes=[convert({"metadata": {"name": f"n{n}", "labels": {"zone": f"z{n % 4}"}}}, Node) for n in range(200)],
        slices=[slice_(f"s{n}", "d", pool=f"p{n}", nodeSelector=zone) for n, zone in enumerate(zones)],
        classes=[convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)],
    )
    answers = fleet(stock, [fleets.claim("c", exactly("gpu"))])
    assert len(answers.feasible) == 200
    assert len(answers.equal_nodes()) == 4
    assert len(matched) == 4 * 4


@pytest.mark.parametrize("seed", range(draws(12)))
def test_all_selected_labels_distinguish_nodes(seed):
    rng = random.Random(seed)

    def requirement():
        operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", *["Wrong"] * (rng.random() < 0.05)])
        values = {"In": ["1", "2"], "NotIn": ["1"], "Gt": ["1"]}.get(operator, [])
        return {"key": rng.choice("ab"), "operator": operator, "values": values}

    def place():
        name = rng.choice(["n0", "n1", "n2"])
        field = {"key": "metadata.name", "operator": rng.choice(["In", "NotIn"]), "values": [name]}
        term = rng.choice(
            [
                {"matchExpressions": [requirement()]},
                {"matchFields": [field]},
                {"matchFields": [field], "matchExpressions": [requirement()]},
                {},
            ]
        )
        return rng.choice(
            [{"nodeSelector": {"nodeSelectorTerms": [term]}}] * 4 + [{"nodeName": name}, {"allNodes": True}]
        )

    slices = []
    for number in range(3):
        if rng.random() < 0.5:
            devices = [{"name": f"d{n}", **place()} for n in range(2)]
            slices.append(slice_(f"s{number}", *devices, pool=f"p{number}", perDeviceNodeSelection=True))
        else:
            where = place()
            slices.append(
                slice_(f"s{number}", "d0", "d1", pool=f"p{number}", node=where.pop("nodeName", "n0"), **where)
            )
    nodes = [
        {"metadata": {"name": f"n{n}", "labels": {key: rng.choice("12") for key in "ab" if rng.random() < 0.7}}}
        for n in range(8)
    ]
    stock = Stock.of(
        nodes=[convert(node, Node) for node in nodes],
        slices=slices,
        classes=[convert({"metadata": {"name": "gpu"}, "spec": {}}, DeviceClass)],
    )
    for count in (1, 2, 4):
        same(stock, [fleets.claim("c", exactly("gpu", count=count))])


def long_selector(number):
    return " && ".join([f"device.driver != 'other{number}'"] * 250)[:9000].rpartition(" && ")[0]


def a_hundred_long_selectors():
    """A claim as an API server takes it: 900 KB of expressions, each of some hundredths of a second to compile."""
    requests = []
    for number in range(4):
        selectors = [{"cel": {"expression": long_selector(f"{number}-{at}")}} for at in range(25)]
        exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "selectors": selectors}
        requests.append({"name": f"r{number}", "exactly": exactly})
    meta = {"name": "long", "namespace": "default", "uid": "long"}
    return convert({"metadata": meta, "spec": {"devices": {"requests": requests}}}, ResourceClaim)


@pytest.mark.parametrize("ask", [fleet, lambda stock, claims, options: allocate(stock, "n0", claims, options=options)])
def test_reading_selectors_is_charged_before_any_device_is_examined(ask, monkeypatch):
    compiled = []
    real = selector._compile
    monkeypatch.setattr(attributes, "_READ", Cache(8 << 20))  # nothing is remembered
    monkeypatch.setattr(selector, "_compile", lambda *key: compiled.append(key[0]) or real(*key))
    named = {"metadata": {"name": "gpu"}, "spec": {}}
    stock = Stock.of(nodes=[convert({"metadata": {"name": "n0"}}, Node)], slices=[slice_("a", "x")], classes=[convert(named, DeviceClass)])  # fmt: skip
    claims = [a_hundred_long_selectors()]
    found = ask(stock, claims, options=Options(budget=Budget(200_000)))
    verdict = found.verdict if isinstance(found, Answer) else found["n0"].verdict
    assert verdict is Verdict.UNDECIDED
    assert 1 <= len(compiled) <= 4
    first = list(compiled)
    ask(stock, claims, options=Options(budget=Budget(200_000)))
    assert not set(first) & set(compiled[len(first) :]), "what was read once was paid for a second time"
