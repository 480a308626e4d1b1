"""Questions that are decided in pieces get the answers that they get in one go, whatever is asked in between."""

import asyncio
import inspect
import random
from collections import Counter
from functools import partial

from msgspec.structs import replace

from allocator.decisions import BY_DEFAULT, Decider, Outlook
from allocator.service import piecewise
from allocator.service.namespace_turns import NamespaceTurns
from allocator.service.piecewise import PiecewiseDecider
from dra import budget
from dra.objects import Container, DeviceClass, Node, Pod
from dra.wire import convert
from tests.allocator.generate import FAMILIES
from tests.allocator.service import sidecar
from tests.allocator.test_all_nodes import assembled
from tests.draws import draws


def pod_of(claims):
    """A pod that uses these claims, all in one namespace as their allocations would be."""
    return convert(
        {
            "metadata": {"name": "p", "namespace": claims[0].metadata.namespace, "uid": "p"},
            "spec": {
                "resourceClaims": [
                    {"name": f"c{at}", "resourceClaimName": one.metadata.name} for at, one in enumerate(claims)
                ]
            },
        },
        Pod,
    )


def asked(family, seed):
    """Make a stock with unallocated claims, and the pod that uses them."""
    stock, claims = assembled(family, 70_000 + seed, random.Random(seed))
    for one in claims:
        stock = stock.with_(one)
    return pod_of(claims), stock


def test_a_decision_in_pieces_equals_the_decision_in_one_go():
    """Every look at the clock ends a turn here: all questions are under way at once, on stocks that share what is remembered."""
    differing, turns = [], 0
    for family in FAMILIES:
        for first in range(0, draws(16), 4):
            questions = [asked(family, first + at // 2) for at in range(4)]
            at_once = [Decider().outlook(pod, stock) for pod, stock in questions]
            in_pieces, taken = asyncio.run(decided_side_by_side(questions))
            turns += taken
            for number, (one, other) in enumerate(zip(in_pieces, at_once, strict=True)):
                same = (one.outlook, dict(one.nodes)) == (other.outlook, dict(other.nodes))
                if not same and other.outlook != Outlook.UNDECIDED:
                    differing.append((family, first, number, other.outlook, one.outlook))
    assert differing == []
    assert turns > 1_000


async def decided_side_by_side(questions):
    """Return the answers and the number of turns of the event loop; each turn also answers one other question."""
    loop = asyncio.get_running_loop()
    decider = PiecewiseDecider(NamespaceTurns(loop.time), turn=0.0)
    running = [
        loop.create_task(decider.answer("default", partial(decider.outlook, pod, stock))) for pod, stock in questions
    ]
    turns = 0
    while not all(one.done() for one in running):
        await asyncio.sleep(0)
        turns += 1
        decider.may_fit(*questions[turns % len(questions)])
    return [one.result() for one in running], turns


NAME = "example.com/by-name"
QUICK = ("general", "tight", "admin", "shares", "places", "clash")  # no deep searches: many questions in little time


def by_name(pod, stock):
    """Have a pod also ask by a name, which a class of any device serves, and device plugins on half of the nodes."""
    selector = {"cel": {"expression": "device.driver != ''"}}
    served = sidecar.device_class("served", extendedResourceName=NAME, selectors=[selector])
    plugins = [sidecar.node(name, allocatable={NAME: "1"}) for name in list(stock.nodes)[::2]]
    stock = stock.with_all([convert(served, DeviceClass), *(convert(one, Node) for one in plugins)])
    asks = convert([{"name": "c", "resources": {"limits": {NAME: "1"}}}], tuple[Container, ...])
    return replace(pod, spec=replace(pod.spec, containers=asks)), stock


def ask(decider, kind, pod, stock):
    match kind:
        case "outlook":
            return decider.outlook(pod, stock)
        case "by_plugin":
            return decider.by_plugin(pod, stock, BY_DEFAULT, {})
        case "crowded":
            return decider.outlook(pod, stock, BY_DEFAULT, {next(iter(stock.nodes), "none"): "crowded"})
        case "serve":
            return decider.serve(pod, next(iter(stock.nodes), "none"), stock)


def ask_all(decider, plan):
    """Ask several questions in one call. Which are left out depends on the answers so far, as it does where a pod is judged."""
    answers = []
    for kind, pod, stock in plan:
        if not answers or kind == "by_plugin" or getattr(answers[-1], "nodes", ()) or len(answers) % 2:
            answers.append(ask(decider, kind, pod, stock))
    return answers


def same(answer, expected):
    if getattr(expected, "outlook", None) is Outlook.UNDECIDED:
        return True  # the bound on all steps was reached, and a second try may get further
    return answer == expected


class Jumps:
    """A clock for which any look may be the last of a turn."""

    def __init__(self, rng):
        self._rng = rng
        self._now = 0.0

    def __call__(self):
        self._now += self._rng.choice((0.0, 0.0, 0.0, 1.0))
        return self._now


def test_no_question_gets_the_answer_of_another_wherever_their_turns_end(monkeypatch):
    """Calls that ask about several pods, stocks and kinds, side by side: each answer is that of a decider without turns."""
    interrupted = Counter()

    class Counting(piecewise._Work):
        def __init__(self, question, turn):
            interrupted[question.func.__name__] += 1
            super().__init__(question, turn)

    monkeypatch.setattr(piecewise, "_Work", Counting)
    monkeypatch.setattr(piecewise, "TRIES", 64)
    monkeypatch.setattr(budget, "_CHECK_INTERVAL", 8)
    for seed in range(draws(80)):
        rng = random.Random(seed)
        monkeypatch.setattr(piecewise, "thread_time", Jumps(rng))
        cases = [asked(rng.choice(QUICK), rng.randrange(1000)) for _ in range(4)]
        cases += [by_name(pod, stock) for pod, stock in cases]
        cases += [(pod, stock.idle().with_all(stock.claims.values())) for pod, stock in cases]
        plans = []
        for _ in range(8):
            pod, stock = rng.choice(cases)
            about = [(pod, stock), (pod, rng.choice(cases)[1]), rng.choice(cases)]
            plans.append(
                [(rng.choice(("outlook", "by_plugin", "crowded", "serve")), *rng.choice(about)) for _ in range(5)]
            )
        answers = asyncio.run(answered_side_by_side(plans))
        for plan, found in zip(plans, answers, strict=True):
            expected = ask_all(Decider(), plan)
            assert len(found) == len(expected), seed
            assert all(map(same, found, expected)), (seed, [kind for kind, *_ in plan])
    assert min(interrupted[kind] for kind in ("outlook", "by_plugin", "serve")) > 10, interrupted


async def answered_side_by_side(plans):
    decider = PiecewiseDecider(NamespaceTurns(asyncio.get_running_loop().time), turn=0.5)
    return await asyncio.gather(*(decider.answer("default", partial(ask_all, decider, plan)) for plan in plans))


def test_every_question_of_a_decider_can_take_several_turns():
    public = {name for name, _ in inspect.getmembers(Decider, inspect.isfunction) if not name.startswith("_")}
    assert public <= vars(PiecewiseDecider).keys()
