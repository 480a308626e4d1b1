"""`drawbridge uninstall`: take away what is drawbridge's in a cluster, and say what stays.

The webhook configurations go first, so that no pod waits for a template that is never made. What others may use is left and named.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import contract as inputs
from cli import loop
from cli.contract import Exit

if TYPE_CHECKING:
    from cluster.protocol import Cluster


@inputs.command(
    "uninstall",
    empty={"taken": [], "left": [], "done": False},
    examples=("drawbridge uninstall", "drawbridge uninstall --yes"),
)
@inputs.option("--yes", "Take it away; without it, only say what would go.")
@inputs.option("--kinds", "Also the kinds of which objects are left, such as users' DeviceQuotas.")
@inputs.option("--namespace", "Of several installations, only what is in this namespace.", metavar="NAME")
@inputs.reached()
@inputs.output("text", "json", default="text")
def command(*, yes: bool, kinds: bool, namespace: str, kubeconfig: str, context: str, output: str) -> Exit:
    """Take away what is drawbridge's: its objects, its templates, its rules, and its labels on namespaces and nodes.

    Running pods keep their devices. What is left, and why, is said: templates that a pod waits for, kinds with objects,
    namespaces with objects of others.
    """
    from cli.uninstall import find, take

    async def look(cluster: Cluster) -> tuple[list[str], list[str]]:
        found = await find(cluster, namespace, kinds=kinds)
        # One after another: what goes first keeps new pods and templates from coming.
        return [one.what for one in found.steps if not yes or await take(cluster, one)], list(found.left)

    taken, left = loop.visit(kubeconfig, context, look, "docs/install.md")
    if output == "json":
        inputs.write_json({"taken": taken, "left": left, "done": yes})
        return Exit.FINE
    verb = "gone" if yes else "would go"
    inputs.tell([*(f"{verb}: {one}" for one in taken), *(f"stays: {one}" for one in left)])
    if not taken:
        inputs.tell(["nothing of drawbridge is left to take away"])
    elif not yes:
        inputs.tell(["nothing was changed: say --yes to take it away"])
    return Exit.FINE
