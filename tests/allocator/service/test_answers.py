"""Short answers of prefilter: they omit the largest group of nodes with an equal outcome, and mean the same as long answers.

A scheduler gets a short answer only if it states exactly the nodes that the allocator knows. For the tests of the Go plugin,
`bridge/plugin/testdata/answers.json` has pairs of a long and a short answer. This command writes the file:

    python -m tests.allocator.service.test_answers
"""

import asyncio
import json
import random
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from allocator.decisions import Decider, FleetOutlook, Outlook, known_nodes, other_nodes
from allocator.decisions.compact_answer import LONGEST_REASONS
from allocator.service.schedulers.plugin import Plugin
from allocator.service.schedulers.plugin_messages import PodQuestion
from allocator.strategies import read_placement
from dra.objects import Node, Pod, ResourceSlice
from dra.reason import Reason
from dra.wire import convert, decode, encode
from tests.allocator.decisions.test_decider import allocated_claim, stock_of
from tests.allocator.service import sidecar

ANSWERS_FILE = Path(__file__).parents[3] / "bridge/plugin/testdata/answers.json"
CASE_COUNT = 40
STRATEGIES = ("first-fit", "CompactFirst", "LowLoadFirst")
POD = sidecar.pod("p", "wanted")


def random_fleet(seed):
    """Return a random stock (the objects of a fleet), a reason for each node that is crowded with pods, and a strategy."""
    rng = random.Random(seed)
    stock = stock_of(sidecar.claim("wanted", rng.choice((1, 1, 2, 3))), nodes=0)
    names = [f"n{i}" for i in range(rng.randint(1, 12))]
    for name in names:
        stock = stock.with_object(convert(sidecar.node(name), Node))
        if count := rng.choice((0, 1, 2, 2, 2)):
            stock = stock.with_object(convert(sidecar.gpus(name, count), ResourceSlice))
            if rng.random() < rng.choice((0, 0.5)):
                stock = with_held_devices(stock, name, rng.randint(1, count))
    crowded = {name: "it has pods enough" for name in names if rng.random() < rng.choice((0, 0, 0.6))}
    return stock, crowded, read_placement(rng.choice(STRATEGIES))


def with_held_devices(stock, node, count):
    """Return the stock with a claim that holds this number of the node's devices."""
    name = f"on-{node}"
    claim = stock_of(sidecar.claim(name, count), nodes=0).claims[f"default/{name}"]
    return stock.with_object(allocated_claim(name, count, stock.with_object(claim), node, "x"))


def plugin_of(find_outlook, stock):
    """Return the plugin's protocol over an allocator whose FleetOutlook is the result of `find_outlook`."""

    async def outlook(*_):
        return "t", find_outlook()

    return Plugin(
        allocator=SimpleNamespace(outlook=outlook),
        evictions=None,
        requeue_events=None,
        knowledge=SimpleNamespace(stock=stock),
        lead=None,
        identity="a",
        expires=1,
    )


def ask(fleet_outlook, nodes, scheduler_nodes=None):
    """Return the answer to a scheduler that states `scheduler_nodes`, or no nodes if these are None."""
    plugin = plugin_of(lambda: fleet_outlook, SimpleNamespace(nodes=nodes))
    question = {"pod": POD} if scheduler_nodes is None else {"pod": POD, "nodes": known_nodes(scheduler_nodes)}
    decoded = decode(encode(question), PodQuestion)
    return json.loads(asyncio.run(plugin.prefilter(decoded)).body)


def outcomes_of(answer, nodes):
    """Return for each node its score, or the reason why the node does not fit, according to a short or long answer."""
    rest = answer.get("rest", {"fit": False})
    otherwise = rest.get("score", 0) if rest["fit"] else rest.get("message", "")
    reasons = {name: reason["message"] for reason in answer["reasons"] for name in reason["nodes"]}
    scores = {node["name"]: node["score"] for node in answer["nodes"]}
    return {name: scores.get(name, reasons.get(name, otherwise)) for name in nodes}


def answer_case(seed):
    """Return the nodes of a random fleet, and the long (`named`) and the short answer about them."""
    stock, crowded, placement = random_fleet(seed)
    fleet_outlook = Decider().outlook(convert(POD, Pod), stock, placement, crowded)
    long, short = ask(fleet_outlook, stock.nodes), ask(fleet_outlook, stock.nodes, stock.nodes)
    return {"nodes": [*stock.nodes], "named": long, "short": short}


@cache
def answer_cases():
    return tuple(answer_case(seed) for seed in range(CASE_COUNT))


def answers_text():
    """Return the text of the file, with one line per case."""
    return json.dumps(answer_cases(), separators=(",", ":")).replace('{"nodes":["n0"', '\n{"nodes":["n0"') + "\n"


def test_the_answers_file_of_the_go_plugin_is_current():
    assert ANSWERS_FILE.read_text(encoding="utf-8") == answers_text(), (
        "run python -m tests.allocator.service.test_answers"
    )


def test_the_short_answer_omits_only_the_largest_group_of_nodes():
    # A form of a short answer: whether omitted nodes fit, whether fitting nodes are listed, and whether any nodes are listed.
    forms_of_short_answers, verdicts = set(), set()
    for pair in answer_cases():
        nodes, long, short = pair["nodes"], pair["named"], pair["short"]
        outcomes = outcomes_of(long, nodes)
        assert outcomes_of(short, nodes) == outcomes
        assert "rest" not in long
        listed = len(short["nodes"]) + sum(len(reason["nodes"]) for reason in short["reasons"])
        assert listed == len(nodes) - max(
            sum(1 for node_outcome in outcomes.values() if node_outcome == outcome) for outcome in outcomes.values()
        )
        assert [reason["count"] for reason in short["reasons"]] == [reason["count"] for reason in long["reasons"]]
        forms_of_short_answers.add((short["rest"]["fit"], bool(short["nodes"]), bool(listed)))
        verdicts.add(long["verdict"])
    assert forms_of_short_answers == {(True, False, False), (True, False, True), (True, True, True), (False, False, False), (False, False, True), (False, True, True)}  # fmt: skip
    assert verdicts == {"fits", "full", "never"}


@pytest.mark.parametrize("scheduler_nodes", [None, (), ("n0", "n1"), ("n0", "n1", "n2", "n3"), ("n0", "n1", "n3")])
def test_a_scheduler_with_other_or_no_nodes_gets_all_names(scheduler_nodes):
    nodes = dict.fromkeys(("n0", "n1", "n2"))
    fleet_outlook = FleetOutlook(Outlook.FITS, dict.fromkeys(nodes, 0))
    assert ask(fleet_outlook, nodes, scheduler_nodes) == ask(fleet_outlook, nodes) == {"verdict": "fits", "token": "t", "message": "", "reasons": [], "nodes": [{"name": name, "score": 0} for name in nodes]}  # fmt: skip
    assert ask(fleet_outlook, nodes, ("n2", "n0", "n1"))["rest"] == {"fit": True}


def test_the_checksum_changes_with_the_set_of_nodes():
    assert known_nodes(["n1", "n2"]).sum == 5870541378  # the tests of the Go plugin have the same number
    assert known_nodes(["a", "b"]) == known_nodes(["b", "a"]) != known_nodes(["a", "c"]) != known_nodes(["a"])
    stock = SimpleNamespace(nodes={"a": None})
    plugin = plugin_of(lambda: FleetOutlook(Outlook.FITS, dict.fromkeys(stock.nodes, 0)), stock)
    for names in ("a", "ab", "b"):
        stock.nodes = dict.fromkeys(names)
        question = decode(encode({"pod": POD, "nodes": known_nodes(names)}), PodQuestion)
        assert json.loads(asyncio.run(plugin.prefilter(question)).body)["rest"] == {"fit": True}


def test_a_waiting_skipped_or_incomplete_outlook_has_no_short_answer():
    assert other_nodes(FleetOutlook(Outlook.FITS, {"n0": 0}), ["n0", "n1"]) is None
    assert other_nodes(FleetOutlook(Outlook.WAITING, reason=Reason(text="no claim")), ["n0"]) is None
    assert other_nodes(FleetOutlook(Outlook.SKIP), []) is None


def test_refused_nodes_beyond_the_listed_reasons_do_not_fit():
    names = [f"n{i}" for i in range(3 * LONGEST_REASONS)]
    fitting_nodes, refused_nodes = names[: LONGEST_REASONS + 9], names[LONGEST_REASONS + 9 :]
    reasons = tuple(Reason(text=f"full: {name}", nodes=(name,)) for name in refused_nodes)
    nodes = dict.fromkeys(names)
    fleet_outlook = FleetOutlook(Outlook.FITS, dict.fromkeys(fitting_nodes, 0), reasons=reasons)
    answer = ask(fleet_outlook, nodes, names)
    assert answer["rest"] == {"fit": True}
    assert {name for name, outcome in outcomes_of(answer, names).items() if outcome == 0} == set(fitting_nodes)


if __name__ == "__main__":
    ANSWERS_FILE.parent.mkdir(exist_ok=True)
    ANSWERS_FILE.write_text(answers_text(), encoding="utf-8")
