"""Where each node stands on the way from device plugins to drivers, name by name: evidence, and no decision. Pure.

A node hands a name out if its `status.allocatable` has more than none of it, and has moved if a complete pool of a driver
publishes what the name stands for there. Both at once is a danger: two pods could be given one device. Neither is every node
without such devices, and also a node that is half-way: it still knows the name, of which it has none left.
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
    """The nodes by where they stand for one name."""

    key: str
    plugin: tuple[str, ...] = ()  # hand it out
    driver: tuple[str, ...] = ()  # publish it
    both: tuple[str, ...] = ()  # do both at once
    halfway: tuple[str, ...] = ()  # have the name and none of it, and publish nothing
    neither: tuple[str, ...] = ()


def standings(nodes: Iterable[Node], fleet: Inventory, configuration: Configuration) -> tuple[NodesOfName, ...]:
    """Say where the nodes stand for each name that a DeviceClass stands for, and that a node hands out or `mixed` names."""
    by_name = {node.metadata.name: node for node in nodes}
    ordered = [by_name[name] for name in sorted(by_name)]
    keys = {name for name in fleet.extended if not name.startswith(IMPLICIT)} | configuration.file.mixed.keys()
    for node in ordered:
        keys.update(node.status.allocatable)
    found: list[NodesOfName] = []
    for key in sorted(keys):
        publishing = _publishing(key, fleet, configuration)
        if publishing is None:
            continue
        groups: dict[str, list[str]] = {}
        for node in ordered:
            group = _group(node, key, published=node.metadata.name in publishing)
            groups.setdefault(group, []).append(node.metadata.name)
        found.append(NodesOfName(key=key, **{group: tuple(names) for group, names in groups.items()}))
    return tuple(found)


def _group(node: Node, key: str, *, published: bool) -> str:
    amount = node.status.allocatable.get(key)
    if amount is not None and amount.nano > 0:
        return "both" if published else "plugin"
    if published:
        return "driver"
    # A plugin that cuts its GPUs up has other names of the same vendor, and none of this one.
    vendor = key.partition("/")[0] + "/"
    cut_up = any(other.nano > 0 for name, other in node.status.allocatable.items() if name.startswith(vendor))
    return "neither" if amount is None or cut_up else "halfway"


def _publishing(key: str, fleet: Inventory, configuration: Configuration) -> frozenset[str] | None:
    """Find the nodes that publish what a name stands for; None if no class stands for it."""
    name = fleet.extended.get(key)
    if name is not None:
        return fleet.classes[name].nodes
    target = configuration.targets.get(_target_of(key, configuration))
    if target is None:
        return None
    declared = configuration.file.classes.get(target.name, "")
    served = fleet.find(target, declared)
    if served is None:
        return frozenset() if key in configuration.file.mixed else None
    return served.kinds.get(target.name, served.nodes)


def _target_of(key: str, configuration: Configuration) -> str:
    """Name what a unit of a name is where no system claims it; "" for names that are no count of devices."""
    counting = [known for known in configuration.resource(key) if known.row.role is Role.COUNT]
    for known in counting:
        bare = configuration.vocabularies[known.dialect.name].bare
        if bare is not None:
            return bare.targets.get(key, bare.target)
    for known in counting:
        return known.row.target or known.dialect.target
    return ""
