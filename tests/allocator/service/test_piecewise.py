"""Questions that are decided in pieces get the answers that they get in one go, whatever is asked in between."""

import asyncio
import random
from functools import partial

from allocator.decisions import Decider, Outlook
from allocator.service.namespace_turns import NamespaceTurns
from allocator.service.piecewise import PiecewiseDecider
from allocator.service.requeue_events import RequeueEvents
from dra.objects import Pod
from dra.wire import convert
from tests.allocator.generate import FAMILIES
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
    decider = PiecewiseDecider(NamespaceTurns(RequeueEvents(), loop.time), turn=0.0)
    running = [
        loop.create_task(decider.answer("default", partial(decider.outlook, pod, stock))) for pod, stock in questions
    ]
    turns = 0
    while not all(one.done() for one in running):
        await asyncio.sleep(0)
        turns += 1
        decider.may_fit(*questions[turns % len(questions)])
    return [one.result() for one in running], turns
