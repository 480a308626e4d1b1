"""On which node a command runs, and where the kubelet and the runtime look there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cli.contract import Broken, CommandFailed, all_of, option

if TYPE_CHECKING:
    from cli.contract import Decorator
    from node.service import NodePaths


def on_node() -> Decorator:
    """Give a command the options that say which node this is, and which folders it has."""
    options = (
        option("--node-name", "The node we run on.  [default: NODE_NAME of the environment]", metavar="NAME"),
        option("--kubelet-dir", "The kubelet's --root-dir.", metavar="DIR", default="/var/lib/kubelet"),
        option(
            "--cdi-dir",
            "Where the runtime looks for CDI files.",
            metavar="DIR",
            default="/var/run/cdi",
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
