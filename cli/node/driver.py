"""The command `driver`: the DRA driver of one node, for devices that are described, found, or told by device plugins.

It runs on the node, beside the kubelet: it publishes the devices, prepares them for pods, and refuses what contradicts a claim's status
(docs/driver.md). SIGTERM ends in good order; what is prepared stays prepared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import contract as inputs
from cli import loop
from cli.contract import AddressType, Broken, Exit, Failed
from cli.node.adapted import NAME, adapting, facts_in, tell_classes
from cli.node.inventories import described, found_in, inventory_in, printed
from cli.node.place import on_node, paths_on

if TYPE_CHECKING:
    from cli.node.offering import Offering
    from node.service import NodePaths
    from runtime.http import Address

WAYS = "either --inventory FILE, --discover DRIVER or --adapt DIR"


@inputs.command("driver")
@click.option("--inventory", metavar="FILE", default="", help="One way: devices that this DeviceInventory describes.")
@click.option(
    "--discover", metavar="DRIVER", default="", help="Another: devices that sysfs tells of, under this driver's name."
)
@click.option(
    "--adapt",
    metavar="DIR",
    default="",
    help="A third: devices of device plugins, which find our socket in DIR and take us for the kubelet.",
)
@click.option(
    "--print",
    "show",
    is_flag=True,
    help="With --inventory or --discover: print the inventory and end; no node is needed.",
)
@click.option("--sysfs", metavar="DIR", default="/sys", show_default=True, help="Where --discover and --adapt look.")
@click.option(
    "--facts", metavar="FILE", default="", help="With --adapt: what plugins do not tell of their devices, by id."
)
@click.option(
    "--driver-name",
    metavar="NAME",
    default=NAME,
    show_default=True,
    help="With --adapt or --classes: our name as a driver.",
)
@click.option(
    "--classes",
    metavar="RESOURCE",
    multiple=True,
    help="Print the DeviceClass by which pods that ask for a plugin's RESOURCE find it, and end. May be repeated.",
)
@on_node()
@click.option(
    "--metrics-listen", type=AddressType(), help="Where to show metrics and answer probes.  [default: nowhere]"
)
@inputs.reached()
@inputs.log_level()
def command(
    *,
    inventory: str,
    discover: str,
    adapt: str,
    show: bool,
    sysfs: str,
    facts: str,
    driver_name: str,
    classes: tuple[str, ...],
    node_name: str,
    kubelet_dir: str,
    cdi_dir: str,
    metrics_listen: Address | None,
    kubeconfig: str,
    context: str,
    log_level: str,
) -> Exit:
    """Publish the devices of this node and prepare them for pods, as a DRA driver.

    What the node has is said in one of three ways: --inventory, --discover (docs/driver.md) or --adapt (docs/adapter.md).
    """
    if classes:
        tell_classes(driver_name, classes)
        return Exit.FINE
    if sum(map(bool, (inventory, discover, adapt))) != 1:
        raise Broken("what this node has is said once", f"give {WAYS}")
    if not adapt and (facts or driver_name != NAME):
        raise Broken(
            "--facts and --driver-name are about device plugins", "give them with --adapt DIR, or leave them out"
        )
    if show and adapt:
        raise Broken("device plugins tell what they have while they run", "leave --print out")
    if adapt:
        offering = adapting(adapt, driver_name, facts_in(facts), sysfs)
    else:
        found = inventory_in(inventory) if inventory else found_in(sysfs, discover)
        if show:
            inputs.tell(printed(found).splitlines())
            return Exit.FINE
        offering = described(found)
    paths = paths_on(node_name, kubelet_dir, cdi_dir)
    from webhook.service import log

    log.configure(log_level)
    run(offering, paths, metrics_listen, kubeconfig=kubeconfig, context=context)
    return Exit.FINE


def run(offering: Offering, paths: NodePaths, metrics: Address | None, *, kubeconfig: str, context: str) -> None:
    """Run a driver to its end, or say why that could not be."""
    from cluster.errors import ClusterError
    from node.checkpoint import Broken as BrokenCheckpoint

    try:
        loop.run(_serve(offering, paths, metrics, kubeconfig=kubeconfig, context=context))
    except* BrokenCheckpoint as group:
        raise Failed(
            f"{paths.state(offering.name)}/checkpoint cannot be read: {loop.first(group)}",
            "drain the node, so that no pod has a device of ours, and remove the file; or start the version that wrote it",
        ) from None
    except* (ClusterError, OSError) as group:
        raise Failed(str(loop.first(group))) from None


async def _serve(
    offering: Offering, paths: NodePaths, metrics: Address | None, *, kubeconfig: str, context: str
) -> None:
    from cli.node.offering import Rim
    from cluster.kubernetes import Kubernetes

    cluster = Kubernetes.connect(kubeconfig=kubeconfig, context=context)
    try:
        await offering.run(Rim(cluster, paths, metrics, loop.stopping()))
    finally:
        await cluster.close()
