"""`drawbridge matrix`: which devices of a pool can be in use together, what keeps the others apart, and who is in use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import contract as inputs
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.explain import Scene
    from cli.matrix.fleet import PoolMatrix
    from dra.stock import Pool, Stock


@inputs.command("matrix", empty={"pools": [], "unread": []})
@inputs.files(
    required=False, help="Slices, nodes and rules, or a dump of a cluster, instead of a live cluster. May be repeated."
)
@inputs.reached()
@click.option("--node", metavar="NAME", help="Only pools that this node can reach.")
@click.option("--pool", "pools", multiple=True, metavar="DRIVER/POOL|POOL", help="Only this pool. May be repeated.")
@click.option("--counter-set", "sets", multiple=True, metavar="NAME", help="Only devices that draw on this counter set. May be repeated.")  # fmt: skip
@inputs.server()
@inputs.output("text", "json", "svg", "html", default="text")
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
    """Say for every two devices of a pool whether they can be in use together, name the rule in the way, and say who is in use.

    Reads ResourceSlice, Node, DeviceCompatibility and ResourceClaim objects, of a live cluster if no files are named; nothing is ever
    written. What is in use now changes no cell; the matrix is about devices two by two. Pools that look alike are shown once.
    """
    from cli.configuration import server_named
    from cli.explain import for_server
    from cli.matrix.fleet import judge

    if files or kubernetes:
        server_named(kubernetes, feature_gates)  # a misspelt one is told before anything is read
    if files and (kubeconfig or context):
        raise Broken("files are read, or a cluster", "leave -f out, or --kubeconfig and --context")
    scene = for_server(_scene(files, kubeconfig, context), kubernetes, feature_gates)
    wanted = _choose(_reachable(scene.stock, node), pools)
    _print(judge(wanted, scene.stock, sets), scene, output)
    return Exit.FINE


def _scene(files: Sequence[str], kubeconfig: str, context: str) -> Scene:
    from cli.explain import HELD, read_dump, visit

    return read_dump(files) if files else visit(kubeconfig, context, kinds=HELD)


def _reachable(stock: Stock, node: str | None) -> dict[str, Pool]:
    """The pools that a node can reach, or any, by driver/pool."""
    from dra.errors import NodeSelectorError

    if node and node not in stock.nodes:
        raise Broken(f"no Node {node} in what was read", f"there are: {_few(list(stock.nodes))}")
    reachable: dict[str, Pool] = {}
    looking = [node] if node else list(stock.nodes)
    try:
        every = [pool for name in looking for pool in stock.pools(name)]
    except NodeSelectorError as error:
        raise Broken(str(error), "no node can be told what it reaches: mend this slice, or leave it out") from None
    for pool in every:
        reachable.setdefault("/".join(pool.id), pool)
    in_order = sorted(reachable)
    return {name: reachable[name] for name in in_order}


def _choose(reachable: dict[str, Pool], wanted: Sequence[str]) -> list[Pool]:
    chosen: list[Pool] = []
    for name, pool in reachable.items():
        if not wanted or name in wanted or pool.id[1] in wanted:
            chosen.append(pool)
    if not chosen:
        have = _few(list(reachable)) if reachable else "none that one of the given nodes can reach"
        raise Broken("no pool to look at", f"there are: {have}")
    return chosen


def _few(names: Sequence[str]) -> str:
    most = 20
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def _print(judged: Sequence[PoolMatrix], scene: Scene, output: str) -> None:
    from cli.matrix import drawing, page, table
    from cli.matrix.fleet import likenesses
    from dra.wire import builtins

    for one in scene.unread:
        inputs.warn(f"not read: {one.kind}: {one.reason}")
    kinds = likenesses(judged)
    match output:
        case "json":
            inputs.write_json({"pools": [builtins(one) for one in judged], "unread": builtins(list(scene.unread))})
        case "svg":
            click.echo(drawing.draw(kinds), nl=False)
        case "html":
            click.echo(page.page(kinds, scene.unread), nl=False)
        case _:
            inputs.tell(table.lines(kinds, inputs.width()))
