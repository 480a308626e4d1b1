"""`drawbridge allocate`: which devices claims get on a node, or why not, and what would fit. Reads files only."""

from __future__ import annotations

from time import perf_counter

import click

from cli import contract as inputs
from cli.contract import Broken, Exit
from cli.strategies import HELP, print_strategies, refuse_unknown
from dra.texts import list_first

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
_NAMED = 8  # names in one line
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
@inputs.output("text", "json", "markdown", "html", default="text")
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
    from analysis import allocated
    from analysis.configuration import server_named
    from analysis.loading import choose_claims, read_objects, warn_of_ignored
    from dra.objects import Pod, ResourceClaim, ResourceClaimTemplate
    from dra.server import EVERYTHING

    if strategy == HELP:
        print_strategies()
        return Exit.FINE
    refuse_unknown(strategy)
    if not files:
        raise Broken("nothing to allocate", "give files, directories, or - for standard input: -f FILE")
    if bool(node) == all_nodes:
        raise Broken("the nodes to allocate on are given once", "give either --node NAME or --all-nodes")
    server = server_named(kubernetes, feature_gates) or EVERYTHING
    began = perf_counter()
    documents = inputs.read(files)
    warn_of_ignored(document.object for document in documents)
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
    question = allocated.Inquiry(
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
        inputs.write(
            output,
            lambda: allocated.report(node, question, answer, looked, elapsed),
            lambda: question.document(node, answer, looked, elapsed),
        )
        return _EXITS[answer.verdict]

    found = question.ask_all()
    elapsed = perf_counter() - loaded
    inputs.write(
        output,
        lambda: allocated.report_of_all(question, found),
        lambda: {
            "nodes": {
                name: {**question.document(name, answer, (), elapsed), "score": round(found.scores.get(name, 0.0), 2)}
                for name, answer in found.answers.items()
            }
        },
    )
    exits = {_EXITS[answer.verdict] for answer in found.of_nodes.values()}
    # One feasible node is success; else the answer that needs most attention counts.
    ranked = (Exit.FINE, Exit.UNDECIDED, Exit.BROKEN, Exit.REFUSED)
    return next((code for code in ranked if code in exits), Exit.REFUSED)
