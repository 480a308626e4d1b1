"""`drawbridge simulate`: schedules the pending pods of a snapshot, or replays a workload under several strategies.

Reads files only. A workload is a document of kind Workload in the input (docs/simulate.md), or is generated.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from analysis.configuration import configuration_in_force, given_configuration, server_named
from cli import contract as inputs
from cli.contract import Broken, Exit
from cli.strategies import HELP, print_strategies, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from allocator.simulation import Snapshot, Workload

_COUNTED = ("pods", "placed", "unschedulable", "undecided", "devices", "utilisation", "fragmentation")
EMPTY: dict[str, Any] = {
    "configuration": {"source": "", "mode": ""},
    "strategy": "",
    "pods": [],
    "totals": dict.fromkeys(_COUNTED, 0),
}


@inputs.command(
    "simulate",
    empty=EMPTY,
    examples=(
        "drawbridge simulate -f fleet.yaml -f deploy/",
        "drawbridge simulate --generate mig --pods 10 --strategy all",
    ),
)
@inputs.files(required=False)
@inputs.config()
@inputs.mode_option()
@click.option("--strategy", "strategies", multiple=True, metavar="NAME", help="How to choose nodes and devices [default: first-fit]; `help` lists the strategies. A workload takes several, or `all`.")  # fmt: skip
@click.option("--budget-ms", type=click.IntRange(min=1), metavar="N", help="Search each node for about N ms (counted in steps), then answer undecided.")  # fmt: skip
@click.option("--remove-node", "removed", multiple=True, metavar="NODE", help="Remove a node, and place its pods again. May be repeated.")  # fmt: skip
@click.option("--add-nodes", "added", multiple=True, metavar="NODE=N", help="Add N idle nodes like NODE. May be repeated.")  # fmt: skip
@click.option("--generate", type=click.Choice(("mig", "shares", "pairs")), help="Replay a generated workload instead of files.")  # fmt: skip
@click.option("--seed", type=int, default=1, show_default=True, help="With --generate: the same seed gives the same workload.")  # fmt: skip
@click.option("--nodes", type=click.IntRange(min=1), default=4, show_default=True, help="With --generate.")
@click.option("--pods", type=click.IntRange(min=1), default=400, show_default=True, help="With --generate.")
@click.option("--load", type=inputs.Number(0.01), default=1.0, show_default=True, help="With --generate: the average demand, as a multiple of the fleet.")  # fmt: skip
@click.option("--patience", type=inputs.Number(0), metavar="T", help="In a workload: pods that wait longer than this leave.")  # fmt: skip
@inputs.server()
@inputs.output("text", "json", "svg", "markdown", "html", default="text")
def command(
    *,
    files: tuple[str, ...],
    config: str,
    mode: str | None,
    strategies: tuple[str, ...],
    budget_ms: int | None,
    removed: tuple[str, ...],
    added: tuple[str, ...],
    generate: str | None,
    seed: int,
    nodes: int,
    pods: int,
    load: float,
    patience: float | None,
    kubernetes: str,
    feature_gates: str,
    output: str,
) -> Exit:
    """Schedule the pending pods of a snapshot, or replay a workload.

    Pods without a node and the pods of workloads pass the webhook first, which translates or refuses them. A snapshot is any set of Node,
    Pod, ResourceClaim, ResourceClaimTemplate, ResourceSlice, DeviceClass, DeviceTaintRule, DeviceCompatibility, DeviceQuota and
    PodDisruptionBudget objects. Pods are placed by priority, creation and name; devices of one pod are not free for the next.
    """
    from allocator.simulation import KINDS
    from allocator.strategies import DEFAULT, STRATEGIES
    from analysis import outlook, simulated
    from dra.wire import builtins

    if HELP in strategies:
        print_strategies()
        return Exit.FINE
    if bool(generate) == bool(files):
        raise Broken(
            "nothing to simulate" if not files else "-f excludes --generate",
            "give -f FILE or --generate KIND",
        )
    source = click.get_current_context().get_parameter_source
    for name in ("seed", "nodes", "pods", "load"):
        if files and source(name) is ParameterSource.COMMANDLINE:
            raise Broken(f"--{name} needs --generate, and files are read", "leave one of them out")
    if "all" in strategies:
        chosen = list(STRATEGIES)
    else:
        refuse_unknown(strategies)
        chosen = list(dict.fromkeys(strategies)) or [DEFAULT]
    given = given_configuration(config)
    server = server_named(kubernetes, feature_gates)
    workload: Workload | None
    snapshot: Snapshot | None = None
    refused: dict[str, str] = {}
    if generate:
        make = KINDS[generate]
        workload = make(random.Random(seed).random, nodes=nodes, pods=pods, load=load)  # noqa: S311  a simulation, not a secret
        in_force = configuration_in_force(given)
    else:
        workload, snapshot, refused, in_force = simulated.read(files, given, mode, server)
    if (removed or added) and snapshot is None:
        raise Broken("a workload excludes --remove-node and --add-nodes", "leave them out")
    if workload is not None:
        return _replay(workload, chosen, budget_ms, patience, output)
    assert snapshot is not None
    snapshot = simulated.change_nodes(snapshot, removed, added)
    if len(chosen) > 1:
        raise Broken("a snapshot is scheduled under one strategy", "give --strategy once")
    strategy = chosen[0]
    with inputs.progress() as show:
        found = outlook.place(
            snapshot,
            in_force.configuration,
            refused,
            strategy=strategy,
            budget_ms=budget_ms,
            progress=partial(_progress, show, strategy),
        )
    inputs.write(
        output,
        lambda: simulated.report(found, strategy, snapshot.stock),
        lambda: {"configuration": in_force.described(mode), "strategy": strategy, **builtins(found)},
        picture=lambda: simulated.draw_fleet(found, snapshot.stock),
    )
    if found.totals.undecided:
        return Exit.UNDECIDED
    return Exit.REFUSED if found.totals.unschedulable else Exit.FINE


def _progress(show: Callable[[str], None], strategy: str, done: int, of: int) -> None:
    show(f"{strategy}: {done} of {of} pods")


def _replay(
    workload: Workload, strategies: Sequence[str], budget_ms: int | None, patience: float | None, output: str
) -> Exit:
    from allocator.one_node import options_within
    from allocator.simulation import replay
    from analysis import outlook, simulated
    from dra.wire import builtins

    found = []
    with inputs.progress() as show:
        for strategy in strategies:
            replayed = replay(
                workload.stock,
                workload.arrivals,
                strategy=strategy,
                ask=outlook.claim_allocator(strategy, options_within(budget_ms)),
                patience=patience,
                progress=partial(_progress, show, strategy),
            )
            found.append(replayed)
    inputs.write(
        output,
        lambda: simulated.report_of_replays(workload.name, found),
        lambda: {"workload": workload.name, "strategies": {one.strategy: builtins(one) for one in found}},
        picture=lambda: simulated.draw_replays(workload.name, found),
    )
    return Exit.REFUSED if any(one.never for one in found) else Exit.FINE
