"""`drawbridge simulate --claims`: which devices claims get on each node, or why they get none and which change would help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from allocator.decisions import Decider
from allocator.one_node import SearchOptions, options_within
from allocator.reasons import equal_answers, lines, nearest_fits
from allocator.strategies import choose_devices, read_placement
from analysis.errors import Broken
from analysis.report import Report, Rows, Screen
from dra import step_limits
from dra.budget import Budget
from dra.texts import count_of, list_first
from dra.wire import builtins

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from allocator.answer import NodeAnswer
    from allocator.reasons import NearestFit
    from analysis.report import Part
    from dra.objects import ResourceClaim
    from dra.stock import Stock

_SHOWN = 6  # feasible nodes whose devices are listed
_NAMED = 8  # names in one line


@dataclass(frozen=True)
class ClaimsOnNodes:
    """The answers by node. Equivalent nodes share one answer object."""

    answers: Mapping[str, NodeAnswer]
    scores: Mapping[str, float] = field(default_factory=dict)
    # By the first node of each group of nodes with equal answers.
    hints: Mapping[str, Sequence[NearestFit]] = field(default_factory=dict)

    def document(self) -> dict[str, dict[str, Any]]:
        """Make the JSON answers by node."""
        return {
            name: {
                "verdict": answer.verdict,
                "feasible": answer.feasible,
                "allocations": builtins(answer.allocations),
                "reasons": builtins(answer.reasons),
                "nearestFits": builtins(tuple(self.hints.get(name, ()))),
                "error": answer.error,
                "steps": answer.steps,
                "score": round(self.scores.get(name, 0.0), 2),
            }
            for name, answer in self.answers.items()
        }


def choose_claims(claims: Sequence[ResourceClaim], requested_names: Sequence[str]) -> tuple[ResourceClaim, ...]:
    """Return the unallocated claims, or those of them that `--claim` names; a name without a namespace means `default`."""
    unallocated = [claim for claim in claims if claim.status.allocation is None]
    names = [name if "/" in name else f"default/{name}" for name in requested_names]
    open_names = {claim.metadata.key for claim in unallocated}
    for name in names:
        if name in open_names:
            continue
        if any(claim.metadata.key == name for claim in claims):
            raise Broken(
                f"ResourceClaim {name} is already allocated", "remove the status of the claim, or name another claim"
            )
        unallocated_names = ", ".join(sorted(open_names)) or "none"
        raise Broken(f"no ResourceClaim {name} in the input", f"unallocated claims: {unallocated_names}")
    return tuple(claim for claim in unallocated if not names or claim.metadata.key in names)


def allocate_claims(
    stock: Stock, claims: tuple[ResourceClaim, ...], *, node: str, strategy: str, budget_ms: int | None
) -> ClaimsOnNodes:
    """Allocate all claims on `node`, or if that is "", on each node.

    If no node is feasible, search for changes with which the claims would fit.
    """
    decider, placement = Decider(options_within(budget_ms)), read_placement(strategy)
    searched = decider.search_fleet(stock, claims, within=(node,) if node else None)
    scores = {} if placement.is_default else decider.scores(searched, stock, claims, placement)
    by_node: dict[str, NodeAnswer] = {}
    for equal_nodes in searched.equal_nodes():
        for name in equal_nodes:
            if name in scores:
                by_node[name] = decider.choose_on(name, stock, claims, placement).answer
            else:  # a refusal holds for all equivalent nodes; an allocation names devices of its node
                first = by_node.get(equal_nodes[0])
                by_node[name] = searched[name] if first is None or first.feasible else first
    answers = {name: by_node[name] for name in searched}
    if any(answer.feasible for answer in answers.values()):
        return ClaimsOnNodes(answers, scores)
    hints: dict[str, Sequence[NearestFit]] = {}
    for group in equal_answers(answers):
        if group.answer.verdict == "infeasible":
            hints[group.nodes[0]] = _hints(stock.idle(), group.nodes[0], claims)
    return ClaimsOnNodes(answers, scores, hints)


def _hints(idle: Stock, node: str, claims: tuple[ResourceClaim, ...]) -> list[NearestFit]:
    """Search for changes with which the claims would fit on an idle node, within a budget of steps; none if they fit unchanged."""
    options = SearchOptions(budget=Budget(step_limits.SEARCHED_HINTS))

    def fits(claims: tuple[ResourceClaim, ...]) -> bool | None:
        return choose_devices(idle, node, claims, options=options).answer.decided

    return [] if fits(claims) else nearest_fits(claims, idle.classes, fits=fits)


def report(allocated: ClaimsOnNodes) -> Report:
    """List the feasible nodes, best first, then groups of the other nodes, those nearest to feasible first."""
    answers = allocated.answers
    fits = sum(answer.feasible for answer in answers.values())
    parts: list[Part] = []
    fitting = sorted(
        (node for node in answers if answers[node].feasible), key=lambda node: -allocated.scores.get(node, 0.0)
    )
    for node in fitting[:_SHOWN]:
        score = f"  (score {allocated.scores[node]:.0f})" if node in allocated.scores else ""
        parts.append(_table(answers[node], f"{node}: feasible{score}"))
    if len(fitting) > _SHOWN:
        parts.append(f"and {len(fitting) - _SHOWN} more nodes that fit: {list_first(fitting[_SHOWN:], _NAMED)}")
    for group in equal_answers({node: answer for node, answer in answers.items() if not answer.feasible}):
        first, *others = group.nodes
        equal_nodes = f" (and {len(others)} like it: {list_first(others, _NAMED)})" if others else ""
        parts += _reasons(f"{first}: {group.answer.verdict}{equal_nodes}", group.answer, allocated.hints.get(first, ()))
    return Report("Claims on nodes", parts, f"{fits} of {count_of(len(answers), 'node')} can serve this")


def _reasons(title: str, answer: NodeAnswer, hints: Sequence[NearestFit]) -> Iterator[Part]:
    why = list(lines(answer))
    if answer.verdict == "undecided":
        why.append("the budget ended before the search; raise the budget with --budget-ms")
    yield Screen(why, title)
    fits: list[str] = []
    for hint in hints:
        subject = f"{hint.claim}, request {hint.request}: " if hint.request else f"{hint.claim}: " if hint.claim else ""
        fits.append(f"  - {subject}{hint.text}")
    if fits:
        yield Screen(fits, "would fit:")


def _table(answer: NodeAnswer, title: str) -> Part:
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
