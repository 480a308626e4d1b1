"""`drawbridge matrix`: which devices of a pool can be in use together, the rules against the others, and their holders."""

from __future__ import annotations

import click

from cli import contract as inputs
from cli.contract import Broken, Exit
from dra.texts import list_first

_NAMED = 20


@inputs.command(
    "matrix",
    empty={"pools": [], "unread": []},
    examples=("drawbridge matrix -f dump.yaml", "drawbridge matrix -f fleet.yaml --node train-1"),
)
@inputs.files(
    required=False, help="Slices, nodes and rules, or a dump of a cluster, instead of a live cluster. May be repeated."
)
@inputs.reached()
@click.option("--node", metavar="NAME", help="Only pools that are accessible from this node.")
@inputs.option("--pool", "Only this pool. May be repeated.", metavar="DRIVER/POOL|POOL", multiple=True, called="pools")
@click.option("--counter-set", "sets", multiple=True, metavar="NAME", help="Only devices that draw on this counter set. May be repeated.")  # fmt: skip
@inputs.server()
@inputs.output("text", "json", "svg", "markdown", "html", default="text")
def command(
    *,
    files: tuple[str, ...],
    kubeconfig: str,
    context: str,
    node: str | None,
    pools: tuple[str, ...],
    sets: tuple[str, ...],
    kubernetes: str,
    feature_gates: str,
    output: str,
) -> Exit:
    """Show for every two devices of a pool whether they can be in use together, the rule against it, and the claims that hold devices.

    Reads ResourceSlice, Node, DeviceCompatibility and ResourceClaim objects from files or a live cluster; nothing is written. Claims change
    no cell: a cell is about two devices, held or free. Equal pools are shown once.
    """
    from analysis.configuration import server_named
    from analysis.loading import HELD, Needs, for_server, read_dump, visit
    from analysis.matrix import draw, group_equal, judge, reachable, report
    from dra.wire import builtins

    if files or kubernetes:
        server_named(kubernetes, feature_gates)  # fails before the cluster is read
    inputs.refuse_files_and_cluster(files, kubeconfig, context)
    reading = read_dump(files) if files else visit(kubeconfig, context, Needs(HELD))
    reading = for_server(reading, kubernetes, feature_gates)
    from dra.errors import NodeSelectorError

    if node and node not in reading.stock.nodes:
        raise Broken(
            f"no Node {node} in the input", f"nodes: {list_first(list(reading.stock.nodes), _NAMED) or 'none'}"
        )
    try:
        reachable_pools = reachable(reading.stock, [node] if node else reading.stock.nodes)
    except NodeSelectorError as error:
        raise Broken(str(error), "correct the node selector of this ResourceSlice, or leave the slice out") from None
    chosen = [pool for name, pool in reachable_pools.items() if not pools or name in pools or pool.id[1] in pools]
    if not chosen:
        have = list_first(list(reachable_pools), _NAMED) or "none that is accessible from the given nodes"
        if not reading.stock.slices:
            raise Broken("no ResourceSlice in the input", "add the slices: kubectl get resourceslices -o yaml")
        raise Broken("no pool matches", f"pools: {have}")
    judged = judge(chosen, reading.stock, sets)
    kinds = group_equal(judged)
    inputs.write(
        output,
        lambda: report(kinds, inputs.width()),
        lambda: {"pools": builtins(judged)},
        picture=lambda: draw(kinds),
        unread=reading.unread,
    )
    return Exit.FINE
