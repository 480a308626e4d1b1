"""Groups the nodes by how they serve a resource: by a device plugin, by a driver, or by both.

A node has a device plugin for a resource if its `status.allocatable` has more than zero of the resource. It has a driver if a complete pool
publishes such devices on the node. A node with both is dangerous, because two pods could get the same device. While a node migrates, it has
neither, and its `status.allocatable` still has the resource with amount zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dra.objects import IMPLICIT
from webhook.dialects import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.objects import Node
    from webhook.state import Configuration, Inventory


class NodesOfName(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The nodes by how they serve one resource."""

    key: str
    plugin: tuple[str, ...] = ()  # by a device plugin
    driver: tuple[str, ...] = ()  # by a driver
    both: tuple[str, ...] = ()  # by both at once
    plugin_without_devices: tuple[str, ...] = ()  # by neither; status.allocatable has the resource with amount zero
    neither: tuple[str, ...] = ()  # by neither; all other nodes


def group_nodes(nodes: Iterable[Node], fleet: Inventory, configuration: Configuration) -> tuple[NodesOfName, ...]:
    """Group the nodes for each resource that a DeviceClass serves.

    The resources are those that classes serve by name, those that are allocatable on a node, and those in `mixed`.
    """
    by_name = {node.metadata.name: node for node in nodes}
    ordered = [by_name[name] for name in sorted(by_name)]
    keys = {name for name in fleet.extended if not name.startswith(IMPLICIT)} | configuration.file.mixed.keys()
    for node in ordered:
        keys.update(node.status.allocatable)
    resources: list[NodesOfName] = []
    for key in sorted(keys):
        publishing = _publishing(key, fleet, configuration)
        if publishing is None:
            continue
        vendor = key.partition("/")[0] + "/"
        groups: dict[str, list[str]] = {}
        for node in ordered:
            allocatable = node.status.allocatable
            amount = allocatable.get(key)
            published = node.metadata.name in publishing
            if amount is not None and amount.nano > 0:
                group = "both" if published else "plugin"
            elif published:
                group = "driver"
            elif amount is None or any(
                quantity.nano > 0 for name, quantity in allocatable.items() if name.startswith(vendor)
            ):
                # A device plugin that partitions its GPUs reports zero of this resource, and other resources of the vendor.
                group = "neither"
            else:
                group = "plugin_without_devices"
            groups.setdefault(group, []).append(node.metadata.name)
        resources.append(NodesOfName(key=key, **{group: tuple(names) for group, names in groups.items()}))
    return tuple(resources)


def _publishing(key: str, fleet: Inventory, configuration: Configuration) -> frozenset[str] | None:
    """Find the nodes that publish the devices of a resource; None if no DeviceClass serves it."""
    class_name = fleet.extended.get(key)
    if class_name is not None:
        return fleet.classes[class_name].nodes
    # If several dialects have the key, its target is the kind of device that a unit is if nothing shows another meaning (`BareKey`).
    count_rows = [known for known in configuration.resource(key) if known.row.role is Role.COUNT]
    count_rows.sort(key=lambda known: configuration.vocabularies[known.dialect.name].bare is None)
    target_names = [known.row.target or known.dialect.target for known in count_rows]
    target = configuration.targets.get(target_names[0]) if target_names else None
    if target is None:
        return None
    device_class = fleet.find_class(target, configuration.file.classes.get(target.name, ""))
    if device_class is None:
        return frozenset() if key in configuration.file.mixed else None
    return device_class.kinds.get(target.name, device_class.nodes)
