"""One question about all nodes of a fleet gets the answer that each node alone would get, at first and after every change."""

import random

import pytest

from allocator import FleetMemo, SearchOptions, SearchVerdict, allocate, fleet
from allocator.problem import NODE_FEATURE, attributes
from dra.objects.claim import DeviceClass
from dra.objects.node import Node
from dra.objects.own_kinds import DeviceCompatibility
from dra.server import OLDEST
from dra.stock.stock import Stock
from dra.wire import convert
from tests.allocator import fleets
from tests.allocator.generate import FAMILIES
from tests.allocator.mixed_fleets import assemble_fleet
from tests.allocator.servers import any_server
from tests.dra.samples import slice_
from tests.limits import draws
from tests.objects import exactly

OPTIONAL_OPERATIONS = (NODE_FEATURE,)  # the features of a node that can use slices with skipNodeOperations


def assert_fleet_answers_like_each_node(stock, claims):
    """Assert that the question about the fleet gets the same answers as a question about each node."""
    fleet_answers = fleet(stock, claims, options=SearchOptions(steps=20_000))
    for node in stock.nodes:
        node_answer = allocate(stock, node, claims, options=SearchOptions(steps=20_000))
        fleet_answer = fleet_answers[node]
        assert (fleet_answer.verdict, fleet_answer.allocations, fleet_answer.error, fleet_answer.node_only) == (
            node_answer.verdict,
            node_answer.allocations,
            node_answer.error,
            node_answer.node_only,
        ), f"the answers for node {node} differ"
        assert fleet_answers.verdict(node) == fleet_answer.verdict


@pytest.fixture(params=["by value", "by answer"])
def attribute_comparison(request, monkeypatch):
    """Let the allocator compare nodes by the values of attributes, or by what selectors say about them, as on large fleets."""
    if request.param == "by answer":
        monkeypatch.setattr(attributes, "_SAMPLE", 2)


@pytest.mark.usefixtures("attribute_comparison")
def test_the_fleet_answer_equals_the_answers_of_its_nodes():
    for family in FAMILIES:
        for seed in range(draws(8)):
            stock, claims = assemble_fleet(family, 40_000 + seed, random.Random(seed))
            assert_fleet_answers_like_each_node(stock, claims)


@pytest.mark.usefixtures("attribute_comparison")
def test_on_any_server_the_fleet_answer_equals_its_nodes_answers():
    for family in FAMILIES:
        for seed in random.Random(family).sample(range(4), draws(4)):
            rng = random.Random(seed)
            server = any_server(OLDEST + seed, rng)
            stock, claims = assemble_fleet(family, 40_000 + seed, rng, server)
            assert_fleet_answers_like_each_node(stock, claims)


@pytest.mark.usefixtures("attribute_comparison")
def test_the_fleet_answer_follows_changes_of_objects():
    for family in ("general", "shares", "parts", "places"):
        for seed in range(draws(4)):
            rng = random.Random(seed)
            server = any_server(OLDEST + seed, rng)
            stock, claims = assemble_fleet(family, 50_000 + seed, rng, server)
            other_stock, _ = assemble_fleet(family, 60_000 + seed, rng)
            assert_fleet_answers_like_each_node(stock, claims)
            for _ in range(6):
                kind = rng.randrange(4)
                if kind == 0 and stock.claims:
                    stock = stock.without("ResourceClaim", rng.choice(list(stock.claims)))
                elif kind == 1 and other_stock.claims:
                    stock = stock.with_object(rng.choice(list(other_stock.claims.values())))
                elif kind == 2:
                    stock = stock.with_object(rng.choice(list(other_stock.slices.values())))
                elif len(stock.nodes) > 2:
                    stock = stock.without("Node", rng.choice(list(stock.nodes)))
                assert_fleet_answers_like_each_node(stock, claims)


def test_equal_nodes_share_one_answer():
    stock = fleets.fleet({f"n{n}": [fleets.gpu("a", memory="80Gi"), fleets.gpu("b")] for n in range(50)})
    answers = fleet(stock, [fleets.claim("c", exactly("gpu", count=2))])
    assert len(answers.feasible) == 50
    assert len(answers.equal_nodes()) == 1
    assert answers["n7"].allocations[0].allocation.devices.results[0].pool == "n7"


def test_a_node_that_publishes_in_all_pools_stays_cheap():
    """A node publishes a slice in a pool with one write. If this cost the allocator a search per node and pod, no time would be left."""
    names = [f"n{n}" for n in range(50)]
    stock = fleets.fleet({name: [fleets.gpu("a", memory="80Gi"), fleets.gpu("b")] for name in names})
    claims = [fleets.claim("c", exactly("gpu", count=2))]
    for generation in (1, 2**62):
        foreign_slices = [
            slice_(f"foreign-{pool_name}", "a", pool=pool_name, driver=fleets.DRIVER, generation=generation)
            for pool_name in names[1:]
        ]
        stock_with_foreign_slices = stock.with_all(foreign_slices)
        answers = fleet(stock_with_foreign_slices, claims)
        assert len(answers.feasible) == 50
        assert len(answers.equal_nodes()) == 2
        assert_fleet_answers_like_each_node(stock_with_foreign_slices, claims)


UUID = f'device.attributes["{fleets.DRIVER}"].uuid'


def gpus(node, count=2, **fields):
    """Return the devices of a node, each with a unique value of the attribute `uuid`."""
    devices = [fleets.gpu(f"gpu-{i}", **fields) for i in range(count)]
    for device in devices:
        device["attributes"]["uuid"] = {"string": f"{node}-{device['name']}"}
    return devices


@pytest.mark.parametrize(
    ("expression", "group_count", "feasible_count"),
    [
        (f'{UUID} != "n7-gpu-0"', 2, 199),
        (f'{UUID} == "n7-gpu-0"', 2, 0),
        (f'{UUID} in ["n7-gpu-0", "n7-gpu-1"]', 2, 1),
        (f'{UUID}.startsWith("n1")', 2, 111),
        (f'device.attributes["{fleets.DRIVER}"].profile == "gpu" && {UUID} != "n7-gpu-0"', 2, 199),
        (f"{UUID}.nothing", 200, 0),  # the selector fails on each device, with a message that names the device
    ],
)
def test_nodes_are_grouped_by_the_results_of_a_selector(expression, group_count, feasible_count):
    stock = fleets.fleet({f"n{n}": gpus(f"n{n}") for n in range(200)})
    answers = fleet(stock, [fleets.claim("c", exactly("gpu", selector=expression, count=2))])
    assert (len(answers.equal_nodes()), len(answers.feasible)) == (group_count, feasible_count)


@pytest.mark.parametrize("constraint", ["matchAttribute", "distinctAttribute"])
def test_a_constraint_compares_values_only_within_each_node(constraint):
    stock = fleets.fleet({f"n{n}": gpus(f"n{n}") for n in range(200)})
    claim = fleets.claim("c", exactly("gpu", count=2), constraints=[{constraint: f"{fleets.DRIVER}/uuid"}])
    answers = fleet(stock, [claim])
    assert len(answers.equal_nodes()) == 1
    assert len(answers.feasible) == (200 if constraint == "distinctAttribute" else 0)


def test_only_changed_nodes_are_searched_again():
    stock = fleets.fleet({f"n{n}": [fleets.gpu("a")] for n in range(20)})
    claims, memo = [fleets.claim("c", exactly("gpu"))], FleetMemo()
    first_answers = fleet(stock, claims, memo=memo)
    later_answers = fleet(stock.with_object(fleets.taken("n3", "a")), claims, memo=memo)
    assert set(first_answers.feasible) - set(later_answers.feasible) == {"n3"}
    assert first_answers["n3"].feasible
    assert len(first_answers.equal_nodes()) + len(later_answers.equal_nodes()) == 3
    assert [later_answers._results[node] is first_answers._results[node] for node in ("n2", "n3")] == [True, False]


def test_a_refusal_names_the_holder_in_its_own_stock():
    """The answer about the first stock is read after the one about the second stock, in which another claim holds the device."""
    memo, claims = FleetMemo(), [fleets.claim("asked", exactly("gpu"))]
    first_stock = fleets.fleet({"n0": gpus("n0", 1)}, fleets.taken("n0", "gpu-0", name="first"))
    second_stock = first_stock.without("ResourceClaim", "default/first")
    second_stock = second_stock.with_object(fleets.taken("n0", "gpu-0", name="second"))
    first, second = [fleet(stock, claims, memo=memo) for stock in (first_stock, second_stock)]
    assert "held by claim default/second" in second.refusal("n0")
    assert "held by claim default/first" in first.refusal("n0")


def test_a_feasibility_check_on_idle_nodes_ignores_current_holders():
    stock = fleets.fleet({"n0": [fleets.gpu("a")]}, fleets.taken("n0", "a"))
    claim_of_one, claim_of_two = [fleets.claim("c", exactly("gpu", count=count)) for count in (1, 2)]
    assert not fleet(stock, [claim_of_one]).feasible
    assert fleet(stock, [claim_of_one], idle=True).feasible
    refusal = fleet(stock, [claim_of_two], idle=True)["n0"]
    assert refusal.verdict is SearchVerdict.INFEASIBLE
    assert refusal.reasons


def test_claims_that_differ_only_in_name_share_a_search():
    stock = fleets.fleet({"n0": [fleets.shared("a", "80Gi")], "n1": [fleets.gpu("a")]})
    memo = FleetMemo()
    answers = [fleet(stock, [fleets.claim(name, exactly("gpu"))], memo=memo) for name in ("one", "other")]
    assert len(memo) == 1
    allocations = [answer["n0"].allocations[0] for answer in answers]
    assert [allocation.claim for allocation in allocations] == ["default/one", "default/other"]
    assert len({allocation.allocation.devices.results[0].share_id for allocation in allocations}) == 2


def test_nodes_are_unequal_if_a_rule_distinguishes_their_devices():
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
    assert_fleet_answers_like_each_node(stock, claims)


@pytest.mark.parametrize("features", [((), OPTIONAL_OPERATIONS), (OPTIONAL_OPERATIONS, ())])
def test_nodes_of_one_pool_with_different_features_are_unequal(features):
    """Devices with skipNodeOperations need a feature of the node, and only one of the two nodes of the pool has this feature."""
    nodes = [
        convert({"metadata": {"name": f"n{i}"}, "status": {"declaredFeatures": list(declared)}}, Node)
        for i, declared in enumerate(features)
    ]
    slices = [slice_("a", fleets.gpu("x"), driver=fleets.DRIVER, allNodes=True, skipNodeOperations=["*"])]
    stock = Stock.of(slices=slices, nodes=nodes, classes=fleets.fleet({}).classes.values())
    claims = [fleets.claim("c", exactly("gpu"))]
    assert fleet(stock, claims).feasible == [f"n{features.index(OPTIONAL_OPERATIONS)}"]
    assert_fleet_answers_like_each_node(stock, claims)


def test_a_fleet_without_nodes_has_no_answers():
    stock = Stock.of(slices=[slice_("a", "x")])
    assert len(fleet(stock, [])) == 0


@pytest.mark.parametrize("seed", range(draws(12)))
def test_the_fleet_answer_respects_node_selectors_of_slices_and_devices(seed):
    rng = random.Random(seed)

    def draw_requirement():
        operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", *["Wrong"] * (rng.random() < 0.05)])
        values = {"In": ["1", "2"], "NotIn": ["1"], "Gt": ["1"]}.get(operator, [])
        return {"key": rng.choice("ab"), "operator": operator, "values": values}

    def draw_node_selection():
        name = rng.choice(["n0", "n1", "n2"])
        field = {"key": "metadata.name", "operator": rng.choice(["In", "NotIn"]), "values": [name]}
        term = rng.choice(
            [
                {"matchExpressions": [draw_requirement()]},
                {"matchFields": [field]},
                {"matchFields": [field], "matchExpressions": [draw_requirement()]},
                {},
            ]
        )
        return rng.choice(
            [{"nodeSelector": {"nodeSelectorTerms": [term]}}] * 4 + [{"nodeName": name}, {"allNodes": True}]
        )

    slices = []
    for number in range(3):
        if rng.random() < 0.5:
            devices = [{"name": f"d{n}", **draw_node_selection()} for n in range(2)]
            slices.append(slice_(f"s{number}", *devices, pool=f"p{number}", perDeviceNodeSelection=True))
        else:
            selection = draw_node_selection()
            slices.append(
                slice_(f"s{number}", "d0", "d1", pool=f"p{number}", node=selection.pop("nodeName", "n0"), **selection)
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
        assert_fleet_answers_like_each_node(stock, [fleets.claim("c", exactly("gpu", count=count))])
