"""`drawbridge uninstall`: removes drawbridge from a cluster, and lists what stays.

The webhook configurations are removed first, so that no new pod waits for a template. Objects that others may use stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.report import Report, Screen
from cli import loop, options
from cli.answers import write
from cli.command import declare
from cli.exits import Exit

if TYPE_CHECKING:
    from cluster.protocol import Cluster


@declare("uninstall", examples=("drawbridge uninstall", "drawbridge uninstall --yes"))
@options.option("--yes", "Remove the objects. Without it they are only listed.")
@options.option("--kinds", "Also remove CustomResourceDefinitions with objects, such as users' DeviceQuotas.")
@options.option("--namespace", "Remove only the installation in this namespace.", metavar="NAME")
@options.cluster_access()
@options.output("text", "json", default="text")
def command(*, yes: bool, kinds: bool, namespace: str, kubeconfig: str, context: str, output: str) -> Exit:
    """Remove drawbridge: its objects, templates and rules, and its labels on namespaces and nodes.

    Running pods keep their devices. The objects that stay are listed with the reason: templates that a pod waits for, CRDs with
    objects, namespaces with other objects.
    """
    from cli.uninstall import execute, find

    async def look(cluster: Cluster) -> tuple[list[str], list[str]]:
        plan = await find(cluster, namespace, kinds=kinds)
        # The order matters: once the webhook configurations are removed, no new templates are created.
        return [step.description for step in plan.steps if not yes or await execute(cluster, step)], list(plan.left)

    removed, remaining = loop.visit(kubeconfig, context, look, "docs/install.md")
    verb = "removed" if yes else "would remove"
    lines = [*(f"{verb}: {step}" for step in removed), *(f"stays: {step}" for step in remaining)]
    summary = "" if yes else "nothing was changed: use --yes to remove these objects"
    if not removed:
        summary = "no objects of drawbridge to remove"
    write(
        output,
        lambda: Report("Uninstallation", (Screen(lines),), summary),
        lambda: {"removedObjects": removed, "remainingObjects": remaining, "changed": yes and bool(removed)},
    )
    return Exit.FINE
