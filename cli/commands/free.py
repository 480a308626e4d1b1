"""`drawbridge free`: the devices of each node: which are free, who holds each of the others, and since when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from analysis.report import Report, Rows
from cli import options
from cli.answers import write
from cli.command import declare
from cli.exits import Exit
from cli.files import FLEET_KINDS, refuse_without_fleet
from dra.texts import count_of, list_first

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.capacity import NodeDevices, Total
    from analysis.report import Cell
    from cli.files import InputFiles

_NAMED = 10  # idle nodes, and pods of a node
_DELETED = ("the deleted pod", "the deleted pods")


@declare("free", examples=("drawbridge free -f dump.yaml", "drawbridge free -f dump.yaml node-a --together"))
@click.argument("names", nargs=-1, metavar="[NODE]...")
@options.files(
    positional=False,
    help=options.INSTEAD_OF_CLUSTER,
)
@options.cluster_access()
@click.option("--together", is_flag=True, help="Print instead which devices of each pool can be in use together.")
@options.output("text", "wide", "json", "markdown", default="text")
def command(
    *, names: tuple[str, ...], files: InputFiles, kubeconfig: str, context: str, together: bool, output: str
) -> Exit:
    """Count the devices of nodes that are in use and free; with names of nodes, list their devices, with holders.

    First comes a table of totals by driver and model: used, free, and not usable although no pod holds them, with the reasons. Without
    names, a row for each node follows.
    On an idle node no device is in use, and at least one is usable. Devices of device plugins are listed by their resource name, in state
    `plugin`. Without -f the command reads the live cluster; it writes nothing. `-o wide` lists the devices of all nodes, with claim, share and model. `--together` is for
    authors of drivers: for each pair of devices, whether both can be in use, or what keeps them apart.
    """
    from analysis.capacity import devices_of_nodes, totals
    from analysis.loading import HELD, Needs
    from analysis.matrix import build_matrices, group_equal, reachable, report
    from cli.loading import read_dump, read_live
    from cluster.resources import PODS
    from dra.wire import builtins

    reading = read_dump(files) if files else read_live(kubeconfig, context, Needs((*HELD, PODS)))
    if files:
        refuse_without_fleet(reading.objects, FLEET_KINDS)
    nodes = list(devices_of_nodes(names, reading))
    by_model = totals(nodes)
    stock = reading.stock
    matrices = build_matrices(reachable(stock, [node.node for node in nodes]).values(), stock) if together else []

    write(
        output,
        lambda: (
            report(group_equal(matrices))
            if together
            else _report(nodes, by_model, of_devices=bool(names) or output != "text", wide=output != "text")
        ),
        lambda: {
            "nodes": builtins(nodes),
            "totals": builtins(by_model),
            "idleNodes": [node.node for node in nodes if node.is_idle],
            "together": builtins(matrices),
        },
        unread=reading.unread,
    )
    return Exit.FINE


def _report(nodes: Sequence[NodeDevices], by_model: Sequence[Total], *, of_devices: bool, wide: bool) -> Report:
    """Make a summary, and a row for each model and for each node, or with `of_devices` for each device and holder."""
    counted = [
        (
            total.name,
            total.model,
            total.total,
            total.used,
            total.free,
            total.free_amounts,
            sum(total.unusable.values()),
            ", ".join(
                [f"{number} {reason}" for reason, number in total.unusable.items()]
                + [f"{total.unknown} not known, as not all claims were read"] * bool(total.unknown)
            ),
        )
        for total in by_model
    ]
    sums = _sums(by_model)
    partly = sum(total.partly for total in by_model)
    room = {"in use": f" ({partly} with room left)" if partly else ""}
    counts = [f"{sums[what]} {what}{room.get(what, '')}" for what in sums if sums[what] or what in {"in use", "free"}]
    summary = f"{count_of(len(nodes), 'node')}: {count_of(sum(sums.values()), 'device')}, {', '.join(counts)}"
    titles = ("Devices of", "Model", "Total", "Used", "Free", "Free amounts", "Not usable", "Why")
    idle = [node.node for node in nodes if node.is_idle]
    listed = f"{count_of(len(idle), 'idle node')}: {list_first(idle, len(idle) if wide else _NAMED)}" if idle else ""
    of_nodes = _devices(nodes, wide=wide) if of_devices else _nodes(nodes)
    return Report("Devices of nodes", (Rows(titles, counted, "Totals"), of_nodes, listed), summary)


def _sums(totals: Sequence[Total]) -> dict[str, int]:
    """Count devices by state."""
    return {
        "in use": sum(total.used for total in totals),
        "free": sum(total.free for total in totals),
        "not usable": sum(sum(total.unusable.values()) for total in totals),
        "unknown": sum(total.unknown for total in totals),
    }


def _nodes(nodes: Sequence[NodeDevices]) -> Rows:
    """Make a row for each node."""
    rows: list[Sequence[Cell]] = []
    for node in nodes:
        models = node.reason or ", ".join(f"{total.total} {total.model or total.name}" for total in node.totals)
        pods = dict.fromkeys(pod for device in node.devices for holder in device.holders for pod in holder.pods)
        used, free, *others = _sums(node.totals).values()
        rows.append(
            (node.node, models, used, free, *(number or "" for number in others), list_first(list(pods), _NAMED))
        )
    return Rows(("Node", "Devices", "In use", "Free", "Not usable", "Unknown", "Held by"), rows, "Nodes")


def _devices(nodes: Sequence[NodeDevices], *, wide: bool) -> Rows:
    """Make a row for each device and holder."""
    head = ("Node", "Device", "State", "Holder", "Since", *(("Claim", "Share", "Model") if wide else ()))
    rows: list[Sequence[str]] = []
    for node in nodes:
        for device in node.devices:
            state = f"{device.state}: {device.reason}" if device.reason else device.state
            for holder in device.holders or (None,):
                holders = since = claim = share = ""
                if holder is not None:
                    holders, since, claim = (
                        ", ".join(holder.pods) or f"claim {holder.claim}",
                        holder.since,
                        holder.claim,
                    )
                    if holder.unused and holder.pods:
                        holders = f"claim {claim}, reserved for {_DELETED[len(holder.pods) > 1]} {holders}"
                    share = ",".join(f"{resource}={amount}" for resource, amount in holder.share.items())
                row = (node.node, device.device, state, holders, since, claim, share, device.model)
                rows.append(row[: len(head)])
    return Rows(head, rows, "Devices")
