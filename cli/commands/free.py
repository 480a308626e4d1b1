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
    from cli.files import InputFiles

_NONE = "<none>"
_NAMED = 10  # idle nodes


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
    """List the devices of nodes: which are free, and since when a pod or claim holds each of the others.

    First comes a table of totals by driver and model: used, free, and not usable although no pod holds them, with the reasons.
    On an idle node no device is in use, and at least one is usable. Devices of device plugins are listed by their resource name, in state
    `plugin`. Without -f the command reads the live cluster; it writes nothing. `-o wide` adds claim, share and model. `--together` is for
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
        lambda: report(group_equal(matrices)) if together else _report(nodes, by_model, wide=output != "text"),
        lambda: {
            "nodes": builtins(nodes),
            "totals": builtins(by_model),
            "idleNodes": [node.node for node in nodes if node.is_idle],
            "together": builtins(matrices),
        },
        unread=reading.unread,
    )
    return Exit.FINE


def _report(nodes: Sequence[NodeDevices], by_model: Sequence[Total], *, wide: bool) -> Report:
    """Make a row for each model, a row for each device and holder, and a summary."""
    counted = [
        (
            total.name,
            total.model or _NONE,
            total.total,
            total.used,
            total.free,
            total.free_amounts or _NONE,
            sum(total.unusable.values()),
            ", ".join(
                [f"{number} {reason}" for reason, number in total.unusable.items()]
                + [f"{total.unknown} not known, as not all claims were read"] * bool(total.unknown)
            )
            or _NONE,
        )
        for total in by_model
    ]
    head = ("Node", "Device", "State", "Holder", "Since", *(("Claim", "Share", "Model") if wide else ()))
    rows: list[Sequence[str]] = []
    for node in nodes:
        for device in node.devices:
            state = f"{device.state}: {device.reason}" if device.reason else device.state
            for holder in device.holders or (None,):
                holders = since = claim = share = _NONE
                if holder is not None:
                    holders, since = ",".join(holder.pods) or f"claim {holder.claim}", holder.since
                    if holder.unused and holder.pods:
                        holders = f"claim {holder.claim} of {holders}, which is gone"
                    claim = holder.claim or _NONE
                    share = ",".join(f"{resource}={amount}" for resource, amount in holder.share.items()) or _NONE
                row = (node.node, device.device, state, holders, since, claim, share, device.model or _NONE)
                rows.append(row[: len(head)])
    sums = {
        "in use": sum(total.used for total in by_model),
        "free": sum(total.free for total in by_model),
        "not usable": sum(sum(total.unusable.values()) for total in by_model),
        "unknown": sum(total.unknown for total in by_model),
    }
    partly = sum(total.partly for total in by_model)
    room = {"in use": f" ({partly} with room left)" if partly else ""}
    said = ", ".join(
        f"{sums[what]} {what}{room.get(what, '')}" for what in sums if sums[what] or what in {"in use", "free"}
    )
    summary = f"{count_of(len(nodes), 'node')}: {count_of(sum(sums.values()), 'device')}, {said}"
    titles = ("Devices of", "Model", "Total", "Used", "Free", "Free amounts", "Not usable", "Why")
    idle = [node.node for node in nodes if node.is_idle]
    listed = f"{count_of(len(idle), 'idle node')}: {list_first(idle, len(idle) if wide else _NAMED)}" if idle else ""
    return Report("Devices of nodes", (Rows(titles, counted, "Totals"), Rows(head, rows, "Devices"), listed), summary)
