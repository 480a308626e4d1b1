"""`drawbridge driver`: a DRA driver for one node. Its devices come from a DeviceInventory, from sysfs, or from device plugins.

It runs beside the kubelet, publishes the devices, prepares them for pods, and refuses requests that contradict the claim's
status (docs/node.md). On SIGTERM it finishes the calls in progress, then exits; prepared claims stay prepared.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from analysis.errors import Broken, Failed
from cli import loop, options
from cli.command import declare
from cli.exits import Exit
from cli.files import InputFiles, read_input_files
from cli.node import check_node
from cli.output import print_lines
from cli.server_options import options_of
from node.service import NodePaths

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from cluster import Cluster
    from cluster.manifests import Document
    from node.inventory import DeviceInventory
    from node.plugins import Facts
    from node.service import Adapter, Driver
    from serving.http import Address

NAME = "plugins.drawbridge.dev"


@declare(
    "driver",
    examples=(
        "drawbridge driver --discover gpu.example.com --print",
        "drawbridge driver --adapt /var/lib/kubelet/adapted-plugins --node-name node-a",
    ),
)
@options.option("--inventory", "Serve the devices that this DeviceInventory describes.", metavar="FILE")
@options.option("--discover", "Serve the devices found in sysfs, under this driver name.", metavar="DRIVER")
@options.option(
    "--adapt",
    "Serve the devices of device plugins, which register at our kubelet.sock in DIR.",
    metavar="DIR",
)
@options.option(
    "--print", "With --inventory or --discover: print the inventory and exit; no node is needed.", called="show"
)
@options.option("--sysfs", "The sysfs of --discover and --adapt.", metavar="DIR", default="/sys")
@options.option(
    "--facts", "With --adapt: a file with facts that device plugins do not report, by device id.", metavar="FILE"
)
@options.option("--driver-name", "With --adapt or --classes: the driver name.", metavar="NAME", default=NAME)
@options.option(
    "--classes",
    "Print the DeviceClass for pods that request a plugin's RESOURCE, and exit. May be repeated.",
    metavar="RESOURCE",
    multiple=True,
)
@options_of(NodePaths, "paths")
@options.metrics_listen(None)
@options.cluster_access()
@options.log_level()
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
    paths: NodePaths,
    metrics_listen: Address | None,
    kubeconfig: str,
    context: str,
    log_level: str,
) -> Exit:
    """Publish the devices of this node and prepare them for pods, as a DRA driver.

    Give one source of devices: --inventory, --discover or --adapt (docs/node.md).
    """
    if classes:
        print_classes(driver_name, classes)
        return Exit.FINE
    if sum(map(bool, (inventory, discover, adapt))) != 1:
        raise Broken(
            "one source of devices is needed", "give either --inventory FILE, --discover DRIVER or --adapt DIR"
        )
    if not adapt and (facts or driver_name != NAME):
        raise Broken("--facts and --driver-name need --adapt", "add --adapt DIR, or leave both options out")
    if show and adapt:
        raise Broken("--print excludes --adapt: device plugins report their devices at run time", "leave --print out")
    folder = Path(adapt)
    if adapt:
        if not folder.is_dir():
            remedy = "create the folder, and mount it where the plugins expect the kubelet's sockets"
            raise Broken(f"{folder} is not a folder", remedy)
        known_facts = facts_in(facts)
        name = driver_name
    else:
        inventory_read = inventory_in(inventory) if inventory else found_in(sysfs, discover)
        if show:
            print_lines(printed(inventory_read).splitlines())
            return Exit.FINE
        name = inventory_read.driver
    check_node(paths)
    from node.checkpoint import BrokenCheckpoint
    from node.inventory import machine_of
    from node.plugins import FactSources, facts_of
    from node.service import Adapter, Driver, discover_devices, pci_devices
    from webhook.service import log

    log.configure(log_level)

    async def serve(cluster: Cluster, stop: asyncio.Event) -> None:
        served: Adapter | Driver
        if adapt:
            served = Adapter(cluster, name, folder, FactSources(known_facts, facts_of(pci_devices(sysfs))), paths)
        else:
            again = (lambda: machine_of(discover_devices(sysfs, discover))) if discover else None
            served = Driver(cluster, machine_of(inventory_read), paths, discover=again)
        async with served.metrics.serving(metrics_listen):
            await served.run(stop)

    try:
        loop.serve(kubeconfig, context, serve)
    except* BrokenCheckpoint as group:
        raise Failed(
            f"{paths.state(name)}/checkpoint cannot be read: {loop.first_exception(group)}",
            "drain the node and remove the file, or start the version of drawbridge that wrote the file",
        ) from None
    return Exit.FINE


def _only_document_in(path: str, remedy: str) -> Document:
    documents = read_input_files(InputFiles((path,)))
    if len(documents) != 1:
        raise Broken(f"{path} holds {len(documents)} objects (expected one)", remedy)
    return documents[0]


def inventory_in(path: str) -> DeviceInventory:
    """Read the DeviceInventory in a file."""
    from cluster.manifests import InputProblem, ManifestError
    from node.inventory import read_inventory

    document = _only_document_in(path, "give the DeviceInventory of this node")
    inventory, problems = read_inventory(document.object)
    if inventory is None:
        located: list[InputProblem] = []
        for problem in problems:
            file, line, column = document.place_of(problem.path)
            located.append(InputProblem(file, problem.message, problem.remedy, line, column, problem.path))
        raise ManifestError(located)
    return inventory


def found_in(sysfs: str, driver: str) -> DeviceInventory:
    """Make a DeviceInventory from sysfs."""
    from node.inventory import machine_of, unpublishable
    from node.service import discover_devices

    inventory = discover_devices(sysfs, driver)
    wrong = [problem.message for problem in unpublishable(machine_of(inventory))]
    if wrong:
        raise Broken("; ".join(wrong), "print the inventory (--print), correct it, and give it as --inventory")
    return inventory


def printed(inventory: DeviceInventory) -> str:
    """Write an inventory as a file that --inventory reads."""
    from cluster.manifests import dump
    from dra.wire import builtins

    plain = builtins(inventory)
    head = {"apiVersion": plain.pop("apiVersion"), "kind": plain.pop("kind")}
    return dump([head | _without_defaults(plain)])


def _without_defaults(value: Any) -> Any:
    """Leave out empty values, at every depth."""
    if isinstance(value, dict):
        members = {key: _without_defaults(member) for key, member in value.items()}
        return {key: member for key, member in members.items() if member not in (None, "", [], {})}
    return [_without_defaults(item) for item in value] if isinstance(value, list) else value


def facts_in(path: str) -> dict[str, Facts]:
    """Read facts about devices that plugins do not report, by device id."""
    if not path:
        return {}
    from node.plugins import Facts

    facts: dict[str, Facts] = {}
    for id_, known in _only_document_in(path, "give one map from device ids to facts").object.items():
        try:
            facts[id_] = msgspec.convert(known, Facts)
        except msgspec.ValidationError as error:
            names = ", ".join(Facts.__struct_encode_fields__)
            raise Broken(f"{path}: {id_}: {error}", f"fields: {names}") from None
    return facts


def print_classes(driver: str, resources: Sequence[str]) -> None:
    """Print the DeviceClass of each extended resource."""
    from cluster.manifests import dump
    from cluster.resources import DEVICE_CLASSES
    from node.messages import RegisterRequest
    from node.plugins import VERSION, class_of, refusal

    for resource in resources:
        problem = refusal(RegisterRequest(version=VERSION, endpoint="plugin.sock", resource=resource))
        if problem:
            raise Broken(problem, "name the resource as pods do, such as nvidia.com/gpu")
    click.echo(dump([DEVICE_CLASSES.plain(class_of(driver, resource)) for resource in resources]))
