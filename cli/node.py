"""On which node a command runs, and where the kubelet and the runtime look there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from cli.contract import Broken, CommandFailed, all_of

if TYPE_CHECKING:
    from cli.contract import Decorator
    from node.service import NodePaths


def on_node() -> Decorator:
    """Give a command the options that say which node this is, and which folders it has."""
    options = (
        click.option(
            "--node-name",
            metavar="NAME",
            default="",
            help="The node we run on.  [default: NODE_NAME of the environment]",
        ),
        click.option(
            "--kubelet-dir",
            metavar="DIR",
            default="/var/lib/kubelet",
            show_default=True,
            help="The kubelet's --root-dir.",
        ),
        click.option(
            "--cdi-dir",
            metavar="DIR",
            default="/var/run/cdi",
            show_default=True,
            help="Where the runtime looks for CDI files.",
        ),
    )
    return all_of(options)


def paths_on(node_name: str, kubelet_dir: str, cdi_dir: str) -> NodePaths:
    """Find the node and its folders, or say what is missing."""
    node = node_name or os.environ.get("NODE_NAME", "")
    if not node:
        raise Broken("the name of this node is not known", "give --node-name, or NODE_NAME as the DaemonSet does")
    try:
        from node.service import NodePaths
    except ImportError as error:
        raise CommandFailed(f"a package is missing: {error.name}", "install drawbridge[node]") from None
    return NodePaths(node, kubelet_dir.rstrip("/"), cdi_dir.rstrip("/"))
