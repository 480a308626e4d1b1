"""`drawbridge allocate`: which devices claims get on a node, or why not, and what would fit. Reads files only."""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from cli import contract as inputs
from cli.contract import Broken, Exit
from cli.strategies import HELP, print_strategies, refuse_unknown
from dra.texts import list_first
from rendering.terminal import aligned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from allocator.answer import Answer
    from allocator.one_node import Options
    from allocator.reasons import NearestFit
    from dra.objects import ResourceClaim
    from dra.stock import Stock

EMPTY = {
    "node": "",
    "verdict": "error",
    "feasible": False,
    "allocations": [],
    "reasons": [],
    "nearest": [],
    "error": None,
    "steps": 0,
    "strategy": "",
    "loadMs": 0.0,
    "elapsedMs": 0.0,
}
_SHOWN = 6  # feasible nodes whose devices are listed
_NAMED = 8  # names in one line
_HINTS_STEPS = 3_000_000  # for all hints: about three seconds
_EXITS = {"feasible": Exit.FINE, "infeasible": Exit.REFUSED, "undecided": Exit.UNDECIDED, "error": Exit.BROKEN}


@inputs.command(
    "allocate",
    empty=EMPTY,
    examples=(
        "drawbridge allocate -f dump.yaml --all-nodes",
        "drawbridge allocate -f dump.yaml --node node-b --strategy help",
    ),
)
@inputs.files(required=False)
@click.option("--node", metavar="NAME", help="The node to allocate on.")
@inputs.option("--all-nodes", "Try every node of the input.")
@inputs.option("--claim", "Only this claim. May be repeated.", metavar="NS/NAME", multiple=True, called="claims")
@click.option("--strategy", default="first-fit", show_default=True, metavar="NAME", help="How to choose among devices that fit; `--strategy help` lists the strategies.")  # fmt: skip
@click.option("--budget-ms", type=click.IntRange(min=1), metavar="N", help="Search each node for about N ms (counted in steps), then answer undecided.")  # fmt: skip
@click.option(
    "--hints/--no-hints", default=True, help="If claims do not fit, search for a change with which they would."
)
@inputs.server()
@inputs.output("text", "json", default="text")
def command(
    *,
    files: tuple[str, ...],
    node: str | None,
    all_nodes: bool,
    claims: tuple[str, ...],
    strategy: str,
    budget_ms: int | None,
    hints: bool,
    kubernetes: str,
    feature_gates: str,
    output: str,
) -> Exit:
    """Show which devices claims get on a node, or why not.

    Reads Node, DeviceClass, ResourceSlice, DeviceTaintRule, DeviceCompatibility and ResourceClaim objects. Devices of
    allocated claims are in use; the other claims are allocated together, in input order. The default is the newest
    Kubernetes that is supported, with all feature gates on.
    """
    import allocator.strategies.choose  # noqa: F401  imported here, so that the search time does not include it
    from analysis.configuration import server_named
    from analysis.devices import choose_claims, read_objects, warn_of_ignored
    from dra.objects import Pod, ResourceClaim, ResourceClaimTemplate
    from dra.server import EVERYTHING

    if strategy == HELP:
        print_strategies()
        return Exit.FINE
    refuse_unknown([strategy])
    if not files:
        raise Broken("nothing to allocate", "give files, directories, or - for standard input: -f FILE")
    if bool(node) == all_nodes:
        raise Broken("the nodes to allocate on are given once", "give either --node NAME or --all-nodes")
    server = server_named(kubernetes, feature_gates) or EVERYTHING
    began = perf_counter()
    documents = inputs.read(files)
    warn_of_ignored(documents)
    given = read_objects(documents)
    wanted = choose_claims(given.open_claims(), claims, given.of(ResourceClaim))
    if not wanted and (templates := given.of(ResourceClaimTemplate)):
        inputs.warn(
            f"the input has {inputs.count_of(len(templates), 'template')} and no claim to allocate; "
            "`drawbridge simulate` creates the claims of pods"
        )
    if not wanted and (pods := given.of(Pod)):
        inputs.warn(
            f"the input has {inputs.count_of(len(pods), 'pod')} and no claim to allocate; "
            "`drawbridge simulate` creates the claims of pods"
        )
    loaded = perf_counter()
    stock = given.stock(server)
    if node and node not in stock.nodes:
        raise Broken(f"no Node {node} in the input", f"nodes: {list_first(list(stock.nodes), _NAMED) or 'none'}")
    if not stock.nodes:
        raise Broken("no Node in the input", "add the nodes: kubectl get nodes -o yaml")
    question = _Inquiry(
        stock=stock,
        claims=tuple(wanted),
        strategy=strategy,
        budget_ms=budget_ms,
        wants_hints=hints,
        load_ms=(loaded - began) * 1000,
    )
    if node:
        answer = question.ask(node)
        elapsed = perf_counter() - loaded
        answer = question.explain(node, answer)
        looked = question.hints(node, question.elsewhere(node)) if answer.verdict == "infeasible" else []
        if output == "json":
            inputs.write_json(question.document(node, answer, looked, elapsed))
        else:
            inputs.print_lines(_text(node, question, answer, looked, elapsed))
        return _EXITS[answer.verdict]

    found = question.ask_all()
    elapsed = perf_counter() - loaded
    # Equivalent nodes share one answer.
    of_nodes = {name: found.answers[nodes[0]] for nodes in found.looks for name in nodes}
    if output == "json":
        by_node: dict[str, object] = {}
        for name, answer in found.answers.items():
            score = round(found.scores.get(name, 0.0), 2)
            by_node[name] = {**question.document(name, answer, (), elapsed), "score": score}
        inputs.write_json({"nodes": by_node})
    else:
        inputs.print_lines(_fleet_text(question, found, of_nodes))
    exits = {_EXITS[answer.verdict] for answer in of_nodes.values()}
    # One feasible node is success; else the answer that needs most attention counts.
    ranked = (Exit.FINE, Exit.UNDECIDED, Exit.BROKEN, Exit.REFUSED)
    return next((code for code in ranked if code in exits), Exit.REFUSED)


@dataclass(frozen=True)
class _Everywhere:
    """The answers of all nodes, by name; `looks` groups equivalent nodes."""

    answers: Mapping[str, Answer]
    looks: list[list[str]]
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Inquiry:
    """The claims to allocate, and how."""

    stock: Stock
    claims: tuple[ResourceClaim, ...]
    strategy: str
    budget_ms: int | None
    wants_hints: bool
    load_ms: float

    def ask(self, node: str) -> Answer:
        """Allocate the claims on one node."""
        from allocator import allocate

        return allocate(self.stock, node, self.claims, strategy=self.strategy, options=self._options())

    def ask_all(self) -> _Everywhere:
        """Allocate on all nodes: once for equivalent nodes, then by strategy on each feasible node."""
        from allocator import fleet
        from allocator.strategies import DEFAULT, StrategyCache, choose_devices

        if self.budget_ms is not None:
            explained: dict[str, Answer] = {}
            for node in self.stock.nodes:
                answer = self.ask(node)
                explained[node] = self.explain(node, answer)
            return _Everywhere(explained, [[node] for node in explained])
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
        return _Everywhere(answers, first.equal_nodes(), scores)

    def explain(self, node: str, answer: Answer) -> Answer:
        """Add the reasons to an infeasible answer."""
        from allocator.one_node import explain

        if answer.verdict != "infeasible":
            return answer
        return explain(answer, self.stock, node, self.claims, self._options())

    def elsewhere(self, node: str) -> tuple[str, ...]:
        """Name the other nodes that could serve the claims."""
        from allocator import fleet

        return tuple(one for one in fleet(self.stock, self.claims).feasible if one != node)

    def hints(self, node: str, elsewhere: tuple[str, ...] = ()) -> list[NearestFit]:
        """Search for changes with which the claims would fit, within a budget of steps."""
        from allocator.one_node import Options
        from allocator.reasons import nearest
        from allocator.strategies import choose_devices
        from dra.budget import Budget

        options = Options(budget=Budget(_HINTS_STEPS))

        def fits(stock: Stock, claims: tuple[ResourceClaim, ...]) -> bool | None:
            return choose_devices(stock, node, claims, options=options).answer.decided

        if not self.wants_hints:
            return []
        return nearest(self.stock, node, self.claims, fits=fits, elsewhere=elsewhere)

    def document(self, node: str, answer: Answer, hints: Sequence[NearestFit], elapsed: float) -> dict[str, Any]:
        """Make the JSON answer for one node."""
        from dra.wire import builtins

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

    def _options(self) -> Options:
        from allocator.one_node import Options, steps_in

        return Options() if self.budget_ms is None else Options(steps=steps_in(self.budget_ms))


def _text(
    node: str, question: _Inquiry, answer: Answer, hints: Sequence[NearestFit], elapsed: float | None = None
) -> Iterator[str]:
    from allocator.reasons import lines

    timing = (
        ""
        if elapsed is None
        else f"  ({question.strategy}, {inputs.count_of(answer.steps, 'step')}, {elapsed * 1000:.1f} ms)"
    )
    yield f"{node}: {answer.verdict}{timing}"
    if answer.feasible:
        yield from _table(answer)
        return
    yield ""
    yield from lines(answer)
    if hints:
        yield ""
        yield "would fit:"
        for hint in hints:
            about = (
                f"{hint.claim}, request {hint.request}: " if hint.request else f"{hint.claim}: " if hint.claim else ""
            )
            yield f"  - {about}{hint.text}"
    if answer.verdict == "undecided":
        yield "no answer within the budget; raise it with --budget-ms"


def _fleet_text(question: _Inquiry, found: _Everywhere, answers: Mapping[str, Answer]) -> Iterator[str]:
    """List the feasible nodes, best first, then groups of the others, nearest to feasible first."""
    from allocator.reasons import equal_answers, summary

    yield summary(answers)
    fitting = sorted(
        (node for node in answers if answers[node].feasible), key=lambda node: -found.scores.get(node, 0.0)
    )
    for node in fitting[:_SHOWN]:
        yield ""
        yield f"{node}: feasible" + (f"  (score {found.scores[node]:.0f})" if node in found.scores else "")
        yield from _table(found.answers[node])
    if len(fitting) > _SHOWN:
        yield ""
        yield f"and {len(fitting) - _SHOWN} more that fit: {list_first(fitting[_SHOWN:], _NAMED)}"
    for group in equal_answers({node: answer for node, answer in answers.items() if not answer.feasible}):
        yield ""
        first, *others = group.nodes
        hints = question.hints(first) if group.answer.verdict == "infeasible" and not fitting else []
        head, *rest = _text(first, question, group.answer, hints)
        yield head + (f" (and {len(others)} like it: {list_first(others, _NAMED)})" if others else "")
        yield from rest


def _table(answer: Answer) -> Iterator[str]:
    rows = [("CLAIM", "REQUEST", "DEVICE", "")]
    for granted in answer.allocations:
        results = granted.allocation.devices.results
        for result in results:
            device = f"{result.driver}/{result.pool}/{result.device}"
            amounts = ", ".join(f"{name} {amount}" for name, amount in result.consumed_capacity.items())
            share = f"a share: {amounts}" if amounts else "a share" if result.share_id else ""
            rows.append((granted.claim, result.request, device, "admin access" if result.admin_access else share))
        if not results:
            rows.append((granted.claim, "-", "no device requested", ""))
    if len(rows) == 1:
        yield "  nothing to allocate: the input has no unallocated claim"
        return
    yield from aligned(rows)
