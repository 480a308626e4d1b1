"""Choosing by strategy: among the ways to serve claims on a node, and among the nodes that can serve them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allocator.answer import Answer, Fatal, Verdict
from allocator.compile import Compiler
from allocator.search import Options, answer, find
from allocator.shape import shape_of
from allocator.strategy import DEFAULT, STRATEGIES, Kept, Plan, Strategy, View
from dra.compat import Rules
from dra.errors import NodeSelectorError
from dra.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from allocator.offer import Place
    from dra.claim import DeviceRequest, DeviceRequestAllocationResult, ResourceClaim
    from dra.stock import Stock

    Arrange = Callable[[list[Place]], list[Place]]
    Solve = Callable[[Sequence[ResourceClaim], "Arrange | None"], Answer]


class Chosen(msgspec.Struct, frozen=True):
    """What a strategy makes of a node: the answer, and how good the node is for it, from 0 to 100."""

    answer: Answer
    score: float = 0.0


def serve(
    stock: Stock,
    node: str,
    claims: Sequence[ResourceClaim],
    *,
    strategy: str = DEFAULT,
    options: Options | None = None,
    kept: Kept | None = None,
) -> Chosen:
    """Serve claims on one node as a strategy likes it best; whoever asks often keeps a `Kept` for it."""
    target, search, kept = stock.nodes[node], options or Options(), kept or Kept()

    def solve(some: Sequence[ResourceClaim], arrange: Arrange | None) -> Answer:
        try:
            pools = stock.pools(node)
            key = encode([(claim.metadata.namespace, claim.metadata.name, claim.spec) for claim in some])
            compiler = kept.compilers.get(key)
            if compiler is None:
                rules = Rules(stock.compatibilities.values())
                compiler = kept.compilers[key] = Compiler(shape_of(some, stock.classes), rules)
        except (Fatal, NodeSelectorError) as error:
            return Answer(Verdict.ERROR, error=str(error))
        ordered = replace(search, arrange=arrange)
        return answer(compiler, target, find(compiler, target, pools, stock.use, ordered), ordered)

    return choose(stock, node, claims, strategy, solve=solve, kept=kept)


def choose(
    stock: Stock, node: str, claims: Sequence[ResourceClaim], strategy: str, *, solve: Solve, kept: Kept
) -> Chosen:
    """Look at what first-fit and the orders of a strategy lead to; `solve` is the exact search under an order."""
    first = solve(claims, None)
    if not first.feasible or strategy == DEFAULT:
        return Chosen(first, _preference(claims, first) if first.feasible else 0.0)
    chosen, view = STRATEGIES[strategy], View(stock, node, kept)
    plans = [_plan(view, first)]
    narrowed = _narrowed(claims, first)
    for arrange in _arrangements(view, chosen):
        found = solve(narrowed, arrange)
        if found.feasible:
            plans.append(_plan(view, found))
    best = min(plans, key=lambda plan: chosen.cost(view, plan))
    steps = sum(plan.answer.steps for plan in plans)
    return Chosen(replace(best.answer, steps=steps), _score(chosen, view, best, claims))


def best(choices: Mapping[str, Chosen]) -> str | None:
    """Name the node that a strategy likes best, the first of equals; None if no node can serve the claims."""
    fitting = [node for node, chosen in choices.items() if chosen.answer.verdict is Verdict.FEASIBLE]
    return max(fitting, key=lambda node: choices[node].score, default=None)


def _score(chosen: Strategy, view: View, plan: Plan, claims: Sequence[ResourceClaim]) -> float:
    """Let alternatives that the claim likes better weigh more than the strategy's own liking."""
    own = min(100.0, max(0.0, chosen.score(view, plan)))
    if not any(request.first_available for claim in claims for request in claim.spec.devices.requests):
        return own
    return 0.75 * _preference(claims, plan.answer) + 0.25 * own


def _preference(claims: Sequence[ResourceClaim], answer: Answer) -> float:
    """Say how well a fit meets the order of alternatives: 100 if every request got its first."""
    ranks: list[float] = []
    for claim, granted in zip(claims, answer.allocations, strict=True):
        got = {result.request for result in granted.allocation.devices.results}
        for request in claim.spec.devices.requests:
            subs = [f"{request.name}/{sub.name}" for sub in request.first_available]
            ranks += [at / len(subs) for at, sub in enumerate(subs) if sub in got]
    return 100 * (1 - sum(ranks) / len(ranks)) if ranks else 0.0


def _arrangements(view: View, strategy: Strategy) -> Iterator[Arrange]:
    def arrange_by(key: Callable[[tuple[str, str, str]], tuple[float, ...]]) -> Arrange:
        return lambda places: sorted(places, key=lambda place: key(place.id))

    return (arrange_by(key) for key in strategy.orders(view))


def _plan(view: View, answer: Answer) -> Plan:
    results = tuple(_results(answer))
    return Plan(answer, results, view.after(results))


def _results(answer: Answer) -> Iterable[DeviceRequestAllocationResult]:
    for granted in answer.allocations:
        yield from granted.allocation.devices.results


def _narrowed(claims: Sequence[ResourceClaim], answer: Answer) -> list[ResourceClaim]:
    """Leave of each firstAvailable request only the alternative that first-fit chose: a strategy chooses devices."""
    narrowed: list[ResourceClaim] = []
    for claim, granted in zip(claims, answer.allocations, strict=True):
        got = {result.request for result in granted.allocation.devices.results}
        devices = claim.spec.devices
        requests = tuple(_chosen_only(request, got) for request in devices.requests)
        narrowed.append(replace(claim, spec=replace(claim.spec, devices=replace(devices, requests=requests))))
    return narrowed


def _chosen_only(request: DeviceRequest, got: set[str]) -> DeviceRequest:
    kept = tuple(sub for sub in request.first_available if f"{request.name}/{sub.name}" in got)
    # An alternative of no devices leaves no trace; the search finds it again.
    return replace(request, first_available=kept or request.first_available)
