"""`drawbridge allocate`: questions about claims on nodes, and the answers as JSON and as a report. Pure."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from allocator import allocate, fleet
from allocator.one_node import Options, explain, options_within
from allocator.reasons import equal_answers, lines, nearest, summary
from allocator.strategies import DEFAULT, StrategyCache, choose_devices
from dra import step_limits
from dra.budget import Budget
from dra.texts import count_of, list_first
from dra.wire import builtins
from rendering.report import Report, Rows, Screen

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from allocator.answer import Answer
    from allocator.reasons import NearestFit
    from dra.objects import ResourceClaim
    from dra.stock import Stock
    from rendering.report import Part

_SHOWN = 6  # feasible nodes whose devices are listed
_NAMED = 8  # names in one line


@dataclass(frozen=True)
class Everywhere:
    """The answers of all nodes, by name; `looks` groups equivalent nodes."""

    answers: Mapping[str, Answer]
    looks: list[list[str]]
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def of_nodes(self) -> Mapping[str, Answer]:
        """The answers by all nodes: equivalent nodes share one."""
        return {name: self.answers[nodes[0]] for nodes in self.looks for name in nodes}


@dataclass(frozen=True, kw_only=True)
class Inquiry:
    """The claims to allocate, and how."""

    stock: Stock
    claims: tuple[ResourceClaim, ...]
    strategy: str
    budget_ms: int | None
    wants_hints: bool
    load_ms: float

    def ask(self, node: str) -> Answer:
        """Allocate the claims on one node."""
        return allocate(self.stock, node, self.claims, strategy=self.strategy, options=options_within(self.budget_ms))

    def ask_all(self) -> Everywhere:
        """Allocate on all nodes: once for equivalent nodes, then by strategy on each feasible node."""
        if self.budget_ms is not None:
            explained: dict[str, Answer] = {}
            for node in self.stock.nodes:
                answer = self.ask(node)
                explained[node] = self.explain(node, answer)
            return Everywhere(explained, [[node] for node in explained])
        first = fleet(self.stock, self.claims)
        cache = StrategyCache()
        served: dict[str, Answer] = {}
        scores: dict[str, float] = {}
        others = first.feasible if self.strategy != DEFAULT else ()
        for node in others:
            chosen = choose_devices(self.stock, node, self.claims, strategy=self.strategy, cache=cache)
            served[node] = chosen.answer
            scores[node] = chosen.score
        answers = ChainMap(served, first)  # type: ignore[arg-type]  # only ever read
        return Everywhere(answers, first.equal_nodes(), scores)

    def explain(self, node: str, answer: Answer) -> Answer:
        """Add the reasons to an infeasible answer."""
        return explain(answer, self.stock, node, self.claims, options_within(self.budget_ms))

    def elsewhere(self, node: str) -> tuple[str, ...]:
        """Name the other nodes that could serve the claims."""
        return tuple(one for one in fleet(self.stock, self.claims).feasible if one != node)

    def hints(self, node: str, elsewhere: tuple[str, ...] = ()) -> list[NearestFit]:
        """Search for changes with which the claims would fit, within a budget of steps."""
        options = Options(budget=Budget(step_limits.SEARCHED_HINTS))

        def fits(stock: Stock, claims: tuple[ResourceClaim, ...]) -> bool | None:
            return choose_devices(stock, node, claims, options=options).answer.decided

        if not self.wants_hints:
            return []
        return nearest(self.stock, node, self.claims, fits=fits, elsewhere=elsewhere)

    def document(self, node: str, answer: Answer, hints: Sequence[NearestFit], elapsed: float) -> dict[str, Any]:
        """Make the JSON answer for one node."""
        return {
            "node": node,
            "verdict": answer.verdict,
            "feasible": answer.feasible,
            "allocations": builtins(answer.allocations),
            "reasons": builtins(answer.reasons),
            "nearest": builtins(tuple(hints)),
            "error": answer.error,
            "steps": answer.steps,
            "strategy": self.strategy,
            "loadMs": round(self.load_ms, 3),
            "elapsedMs": round(elapsed * 1000, 3),
        }


def report(node: str, question: Inquiry, answer: Answer, hints: Sequence[NearestFit], elapsed: float) -> Report:
    """Report the answer for one node."""
    timing = f"  ({question.strategy}, {count_of(answer.steps, 'step')}, {elapsed * 1000:.1f} ms)"
    return Report(f"Claims on {node}", list(_parts(f"{node}: {answer.verdict}{timing}", answer, hints)))


def report_of_all(question: Inquiry, found: Everywhere) -> Report:
    """List the feasible nodes, best first, then groups of the others, nearest to feasible first."""
    answers = found.of_nodes
    parts: list[Part] = [summary(answers)]
    fitting = sorted(
        (node for node in answers if answers[node].feasible), key=lambda node: -found.scores.get(node, 0.0)
    )
    for node in fitting[:_SHOWN]:
        score = f"  (score {found.scores[node]:.0f})" if node in found.scores else ""
        parts += _parts(f"{node}: feasible{score}", found.answers[node], ())
    if len(fitting) > _SHOWN:
        parts.append(f"and {len(fitting) - _SHOWN} more that fit: {list_first(fitting[_SHOWN:], _NAMED)}")
    for group in equal_answers({node: answer for node, answer in answers.items() if not answer.feasible}):
        first, *others = group.nodes
        hints = question.hints(first) if group.answer.verdict == "infeasible" and not fitting else []
        also = f" (and {len(others)} like it: {list_first(others, _NAMED)})" if others else ""
        parts += _parts(f"{first}: {group.answer.verdict}{also}", group.answer, hints)
    return Report("Claims on all nodes", parts)


def _parts(title: str, answer: Answer, hints: Sequence[NearestFit]) -> Iterator[Part]:
    if answer.feasible:
        yield _table(answer, title)
        return
    why = list(lines(answer))
    if answer.verdict == "undecided":
        why.append("no answer within the budget; raise it with --budget-ms")
    yield Screen(why, title)
    fits: list[str] = []
    for hint in hints:
        about = f"{hint.claim}, request {hint.request}: " if hint.request else f"{hint.claim}: " if hint.claim else ""
        fits.append(f"  - {about}{hint.text}")
    if fits:
        yield Screen(fits, "would fit:")


def _table(answer: Answer, title: str) -> Part:
    rows: list[tuple[str, ...]] = []
    for granted in answer.allocations:
        results = granted.allocation.devices.results
        for result in results:
            device = f"{result.driver}/{result.pool}/{result.device}"
            amounts = ", ".join(f"{name} {amount}" for name, amount in result.consumed_capacity.items())
            share = f"a share: {amounts}" if amounts else "a share" if result.share_id else ""
            rows.append((granted.claim, result.request, device, "admin access" if result.admin_access else share))
        if not results:
            rows.append((granted.claim, "-", "no device requested", ""))
    if not rows:
        return Screen(["  nothing to allocate: the input has no unallocated claim"], title)
    return Rows(("Claim", "Request", "Device", ""), rows, title)
