"""What the nodes hand out and publish, who uses it, and what a move would free or strand. Pure.

A node keeps its device plugin for as long as one pod on it cannot move. Then whatever the plugin counts beside that pod is stranded:
the driver may not have it, and fewer and fewer pods ask the plugin for it. A node without such a pod is freed as a whole.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from cli.survey.gathered import Object, inside, is_extended, items, text
from dra.errors import QuantityError
from dra.quantity import NANO, parse
from webhook.translate import mapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dra.objects import Node
    from dra.stock import Stock
    from webhook.state import Configuration

_PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"


class PluginStock(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the device plugins hand out under one key."""

    key: str
    nodes: int
    devices: int
    moving: int  # used by pods that move, or will
    staying: int  # used by pods that do not
    freed: int  # on nodes that a move empties of this key
    stranded: int  # beside pods that stay
    mixed: tuple[str, ...] = ()  # nodes that publish the same devices to a driver


class DriverStock(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver publishes."""

    driver: str
    nodes: int
    devices: int


Use = tuple[str, str]  # node, key


def held(
    nodes: Iterable[Node],
    moving: Counter[Use],
    staying: Counter[Use],
    publishing: Mapping[str, frozenset[str]],
    configuration: Configuration,
) -> list[PluginStock]:
    """Say of every key what is handed out, used, freed and stranded."""
    handed: dict[str, dict[str, int]] = {}
    for node in nodes:
        for key, amount in node.status.allocatable.items():
            if is_extended(key) and amount.nano > 0:
                of_key = handed.setdefault(key, {})
                of_key[node.metadata.name] = amount.nano // NANO
    found: list[PluginStock] = []
    for key, amounts in sorted(handed.items()):
        drivers = _drivers(key, configuration)
        mixed = [name for name in amounts if drivers & publishing.get(name, frozenset())]
        found.append(_held(key, amounts, moving, staying, mixed))
    return found


def _held(
    key: str, amounts: Mapping[str, int], moving: Counter[Use], staying: Counter[Use], mixed: Sequence[str]
) -> PluginStock:
    freed = stranded = 0
    for name, amount in amounts.items():
        kept = staying[name, key]
        if kept:
            stranded += max(amount - kept, 0)
        else:
            freed += amount
    return PluginStock(
        key=key,
        nodes=len(amounts),
        devices=sum(amounts.values()),
        moving=sum([moving[name, key] for name in amounts]),
        staying=sum([staying[name, key] for name in amounts]),
        freed=freed,
        stranded=stranded,
        mixed=tuple(sorted(mixed)),
    )


def _drivers(key: str, configuration: Configuration) -> set[str]:
    """The drivers that publish what a key of a device plugin asks for."""
    found: set[str] = set()
    for known in configuration.resource(key):
        target = configuration.targets.get(known.row.target or known.dialect.target)
        if target is None:
            continue
        found.add(target.driver)
        if other := configuration.targets.get(target.instead):
            found.add(other.driver)
    return found


def publishing(stock: Stock) -> dict[str, frozenset[str]]:
    """Which drivers publish devices on which node."""
    found: dict[str, set[str]] = {}
    for piece in stock.slices.values():
        node = piece.spec.node_name or ""
        of_node = found.setdefault(node, set())
        of_node.add(piece.spec.driver)
    return {node: frozenset(drivers) for node, drivers in found.items()}


def published(stock: Stock) -> list[DriverStock]:
    """Count what every driver publishes."""
    devices: Counter[str] = Counter()
    nodes: dict[str, set[str]] = {}
    for piece in stock.slices.values():
        driver = piece.spec.driver
        devices[driver] += len(piece.spec.devices)
        of_driver = nodes.setdefault(driver, set())
        of_driver.add(piece.spec.node_name or "")
    found: list[DriverStock] = []
    for driver in sorted(devices):
        counted = len(nodes[driver])
        one = DriverStock(driver=driver, nodes=counted, devices=devices[driver])
        found.append(one)
    return found


def uses(pods: Iterable[Object]) -> Counter[Use]:
    """Count what pods that have a node use of the keys there: all containers, or one that comes before them."""
    used: Counter[Use] = Counter()
    for pod in pods:
        spec = mapping(pod.get("spec"))
        node = text(spec.get("nodeName"))
        if not node:
            continue
        for key, amount in _asks(spec).items():
            used[node, key] += amount
    return used


def _asks(spec: Mapping[str, object]) -> Counter[str]:
    together: Counter[str] = Counter()
    before: Counter[str] = Counter()
    for name in ("containers", "initContainers"):
        listed = spec.get(name)
        for container in map(mapping, listed if isinstance(listed, list) else ()):
            limits = _limits(container)
            if name == "containers" or container.get("restartPolicy") == "Always":
                together.update(limits)
            else:
                before |= limits
    return together | before


def _limits(container: Mapping[str, object]) -> Counter[str]:
    resources = mapping(container.get("resources"))
    found: Counter[str] = Counter()
    for key, amount in mapping(resources.get("limits")).items():
        if not is_extended(key):
            continue
        try:
            found[key] = parse(str(amount)).nano // NANO
        except QuantityError:
            continue
    return found


def is_plugin(obj: Object) -> bool:
    """Say whether a DaemonSet is a device plugin: it wants the folder in which kubelet meets them."""
    if obj.get("kind") != "DaemonSet":
        return False
    pod = inside(obj, "spec", "template", "spec")
    for volume in items(pod, "volumes"):
        path = text(inside(volume, "hostPath").get("path"))
        if path.startswith(_PLUGIN_FOLDER):
            return True
    return False
