"""Inventories: read from a file, found in sysfs, printed, and offered by the reference driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli import contract as inputs
from cli.contract import Broken
from cli.node.offering import Offering

if TYPE_CHECKING:
    from cli.node.offering import Rim
    from node.inventory import DeviceInventory


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


def described(inventory: DeviceInventory) -> Offering:
    """Offer what an inventory describes."""
    from node.inventory import machine_of

    machine = machine_of(inventory)

    async def run(rim: Rim) -> None:
        from node.service import Driver

        driver = Driver(rim.cluster, machine, rim.paths)
        async with driver.metrics.shown(rim.metrics):
            await driver.run(rim.stop)

    return Offering(machine.driver, run)
