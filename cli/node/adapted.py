"""Device plugins: what is known of their devices besides, the classes that stand for their resources, and the adapter that offers them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cli import contract as inputs
from cli.contract import Broken
from cli.node.offering import Offering

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.node.offering import Rim
    from node.plugins import Facts

NAME = "plugins.drawbridge.dev"


def facts_in(path: str) -> dict[str, Facts]:
    """Read what is known of devices besides what plugins say: a map from ids."""
    if not path:
        return {}
    from node.plugins import Facts

    documents = inputs.read([path])
    if len(documents) != 1:
        raise Broken(f"{path} holds {len(documents)} objects", "put one map there, from ids to what is known of them")
    facts: dict[str, Facts] = {}
    for id_, known in documents[0].object.items():
        try:
            facts[id_] = msgspec.convert(known, Facts)
        except msgspec.ValidationError as error:
            names = ", ".join(Facts.__struct_encode_fields__)
            raise Broken(f"{path}: {id_}: {error}", f"what can be said is {names}") from None
    return facts


def tell_classes(driver: str, resources: Sequence[str]) -> None:
    """Print the classes that stand for resources."""
    import click

    from cluster.manifests import dump
    from cluster.resources import DEVICE_CLASSES
    from node.messages import RegisterRequest
    from node.plugins import VERSION, class_of, refusal

    for resource in resources:
        problem = refusal(RegisterRequest(version=VERSION, endpoint="plugin.sock", resource=resource))
        if problem:
            raise Broken(problem, "name it as the pods do, such as nvidia.com/gpu")
    click.echo(dump([DEVICE_CLASSES.plain(class_of(driver, resource)) for resource in resources]))


def adapting(path: str, name: str, facts: dict[str, Facts], sysfs: str) -> Offering:
    """Offer what the device plugins have that register in a folder."""
    folder = Path(path)
    if not folder.is_dir():
        remedy = "make it, and mount it where the plugins look for the kubelet's sockets"
        raise Broken(f"{folder} is not a folder", remedy)

    async def run(rim: Rim) -> None:
        from node.plugins import Lore, facts_of
        from node.service import Adapter, pci_devices

        found = facts_of(pci_devices(sysfs))
        lore = Lore(facts, found)
        adapter = Adapter(rim.cluster, name, folder, lore, rim.paths)
        async with adapter.driver.metrics.shown(rim.metrics):
            await adapter.run(rim.stop)

    return Offering(name, run)
