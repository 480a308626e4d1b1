"""Chooses by strategy: one of the possible allocations on a node, and one of the nodes."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.answer import AllocateError, Granted, NodeAnswer, SearchVerdict, fail, with_allocation
from allocator.one_node import SearchOptions, budget_of, compose, search_node
from allocator.problem import CompileCache, question_of
from allocator.strategies.node_view import NodeView, StrategyCache
from allocator.strategies.strategy import DEFAULT, STRATEGIES, DevicePlan
from dra.errors import NodeSelectorError, OutOfBudget
from dra.policy import Rules
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator.problem import DeviceCandidate
    from allocator.strategies.strategy import Cost, Order
    from dra.objects import DeviceRequest, ResourceClaim
    from dra.stock import Pool, Stock

    Arrange = Callable[[list[DeviceCandidate]], list[DeviceCandidate]]


class Chosen(msgspec.Struct, frozen=True):
    """The allocation that a strategy chose on a node, and the node's score from 0 to 100."""

    answer: NodeAnswer
    score: float = 0.0


def choose_devices(
    stock: Stock,
    node: str,
    claims: Sequence[ResourceClaim],
    *,
    strategy: str = DEFAULT,
    options: SearchOptions | None = None,
    cache: StrategyCache | None = None,
    pools: Sequence[Pool] | None = None,
) -> Chosen:
    """Allocate claims on one node by a strategy. A caller with repeated questions passes a `StrategyCache`, and pools if it has them."""
    try:
        local_pools = stock.pools(node) if pools is None else pools
    except NodeSelectorError as error:
        return Chosen(fail(error))
    search = _NodeSearch(stock, node, local_pools, options or SearchOptions(), cache or StrategyCache())
    first = search.solve(claims)
    if not first.feasible:
        return Chosen(first)
    if strategy == DEFAULT:
        return Chosen(first, _preference(claims, first))
    chosen = STRATEGIES[strategy]
    view = NodeView(stock, node, local_pools, search.cache, chosen.looks_at)
    narrowed = _narrow(claims, first)
    answers = [first]
    budget = budget_of(search.options)
    with suppress(OutOfBudget):  # the best of the plans so far is taken
        for key in chosen.orders(view):

            def order(candidate: DeviceCandidate, key: Order = key) -> Cost:
                return key(candidate.id)

            budget.charge(2 * len(view.homes))
            answers.append(search.solve(narrowed, partial(sorted, key=order)))
    has_admin_access = any(result.admin_access for result in first.results)
    if len(claims) > 1 and not has_admin_access:
        answers.append(search.one_by_one(narrowed, strategy))
    plans = [DevicePlan(answer, answer.results, view.after(answer.results)) for answer in answers if answer.feasible]
    best = min(plans, key=lambda plan: chosen.cost(view, plan))
    score = min(100.0, max(0.0, chosen.score(view, best)))
    if any(request.first_available for claim in claims for request in claim.spec.devices.requests):
        # The claim's order of alternatives weighs more than the strategy's score.
        score = 0.75 * _preference(claims, best.answer) + 0.25 * score
    return Chosen(replace(best.answer, steps=sum(answer.steps for answer in answers)), score)


class _NodeSearch:
    def __init__(
        self, stock: Stock, node: str, pools: Sequence[Pool], options: SearchOptions, cache: StrategyCache
    ) -> None:
        self.stock = stock
        self.node = node
        self.pools = pools
        self.options = options
        self.cache = cache

    def solve(self, claims: Sequence[ResourceClaim], arrange: Arrange | None = None) -> NodeAnswer:
        """Search with the devices in the order that `arrange` makes. The search is exact in any order."""
        stock = self.stock

        def compile_question() -> CompileCache:
            rules = Rules(stock.compatibilities.values())
            return CompileCache(question_of(claims, stock), rules)

        named_specs = [(claim.metadata.namespace, claim.metadata.name, claim.spec) for claim in claims]
        try:
            cache = self.cache.cache_for(encode(named_specs), compile_question)
        except AllocateError as error:
            return fail(error)
        target = stock.nodes[self.node]
        options = replace(self.options, arrange=arrange)
        result = search_node(cache, target, self.pools, stock.use, options)
        return compose(cache.question, target, result)

    def one_by_one(self, claims: Sequence[ResourceClaim], strategy: str) -> NodeAnswer:
        """Choose devices for one claim after another. The devices of earlier claims are then in use."""
        stock, steps = self.stock, 0
        granted: list[Granted] = []
        for claim in claims:
            chosen = choose_devices(
                stock,
                self.node,
                [claim],
                strategy=strategy,
                options=self.options,
                cache=self.cache,
                pools=self.pools,
            ).answer
            if not chosen.feasible:
                return chosen
            granted += chosen.allocations
            steps += chosen.steps
            stock = stock.with_object(with_allocation(claim, chosen.allocations[0].allocation))
        return NodeAnswer(SearchVerdict.FEASIBLE, tuple(granted), steps=steps)


def _preference(claims: Sequence[ResourceClaim], answer: NodeAnswer) -> float:
    """Rate an answer by the order of alternatives: 100 if every request got its first alternative."""
    ranks: list[float] = []
    for claim, granted in zip(claims, answer.allocations, strict=True):
        chosen_requests = {result.request for result in granted.allocation.devices.results}
        for request in claim.spec.devices.requests:
            subs = request.first_available
            for index, sub in enumerate(subs):
                if f"{request.name}/{sub.name}" in chosen_requests:
                    ranks.append(index / len(subs))
    if not ranks:
        return 0.0
    return 100 * (1 - sum(ranks) / len(ranks))


def _narrow(claims: Sequence[ResourceClaim], answer: NodeAnswer) -> list[ResourceClaim]:
    """Reduce each firstAvailable request to the alternative that first-fit chose, because a strategy chooses only devices."""
    narrowed: list[ResourceClaim] = []
    for claim, granted in zip(claims, answer.allocations, strict=True):
        chosen_requests = {result.request for result in granted.allocation.devices.results}
        requests: list[DeviceRequest] = []
        for request in claim.spec.devices.requests:
            chosen_alternatives = tuple(
                sub for sub in request.first_available if f"{request.name}/{sub.name}" in chosen_requests
            )
            # The chosen alternative has no results if it needs no devices. Then all alternatives stay.
            requests.append(replace(request, first_available=chosen_alternatives or request.first_available))
        devices = replace(claim.spec.devices, requests=tuple(requests))
        narrowed.append(replace(claim, spec=replace(claim.spec, devices=devices)))
    return narrowed
