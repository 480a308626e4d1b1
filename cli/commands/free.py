"""`drawbridge free`: the devices of each node: which are free, who holds each of the others, and since when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from analysis.capacity import count_devices, in_use
from analysis.report import Report, Rows
from cli import options
from cli.answers import write
from cli.command import declare
from cli.exits import Exit
from cli.files import InputFiles, refuse_files_and_cluster
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.capacity import NodeDevices

_NONE = "<none>"


@declare(
    "free",
    empty={"nodes": [], "unread": []},
    examples=("drawbridge free -f dump.yaml", "drawbridge free -f dump.yaml node-a -o wide"),
)
@click.argument("names", nargs=-1, metavar="[NODE]...")
@options.files(
    positional=False,
    help=options.INSTEAD_OF_CLUSTER,
)
@options.cluster_access()
@options.output("text", "wide", "json", "markdown", default="text")
def command(*, names: tuple[str, ...], files: InputFiles, kubeconfig: str, context: str, output: str) -> Exit:
    """List the devices of nodes: which are free, and since when a pod or claim holds each of the others.

    Devices of device plugins are listed by their resource name, in state `plugin`. Without -f the command reads the live cluster; it
    writes nothing. `-o wide` adds claim, share and model.
    """
    from analysis.capacity import devices_of_nodes
    from analysis.loading import HELD, Needs
    from cli.loading import read_dump, read_live
    from cluster.resources import PODS
    from dra.wire import builtins

    refuse_files_and_cluster(files, kubeconfig, context)
    reading = read_dump(files) if files else read_live(kubeconfig, context, Needs((*HELD, PODS)))
    nodes = list(devices_of_nodes(names, reading))

    write(
        output,
        lambda: _report(nodes, wide=output != "text"),
        lambda: {"nodes": builtins(nodes)},
        unread=reading.unread,
    )
    return Exit.FINE


def _report(nodes: Sequence[NodeDevices], *, wide: bool) -> Report:
    """Make a row for each device and holder, and a summary."""
    head = ("Node", "Device", "State", "Holder", "Since", *(("Claim", "Share", "Model") if wide else ()))
    rows: list[Sequence[str]] = []
    for node in nodes:
        for device in node.devices:
            for holder in device.holders or (None,):
                holders = since = claim = share = _NONE
                if holder is not None:
                    holders, since = ",".join(holder.pods) or f"claim {holder.claim}", holder.since
                    claim = holder.claim or _NONE
                    share = ",".join(f"{resource}={amount}" for resource, amount in holder.share.items()) or _NONE
                row = (node.node, device.device, device.state, holders, since, claim, share, device.model or _NONE)
                rows.append(row[: len(head)])
    counts = count_devices(nodes)
    unknown = counts.get("unknown", 0)  # not all claims were read
    free = counts.get("free", 0)
    also = f", {unknown} unknown" if unknown else ""
    devices = count_of(sum(counts.values()), "device")
    summary = f"{count_of(len(nodes), 'node')}: {devices}, {free} free, {in_use(counts)} in use{also}"
    return Report("Devices of nodes", (Rows(head, rows),), summary)
