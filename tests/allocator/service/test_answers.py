"""An answer that leaves the largest kind of nodes unnamed means what the one that names them all means, and only a scheduler that knows the same nodes gets it.

`bridge/plugin/testdata/answers.json` holds both forms of the same answers, as the allocator gives them; the plugin's tests read it, and make one of both:

    python -m tests.allocator.service.test_answers
"""

import asyncio
import json
import random
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest

from allocator.decisions import Decider, Outlook, Outlooks, known_nodes, other_nodes
from allocator.decisions.compact_answer import LONGEST_REASONS
from allocator.decisions.decider import Hindrance
from allocator.service.schedulers.plugin import Plugin
from allocator.service.schedulers.plugin_messages import PodQuestion
from allocator.strategies import read_placement
from dra.objects import Node, Pod, ResourceSlice
from dra.wire import convert, decode, encode
from tests.allocator.decisions.test_decider import granted, stock_of
from tests.allocator.service import sidecar

FILE = Path(__file__).parents[3] / "bridge/plugin/testdata/answers.json"
CASES = 40
STRATEGIES = ("first-fit", "CompactFirst", "LowLoadFirst")
POD = sidecar.pod("p", "wanted")


def fleet_of(seed):
    """A few nodes with devices and without, some of them held, and some crowded."""
    chance = random.Random(seed)
    stock = stock_of(sidecar.claim("wanted", chance.choice((1, 1, 2, 3))), nodes=0)
    names = [f"n{at}" for at in range(chance.randint(1, 12))]
    for name in names:
        stock = stock.with_object(convert(sidecar.node(name), Node))
        if has := chance.choice((0, 1, 2, 2, 2)):
            stock = stock.with_object(convert(sidecar.gpus(name, has), ResourceSlice))
            if chance.random() < chance.choice((0, 0.5)):
                stock = held(stock, name, chance.randint(1, has))
    crowded = {name: "it has pods enough" for name in names if chance.random() < chance.choice((0, 0, 0.6))}
    return stock, crowded, read_placement(chance.choice(STRATEGIES))


def held(stock, node, count):
    name = f"on-{node}"
    wanted = stock_of(sidecar.claim(name, count), nodes=0).claims[f"default/{name}"]
    return stock.with_object(granted(name, count, stock.with_object(wanted), node, "x"))


def plugin_of(find, stock):
    """A plugin's protocol over an allocator that finds something."""

    async def outlook(_):
        return "t", find()

    return Plugin(
        allocator=SimpleNamespace(outlook=outlook),
        evictions=None,
        supposition=None,
        requeue_events=None,
        knowledge=SimpleNamespace(stock=stock),
        lead=None,
        identity="a",
        expires=1,
    )


def ask(found, nodes, known=None):
    """Ask as a scheduler does that knows some nodes, or does not say."""
    plugin = plugin_of(lambda: found, SimpleNamespace(nodes=nodes))
    question = {"pod": POD} if known is None else {"pod": POD, "nodes": known_nodes(known)}
    asked = decode(encode(question), PodQuestion)
    return json.loads(asyncio.run(plugin.prefilter(asked)).body)


def meaning(said, nodes):
    """What an answer says of each node: how much it is liked, or why it is not used."""
    rest = said.get("rest", {"fit": False})
    otherwise = rest.get("score", 0) if rest["fit"] else rest.get("message", "")
    reasons = {name: one["message"] for one in said["reasons"] for name in one["nodes"]}
    scores = {one["name"]: one["score"] for one in said["nodes"]}
    return {name: scores.get(name, reasons.get(name, otherwise)) for name in nodes}


def case(seed):
    stock, crowded, placement = fleet_of(seed)
    found = Decider().outlook(convert(POD, Pod), stock, placement, crowded)
    named, short = ask(found, stock.nodes), ask(found, stock.nodes, stock.nodes)
    return {"nodes": [*stock.nodes], "named": named, "short": short}


@cache
def cases():
    return tuple(case(seed) for seed in range(CASES))


def text():
    return json.dumps(cases(), separators=(",", ":")).replace('{"nodes":["n0"', '\n{"nodes":["n0"') + "\n"


def test_the_file_that_the_plugin_reads_is_what_the_allocator_says():
    assert FILE.read_text(encoding="utf-8") == text(), "run python -m tests.allocator.service.test_answers"


def test_both_forms_mean_the_same_and_the_short_one_leaves_out_the_largest_kind():
    kinds, verdicts = set(), set()
    for case in cases():
        nodes, named, short = case["nodes"], case["named"], case["short"]
        meant = meaning(named, nodes)
        assert meaning(short, nodes) == meant
        assert "rest" not in named
        told = len(short["nodes"]) + sum(len(reason["nodes"]) for reason in short["reasons"])
        assert told == len(nodes) - max(sum(1 for other in meant.values() if other == kind) for kind in meant.values())
        assert [reason["count"] for reason in short["reasons"]] == [reason["count"] for reason in named["reasons"]]
        kinds.add((short["rest"]["fit"], bool(short["nodes"]), bool(told)))
        verdicts.add(named["verdict"])
    assert kinds == {(True, False, False), (True, False, True), (True, True, True), (False, False, False), (False, False, True), (False, True, True)}  # fmt: skip
    assert verdicts == {"fits", "full", "never"}


@pytest.mark.parametrize("known", [None, (), ("n0", "n1"), ("n0", "n1", "n2", "n3"), ("n0", "n1", "n3")])
def test_a_caller_with_unstated_or_different_nodes_gets_every_node_name(known):
    nodes = dict.fromkeys(("n0", "n1", "n2"))
    found = Outlooks(Outlook.FITS, dict.fromkeys(nodes, 0))
    assert ask(found, nodes, known) == ask(found, nodes) == {"verdict": "fits", "token": "t", "message": "", "reasons": [], "nodes": [{"name": name, "score": 0} for name in nodes]}  # fmt: skip
    assert ask(found, nodes, ("n2", "n0", "n1"))["rest"] == {"fit": True}


def test_nodes_that_come_and_go_are_counted_anew():
    assert known_nodes(["n1", "n2"]).sum == 5870541378  # as the plugin's tests have it
    assert known_nodes(["a", "b"]) == known_nodes(["b", "a"]) != known_nodes(["a", "c"]) != known_nodes(["a"])
    stock = SimpleNamespace(nodes={"a": None})
    plugin = plugin_of(lambda: Outlooks(Outlook.FITS, dict.fromkeys(stock.nodes, 0)), stock)
    for names in ("a", "ab", "b"):
        stock.nodes = dict.fromkeys(names)
        question = decode(encode({"pod": POD, "nodes": known_nodes(names)}), PodQuestion)
        assert json.loads(asyncio.run(plugin.prefilter(question)).body)["rest"] == {"fit": True}


def test_a_node_without_an_answer_is_not_among_the_rest():
    assert other_nodes(Outlooks(Outlook.FITS, {"n0": 0}), ["n0", "n1"]) is None
    assert other_nodes(Outlooks(Outlook.WAITING, message="no claim"), ["n0"]) is None
    assert other_nodes(Outlooks(Outlook.SKIP), []) is None


def test_with_more_reasons_than_are_told_no_refused_node_fits_by_silence():
    names = [f"n{at}" for at in range(3 * LONGEST_REASONS)]
    fit, refused = names[: LONGEST_REASONS + 9], names[LONGEST_REASONS + 9 :]
    hindrances = tuple(Hindrance(f"full: {name}", (name,)) for name in refused)
    nodes = dict.fromkeys(names)
    found = Outlooks(Outlook.FITS, dict.fromkeys(fit, 0), "", hindrances)
    said = ask(found, nodes, names)
    assert said["rest"] == {"fit": True}
    assert {name for name, what in meaning(said, names).items() if what == 0} == set(fit)


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(text(), encoding="utf-8")
