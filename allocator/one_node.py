"""One question on one node, from objects to an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from allocator.answer import Answer, Fatal, Undecided, Verdict
from allocator.problem import Candidate, Compiler, Fault, Judge, Leaf, question_of
from allocator.reasons.losses import losses
from allocator.result import granted, share_id
from allocator.search import Budget, Cuts, Walk
from dra.errors import NodeSelectorError
from dra.objects import ResourceClaim
from dra.policy import Rules
from dra.stock import PoolStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.problem import Question
    from dra.objects import Node
    from dra.stock import Pool, PoolId, PoolUse, Stock

STEPS = 120_000  # less than a second of search, proofs included


class Options(msgspec.Struct, frozen=True):
    """How to search; none of it changes an answer, apart from giving up earlier or later."""

    steps: int = STEPS
    cancelled: Callable[[], bool] | None = None
    cuts: Cuts = Cuts()
    new_share_id: Callable[[ResourceClaim, str, Candidate], str] = share_id
    # Another order in which devices are tried, for strategies: any order is searched exactly. None is the in-tree one.
    arrange: Callable[[list[Candidate]], list[Candidate]] | None = None


DEFAULTS = Options()


class Found(msgspec.Struct, frozen=True):
    """A verdict, and the choices that lead to it if it is feasible."""

    verdict: Verdict
    chosen: tuple[tuple[Leaf, Candidate], ...] = ()
    at: tuple[int, ...] = ()  # the positions of the chosen devices among the node's
    selected: tuple[Leaf, ...] = ()  # of every request, the alternative that is served
    error: str | None = None
    node_only: bool = False
    steps: int = 0


def find(
    compiler: Compiler, node: Node, pools: Sequence[Pool], use: Callable[[PoolId], PoolUse], options: Options
) -> Found:
    """Search one node."""
    budget = Budget(options.steps, options.cancelled)
    judge = Judge(compiler.question, node)
    try:
        problem = compiler.compile(node, pools, use, options.arrange, narrow=options.cuts.values)

        def fault(leaf: Leaf, place: int) -> Fatal:
            return _fault(judge, leaf, problem.places[place])

        solution = Walk(problem, options.cuts, budget, fault).solve()
    except Fatal as error:
        return Found(Verdict.ERROR, error=str(error), node_only=error.node_only, steps=budget.spent)
    except NodeSelectorError as error:
        return Found(Verdict.ERROR, error=str(error), steps=budget.spent)
    except Undecided as reason:
        return Found(Verdict.UNDECIDED, error=str(reason), steps=budget.spent)
    if solution is not None:
        question = problem.question
        return Found(
            Verdict.FEASIBLE,
            tuple((question.leaves[leaf], problem.places[place]) for leaf, place in solution.chosen),
            tuple(place for _, place in solution.chosen),
            tuple(one.leaves[at] for one, at in zip(question.requests, solution.alternatives, strict=True)),
            steps=budget.spent,
        )
    invalid = next((pool for pool in pools if pool.status is PoolStatus.INVALID), None)
    if invalid is not None:
        why = f"pool {'/'.join(invalid.id)} is invalid: {invalid.reason}"
        return Found(Verdict.ERROR, error=why, node_only=True, steps=budget.spent)
    return Found(Verdict.INFEASIBLE, steps=budget.spent)


def decide(stock: Stock, node: str, claims: Sequence[ResourceClaim], options: Options) -> Answer:
    """Answer for claims on one node of a stock, without giving reasons."""
    if node not in stock.nodes:
        return Answer(Verdict.ERROR, error=f"Node/{node} does not exist")
    try:
        question, pools = question_of(claims, stock.classes), stock.pools(node)
    except (Fatal, NodeSelectorError) as error:
        return Answer(Verdict.ERROR, error=str(error))
    compiler = Compiler(question, Rules(stock.compatibilities.values()))
    target = stock.nodes[node]
    return answer(compiler, target, find(compiler, target, pools, stock.use, options), options)


def explained(refused: Answer, stock: Stock, node: str, claims: Sequence[ResourceClaim], options: Options) -> Answer:
    """Add to a refusal where its devices went."""
    found = losses(stock, node, claims, serve=lambda now, some: decide(now, node, some, options))
    return msgspec.structs.replace(refused, reasons=found)


def answer(compiler: Compiler, node: Node, found: Found, options: Options) -> Answer:
    """Compose the answer of a search."""
    return composed(compiler.question, node, found, options)


def composed(question: Question, node: Node, found: Found, options: Options) -> Answer:
    """Compose an answer from what was found for a question."""
    if found.verdict is not Verdict.FEASIBLE:
        return Answer(found.verdict, error=found.error, node_only=found.node_only, steps=found.steps)
    try:
        allocations = granted(question, found.chosen, found.selected, node.metadata.name, options.new_share_id)
    except Fatal as error:
        return Answer(Verdict.ERROR, error=str(error), steps=found.steps)
    return Answer(Verdict.FEASIBLE, allocations, steps=found.steps)


def _fault(judge: Judge, leaf: Leaf, place: Candidate) -> Fatal:
    """Say what is wrong with a device that the in-tree allocator would stop at."""
    found = judge.ask(leaf, place)
    if isinstance(found, Fault):
        return Fatal(found.where, found.what)
    failure = getattr(found, "failure", None)
    if failure is not None:
        return Fatal(failure.where, failure.what)
    return Fatal(leaf.where, f"asks for all devices, but a constraint does not let it have {place}")
