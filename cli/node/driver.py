"""The command `driver`: the DRA driver of one node, for hardware that is described in a file.

It runs on the node, beside the kubelet: it publishes the devices, prepares them for pods, and refuses what contradicts a claim's status
(docs/driver.md). SIGTERM ends in good order; what is prepared stays prepared.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from cli import contract as inputs
from cli import loop
from cli.contract import Broken, Exit, Failed
from cli.node.adapted import NAME, facts_in, tell_classes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from cluster import Cluster
    from node.inventory import DeviceInventory
    from node.plugins import Facts
    from node.service import NodePaths


@inputs.command("driver")
@click.option("--inventory", metavar="FILE", default="", help="The DeviceInventory that says what this node has.")
@click.option(
    "--discover", metavar="DRIVER", default="", help="Instead: publish under this name what sysfs tells of this node."
)
@click.option("--sysfs", metavar="DIR", default="/sys", show_default=True, help="Where --discover and --adapt look.")
@click.option("--print", "show", is_flag=True, help="Print the inventory and end.")
@click.option(
    "--adapt", metavar="DIR", default="", help="Or: be the kubelet to device plugins whose sockets are there."
)
@click.option(
    "--facts", metavar="FILE", default="", help="With --adapt: what plugins do not tell of their devices, by id."
)
@click.option(
    "--driver-name", metavar="NAME", default=NAME, show_default=True, help="With --adapt: our name as a driver."
)
@click.option(
    "--classes",
    metavar="RESOURCE",
    multiple=True,
    help="Print the DeviceClass that stands for a resource of a plugin, and end. May be repeated.",
)
@click.option(
    "--node-name", metavar="NAME", default="", help="The node we run on. Default: NODE_NAME of the environment."
)
@click.option(
    "--kubelet-dir", metavar="DIR", default="/var/lib/kubelet", show_default=True, help="The kubelet's --root-dir."
)
@click.option(
    "--cdi-dir", metavar="DIR", default="/var/run/cdi", show_default=True, help="Where the runtime looks for CDI files."
)
@click.option("--kubeconfig", metavar="FILE", default="", help="Default: the cluster we run in, else kubectl's.")
@click.option("--context", metavar="NAME", default="", help="A context of the kubeconfig.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(
    *,
    inventory: str,
    discover: str,
    sysfs: str,
    show: bool,
    adapt: str,
    facts: str,
    driver_name: str,
    classes: tuple[str, ...],
    node_name: str,
    kubelet_dir: str,
    cdi_dir: str,
    kubeconfig: str,
    context: str,
    log_level: str,
) -> Exit:
    """Publish the devices of this node and prepare them for pods, as a DRA driver.

    They are described in a file, found in sysfs, or told by device plugins, which go on as they are (docs/driver.md, docs/adapter.md).
    """
    if classes:
        tell_classes(driver_name, classes)
        return Exit.FINE
    if sum(map(bool, (inventory, discover, adapt))) != 1:
        raise Broken(
            "what this node has is said once", "give either --inventory FILE, --discover DRIVER or --adapt DIR"
        )
    described = inventory_in(inventory) if inventory else found_in(sysfs, discover) if discover else None
    if show:
        if described is None:
            raise Broken("device plugins tell what they have while they run", "leave --print out")
        inputs.tell(printed(described).splitlines())
        return Exit.FINE
    node = node_name or os.environ.get("NODE_NAME", "")
    if not node:
        raise Broken("nobody says which node this is", "give --node-name, or NODE_NAME as the DaemonSet does")
    offering = _described(described) if described else _adapting(Path(adapt), driver_name, facts_in(facts), sysfs)
    try:
        from node.service import NodePaths
    except ImportError as error:
        raise Failed(f"a package is missing: {error.name}", "install drawbridge[node]") from None
    from cluster.errors import ClusterError
    from node.checkpoint import Broken as BrokenCheckpoint
    from webhook.service import log

    log.configure(log_level)
    paths = NodePaths(node, kubelet_dir.rstrip("/"), cdi_dir.rstrip("/"))
    try:
        loop.run(_serve(offering, paths, kubeconfig, context))
    except* BrokenCheckpoint as group:
        raise Failed(
            f"{paths.state(offering.name)}/checkpoint cannot be read: {loop.first(group)}",
            "drain the node, so that no pod has a device of ours, and remove the file; or start the version that wrote it",
        ) from None
    except* (ClusterError, OSError) as group:
        raise Failed(str(loop.first(group))) from None
    return Exit.FINE


def inventory_in(path: str) -> DeviceInventory:
    """Read the one inventory of a file."""
    from cluster.manifests import InputProblem, ManifestError
    from node.inventory import read

    documents = inputs.read([path])
    if len(documents) != 1:
        raise Broken(f"{path} holds {len(documents)} objects", "put the one DeviceInventory of this node there")
    [document] = documents
    found, problems = read(document.object)
    if found is None:
        told: list[InputProblem] = []
        for problem in problems:
            file, line, column = document.place_of(problem.path)
            told.append(InputProblem(file, problem.message, problem.hint, line, column, problem.path))
        raise ManifestError(told)
    return found


def found_in(sysfs: str, driver: str) -> DeviceInventory:
    """Describe what sysfs tells of this node."""
    from node.inventory import discovered, machine_of, unpublishable
    from node.service import numa_nodes, pci_devices

    found = discovered(driver, pci_devices(sysfs), numa_nodes(sysfs))
    wrong = [problem.message for problem in unpublishable(machine_of(found))]
    if wrong:
        raise Broken("; ".join(wrong), "print it (--print), correct it, and give it as --inventory")
    return found


def printed(inventory: DeviceInventory) -> str:
    """Write an inventory as a file that --inventory reads."""
    from cluster.manifests import dump
    from dra.wire import builtins

    plain = builtins(inventory)
    head = {"apiVersion": plain.pop("apiVersion"), "kind": plain.pop("kind")}
    return dump([head | _without_defaults(plain)])


def _without_defaults(value: Any) -> Any:
    """Leave out what says nothing, at every depth."""
    if isinstance(value, dict):
        kept = {key: _without_defaults(member) for key, member in value.items()}
        return {key: member for key, member in kept.items() if member not in (None, "", [], {})}
    return [_without_defaults(one) for one in value] if isinstance(value, list) else value


class _Offering(NamedTuple):
    """Whose devices these are, and what runs them until it is told to stop."""

    name: str
    run: Callable[[Cluster, NodePaths, asyncio.Event], Awaitable[None]]


def _described(inventory: DeviceInventory) -> _Offering:
    from node.inventory import machine_of

    machine = machine_of(inventory)

    async def run(cluster: Cluster, paths: NodePaths, stop: asyncio.Event) -> None:
        from node.service import Driver

        await Driver(cluster, machine, paths).run(stop)

    return _Offering(machine.driver, run)


def _adapting(folder: Path, name: str, facts: dict[str, Facts], sysfs: str) -> _Offering:
    if not folder.is_dir():
        raise Broken(f"{folder} is no folder", "make it, and mount it where the plugins look for the kubelet's sockets")

    async def run(cluster: Cluster, paths: NodePaths, stop: asyncio.Event) -> None:
        from node.plugins import Lore, facts_of
        from node.service import Adapter, pci_devices

        plugged_in = pci_devices(sysfs)
        found = facts_of(plugged_in)
        adapter = Adapter(
            cluster,
            name,
            folder,
            Lore(facts, found),
            paths,
        )
        await adapter.run(stop)

    return _Offering(name, run)


async def _serve(offering: _Offering, paths: NodePaths, kubeconfig: str, context: str) -> None:
    from cluster.kubernetes import Kubernetes

    cluster = Kubernetes.connect(kubeconfig=kubeconfig, context=context)
    try:
        await offering.run(cluster, paths, loop.stopping())
    finally:
        await cluster.close()
