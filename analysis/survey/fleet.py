"""The devices that device plugins and drivers offer, the pods that use them, and the devices that a migration would free or strand.

A node keeps its device plugin as long as one pod on it cannot migrate. The other devices of that node are stranded: the driver must not
have them, and fewer and fewer pods request them from the plugin. A node without such a pod is freed as a whole.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from analysis.capacity import held_of_plugins
from analysis.loading import Object, inside
from dra.errors import QuantityError
from dra.objects import Pod
from dra.quantity import NANO
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.stock import Stock
    from webhook.state import Configuration


class PluginStock(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices that device plugins offer under one key."""

    key: str
    nodes: int
    devices: int
    migrating_devices: int  # used by pods that migrate
    staying_devices: int  # used by pods that do not migrate
    freed_devices: int  # on nodes on which no pod keeps this key
    stranded_devices: int  # unused, on nodes with a pod that keeps this key
    mixed_nodes: tuple[str, ...] = ()  # nodes that publish the same devices to a driver
    needed_by: tuple[str, ...] = ()  # why the plugin must not be deleted yet


class DriverStock(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver publishes."""

    driver: str
    nodes: int
    devices: int


Use = tuple[str, str]  # node, key


def plugin_stocks(
    stock: Stock, moving: Counter[Use], staying: Counter[Use], configuration: Configuration
) -> list[PluginStock]:
    """Return for every key how many devices are offered, used, freed and stranded."""
    handed: dict[str, dict[str, int]] = {}
    for node in stock.nodes.values():
        for key, amount in node.status.allocatable.items():
            if "/" in key and amount.nano > 0:
                handed.setdefault(key, {})[node.metadata.name] = amount.nano // NANO
    publishing = {(page.node_name, page.slice.spec.driver) for page in stock.every_newest_page()}
    stocks: list[PluginStock] = []
    for key, amounts in sorted(handed.items()):
        # The drivers that publish the devices of this key.
        drivers: set[str] = set()
        for known in configuration.resource(key):
            target = configuration.targets.get(known.row.target or known.dialect.target)
            if target is not None:
                drivers.add(target.driver)
                if other := configuration.targets.get(target.instead):
                    drivers.add(other.driver)
        freed = stranded = 0
        for name, count in amounts.items():
            staying_count = staying[name, key]
            if staying_count:
                stranded += max(count - staying_count, 0)
            else:
                freed += count
        plugin_stock = PluginStock(
            key=key,
            nodes=len(amounts),
            devices=sum(amounts.values()),
            migrating_devices=sum([moving[name, key] for name in stock.nodes]),
            staying_devices=sum([staying[name, key] for name in stock.nodes]),
            freed_devices=freed,
            stranded_devices=stranded,
            mixed_nodes=tuple(
                sorted(name for name in amounts if any((name, driver) in publishing for driver in drivers))
            ),
        )
        stocks.append(plugin_stock)
    return stocks


def published(stock: Stock) -> list[DriverStock]:
    """Count what every driver publishes now, in the newest generation of each pool."""
    devices: Counter[str] = Counter()
    nodes: dict[str, set[str]] = {}
    for page in stock.every_newest_page():
        driver = page.slice.spec.driver
        devices[driver] += len(page.devices)
        nodes.setdefault(driver, set()).add(page.node_name)
    return [DriverStock(driver=name, nodes=len(nodes[name]), devices=devices[name]) for name in sorted(devices)]


def uses(pods: Iterable[Object]) -> Counter[Use]:
    """Count the devices of plugins that pods have on their nodes."""
    used: Counter[Use] = Counter()
    for obj in pods:
        with suppress(WireError, QuantityError):
            pod = convert({name: inside(obj, name) for name in ("spec", "status")}, Pod)
            for key, amount in held_of_plugins(pod).items():
                used[pod.spec.node_name, key] += amount // NANO
    return used
