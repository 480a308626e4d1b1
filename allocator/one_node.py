"""Allocation on one node, from API objects to an answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from allocator.answer import AllocateError, Cause, NodeAnswer, Rejection, SearchVerdict, Stage, fail
from allocator.problem import CompileCache, DeviceCandidate, DeviceJudge, Fault, Leaf, Offer, compile, question_of  # noqa: A004  the verb
from allocator.reasons import losses
from allocator.result import grant
from allocator.search import MICROSECONDS, Cuts, Walk
from dra import step_limits
from dra.budget import Budget
from dra.errors import NodeSelectorError, OutOfBudget
from dra.policy import Rules
from dra.stock import PoolStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allocator.problem import Question
    from dra.objects import Node, ResourceClaim
    from dra.stock import Pool, PoolId, PoolUse, Stock


class SearchOptions(msgspec.Struct, frozen=True):
    """How to search. Only `arrange` changes which devices are chosen; the other options make the search end earlier or later."""

    # The limit for one node, in steps of the search, compilation included.
    steps: int = step_limits.NODE_SEARCH
    # The limit for all questions of a caller together: once it is used up, every further question is undecided at once.
    budget: Budget | None = None
    cuts: Cuts = Cuts()
    # The order in which devices are tried, for strategies; the search is exact in any order. None is the in-tree order.
    arrange: Callable[[list[DeviceCandidate]], list[DeviceCandidate]] | None = None


DEFAULTS = SearchOptions()


class NodeResult(msgspec.Struct, frozen=True):
    """A verdict and, if it is feasible, the chosen devices."""

    verdict: SearchVerdict
    chosen: tuple[tuple[Leaf, DeviceCandidate], ...] = ()
    at: tuple[int, ...] = ()  # the positions of the chosen devices in the node's list of candidates
    selected: tuple[Leaf, ...] = ()  # for each request, the alternative for which the devices were chosen
    error: str | None = None
    node_only: bool = False
    steps: int = 0
    cause: Cause | None = None  # of the error


def options_within(milliseconds: int | None) -> SearchOptions:
    """Return the options for a budget in milliseconds per node (`--budget-ms`); None means the default.

    The budget is counted in steps of an assumed duration, so that a busy machine gives the same answer.
    """
    return SearchOptions() if milliseconds is None else SearchOptions(steps=milliseconds * 1000 // MICROSECONDS)


def budget_of(options: SearchOptions) -> Budget:
    """Return the budget for one node."""
    steps = MICROSECONDS * options.steps
    if options.budget is not None:
        return options.budget.part(steps)
    return Budget(steps)


def search_node(
    cache: CompileCache, node: Node, pools: Sequence[Pool], use: Callable[[PoolId], PoolUse], options: SearchOptions
) -> NodeResult:
    budget = budget_of(options)
    judge = DeviceJudge(cache.question, node, budget)
    walk: Walk | None = None
    try:
        problem = compile(cache, node, pools, use, budget=budget, arrange=options.arrange, narrow=options.cuts.values)

        def fault_at(leaf: Leaf, place: int) -> AllocateError:
            """Return the error with which the in-tree allocator stops at this device."""
            device = problem.places[place]
            judgement = judge.ask(leaf, device)
            if isinstance(judgement, Fault):
                return judgement.as_fatal()
            if isinstance(judgement, Offer) and judgement.failure is not None:
                return judgement.failure.as_fatal()
            return AllocateError(leaf.where, f"requests all devices, but a constraint excludes {device}")

        walk = Walk(problem, options.cuts, budget, fault_at)
        solution = walk.solve()
    except AllocateError as error:
        return NodeResult(
            SearchVerdict.ERROR,
            error=str(error),
            node_only=error.node_only,
            steps=_count_steps(walk),
            cause=error.cause,
        )
    except NodeSelectorError as error:
        return NodeResult(SearchVerdict.ERROR, error=str(error), steps=_count_steps(walk))
    except OutOfBudget as reason:
        return NodeResult(SearchVerdict.UNDECIDED, error=str(reason), steps=_count_steps(walk))
    steps = _count_steps(walk)
    if solution is not None:
        question = problem.question
        return NodeResult(
            SearchVerdict.FEASIBLE,
            tuple((question.leaves[leaf], problem.places[place]) for leaf, place in solution.chosen),
            tuple(place for _, place in solution.chosen),
            tuple(request.leaves[at] for request, at in zip(question.requests, solution.alternatives, strict=True)),
            steps=steps,
        )
    invalid = next((pool for pool in pools if pool.status is PoolStatus.INVALID), None)
    if invalid is not None:
        problem_text = f"pool {'/'.join(invalid.id)} is invalid: {invalid.reason}"
        node_only = not cache.question.reading.oldest
        return NodeResult(
            SearchVerdict.ERROR, error=problem_text, node_only=node_only, steps=steps, cause=Cause.INVALID_POOL
        )
    return NodeResult(SearchVerdict.INFEASIBLE, steps=steps)


def decide(stock: Stock, node: str, claims: Sequence[ResourceClaim], options: SearchOptions) -> NodeAnswer:
    """Allocate claims on one node of a stock (a snapshot of the cluster's devices and claims). A refusal gets no reasons."""
    target = stock.nodes.get(node)
    if target is None:
        return NodeAnswer(SearchVerdict.ERROR, error=f"Node/{node} does not exist", cause=Cause.MISSING_OBJECT)
    try:
        question = question_of(claims, stock)
        pools = stock.pools(node)
    except (AllocateError, NodeSelectorError) as error:
        return fail(error)
    cache = CompileCache(question, Rules(stock.compatibilities.values()))
    return compose(question, target, search_node(cache, target, pools, stock.use, options))


def explain(
    refused: NodeAnswer,
    stock: Stock,
    node: str,
    claims: Sequence[ResourceClaim],
    options: SearchOptions,
) -> NodeAnswer:
    """Return a refusal with the reasons why its devices were rejected; return any other answer unchanged.

    `explained` is False if the budget was too small to find the reasons.
    """
    if refused.verdict is not SearchVerdict.INFEASIBLE:
        return refused
    whole_budget = budget_of(options)
    options_with_budget = msgspec.structs.replace(options, budget=whole_budget)

    def decide_claims(changed_stock: Stock, claim_subset: Sequence[ResourceClaim]) -> NodeAnswer:
        return decide(changed_stock, node, claim_subset, options_with_budget)

    try:
        reasons = losses(stock, node, claims, serve=decide_claims, budget=whole_budget)
    except OutOfBudget as error:
        reason = Rejection(Stage.SEARCH, text=f"the reason is not known: {error}")
        return msgspec.structs.replace(refused, reasons=(reason,), explained=False)
    return msgspec.structs.replace(refused, reasons=reasons)


def compose(question: Question, node: Node, result: NodeResult) -> NodeAnswer:
    """Compose the answer from a result of the search."""
    verdict, steps = result.verdict, result.steps
    if verdict is not SearchVerdict.FEASIBLE:
        return NodeAnswer(verdict, error=result.error, node_only=result.node_only, steps=steps, cause=result.cause)
    try:
        allocations = grant(question, result.chosen, result.selected, node.metadata.name)
    except AllocateError as error:
        return fail(error, steps)
    return NodeAnswer(verdict, allocations, steps=steps)


def _count_steps(walk: Walk | None) -> int:
    """Charge those steps of a finished search that are not charged yet. Return the number of all its steps."""
    if walk is None:
        return 0
    with suppress(OutOfBudget):
        walk.steps.pay()
    return walk.steps.spent
