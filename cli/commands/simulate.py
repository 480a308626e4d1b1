"""`drawbridge simulate`: schedules the pending pods of a snapshot, or allocates its claims. Reads files only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from analysis.configuration import server_named
from analysis.errors import Broken
from cli import options
from cli.answers import write
from cli.command import declare
from cli.configuration import given_configuration, report_configuration
from cli.exits import Exit
from cli.output import progress, warn
from cli.strategies import HELP, print_strategies, refuse_unknown

if TYPE_CHECKING:
    from cli.files import InputFiles

# In order of precedence: one feasible node is enough for success, then undecided, error and infeasible.
_EXITS = {"feasible": Exit.FINE, "undecided": Exit.UNDECIDED, "error": Exit.BROKEN, "infeasible": Exit.REFUSED}


@declare(
    "simulate",
    examples=(
        "drawbridge simulate -f deploy/ --inventory fleet.yaml",
        "drawbridge simulate -f dump.yaml --claims --node node-b",
    ),
)
@options.files()
@options.inventory()
@options.config()
@options.mode_option()
@options.option(
    "--claims",
    "Allocate the unallocated claims together on each node, instead of scheduling pods.",
    called="all_claims",
)
@options.option(
    "--claim", "Allocate only this claim. May be repeated.", metavar="NS/NAME", multiple=True, called="claims"
)
@options.option("--node", "Allocate claims only on this node.", metavar="NAME")
@click.option("--strategy", default="first-fit", show_default=True, metavar="NAME", help="How to choose nodes and devices; `--strategy help` lists the strategies.")  # fmt: skip
@click.option("--budget-ms", type=click.IntRange(min=1), metavar="N", help="Search each node for about N ms (counted in steps), then answer undecided.")  # fmt: skip
@click.option("--remove-node", "removed", multiple=True, metavar="NODE", help="Remove a node, and place its pods again. May be repeated.")  # fmt: skip
@click.option("--add-nodes", "added", multiple=True, metavar="NODE=N", help="Add N idle nodes like NODE. May be repeated.")  # fmt: skip
@options.server()
@options.verbose()
@options.output("text", "json", "markdown", default="text")
def command(
    *,
    files: InputFiles,
    config: str,
    mode: str | None,
    all_claims: bool,
    claims: tuple[str, ...],
    node: str,
    strategy: str,
    budget_ms: int | None,
    removed: tuple[str, ...],
    added: tuple[str, ...],
    kubernetes: str,
    feature_gates: str,
    verbose: bool,
    output: str,
) -> Exit:
    """Show where the pending pods of a snapshot would go. With --claims, show which devices its claims would get.

    The webhook's code first translates or refuses the pods without a node and the pods of workloads. Pods are placed in the order of
    priority, creation and name; the devices that a pod gets are not free for the next pod. With --claims, the command tries on each node to
    allocate all unallocated claims together, in input order. If no node has devices for them, it suggests changes. A snapshot is any set of Node,
    Pod, ResourceClaim, ResourceClaimTemplate, ResourceSlice, DeviceClass, DeviceTaintRule, DeviceCompatibility, DeviceQuota and
    PodDisruptionBudget objects.
    """
    from analysis import allocated, outlook, simulated
    from cli.loading import read_as_installed
    from dra.wire import builtins

    if strategy == HELP:
        print_strategies()
        return Exit.FINE
    refuse_unknown(strategy)
    if not files:
        raise Broken("nothing to simulate", "give -f FILE")
    of_claims = all_claims or bool(claims)
    if node and not of_claims:
        raise Broken("--node applies to claims", "add --claims, or --claim NS/NAME")
    reading = read_as_installed(files, given_configuration(config), server_named(kubernetes, feature_gates))
    in_force = reading.in_force
    report_configuration(in_force, mode)
    admitted = simulated.snapshot_of(reading, mode)
    if verbose and admitted.warning:
        warn(admitted.warning)
    snapshot = simulated.change_nodes(admitted.snapshot, removed, added)
    if of_claims:
        chosen = allocated.choose_claims(tuple(snapshot.stock.claims.values()), claims)
        if not chosen:
            warn("no unallocated claim in the input; without --claims this command schedules pods")
        if not snapshot.stock.nodes:
            raise Broken("no Node in the input", "add the nodes: kubectl get nodes -o yaml")
        simulated.refuse_unknown_nodes([node] if node else (), snapshot)
        answers = allocated.allocate_claims(snapshot.stock, chosen, node=node, strategy=strategy, budget_ms=budget_ms)
        write(
            output,
            lambda: allocated.report(answers),
            lambda: {"configuration": in_force.described(mode), "strategy": strategy, "nodes": answers.document()},
            unread=admitted.unread,
        )
        if admitted.unread:
            return Exit.UNDECIDED
        exits = {_EXITS[answer.verdict] for answer in answers.answers.values()}
        return next(code for code in _EXITS.values() if code in exits)
    with progress() as show:
        simulation = outlook.place(
            snapshot,
            admitted.state,
            admitted.refused,
            strategy=strategy,
            budget_ms=budget_ms,
            progress=lambda done, total: show(f"{strategy}: {done} of {total} pods"),
        )
    write(
        output,
        lambda: simulated.report(simulation, strategy),
        lambda: {"configuration": in_force.described(mode), "strategy": strategy, **builtins(simulation)},
        unread=admitted.unread,
    )
    if simulation.totals.undecided or admitted.unread:
        return Exit.UNDECIDED
    return Exit.REFUSED if simulation.totals.unschedulable else Exit.FINE
