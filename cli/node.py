"""The preconditions of commands that run on a node: the node's name, and the packages of the extra `node`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from analysis.errors import Broken, Failed

if TYPE_CHECKING:
    from node.service import NodePaths


def check_node(paths: NodePaths) -> None:
    """Raise if the node's name or a package is missing."""
    if not paths.node:
        raise Broken("the name of this node is unknown", "give --node-name, or set NODE_NAME as the DaemonSet does")
    try:
        import_module("node.service.driver")
    except ImportError as error:
        raise Failed(f"a package is missing: {error.name}", "install drawbridge[node]") from None
