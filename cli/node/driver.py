"""The command `driver`: the DRA driver of one node, for hardware that is described in a file.

It runs on the node, beside the kubelet: it publishes the devices, prepares them for pods, and refuses what contradicts a claim's status
(docs/driver.md). SIGTERM ends in good order; what is prepared stays prepared.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from cli import contract as inputs
from cli import loop
from cli.contract import Broken, Exit, Failed

if TYPE_CHECKING:
    from node.inventory import DeviceInventory, Machine
    from node.service import NodePaths


@inputs.command("driver")
@click.option("--inventory", metavar="FILE", default="", help="The DeviceInventory that says what this node has.")
@click.option(
    "--discover", metavar="DRIVER", default="", help="Instead: publish under this name what sysfs tells of this node."
)
@click.option("--sysfs", metavar="DIR", default="/sys", show_default=True, help="Where --discover looks.")
@click.option("--print", "show", is_flag=True, help="Print the inventory and end.")
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
    node_name: str,
    kubelet_dir: str,
    cdi_dir: str,
    kubeconfig: str,
    context: str,
    log_level: str,
) -> Exit:
    """Publish the devices of this node and prepare them for pods, as a DRA driver."""
    from node.inventory import machine_of

    if bool(inventory) == bool(discover):
        raise Broken("what this node has is said once", "give either --inventory FILE or --discover DRIVER")
    described = inventory_in(inventory) if inventory else found_in(sysfs, discover)
    if show:
        inputs.tell(printed(described).splitlines())
        return Exit.FINE
    machine = machine_of(described)
    node = node_name or os.environ.get("NODE_NAME", "")
    if not node:
        raise Broken("nobody says which node this is", "give --node-name, or NODE_NAME as the DaemonSet does")
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
        loop.run(_serve(machine, paths, kubeconfig, context))
    except* BrokenCheckpoint as group:
        raise Failed(
            f"{paths.state(machine.driver)}/checkpoint cannot be read: {loop.first(group)}",
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


async def _serve(machine: Machine, paths: NodePaths, kubeconfig: str, context: str) -> None:
    from cluster.kubernetes import Kubernetes
    from node.service import Driver

    cluster = Kubernetes.connect(kubeconfig=kubeconfig, context=context)
    try:
        await Driver(cluster, machine, paths).run(loop.stopping())
    finally:
        await cluster.close()
