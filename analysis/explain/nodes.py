"""What each node has and who holds it: devices that drivers publish, and what a device plugin has handed out. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from allocator.pods import requests
from allocator.reports import node_report
from analysis.explain.claims import holder_of, known_state
from analysis.naming import NotThere, advice, nearest
from analysis.explain.stories import DeviceHeld, Holder, NodeStory
from analysis.loading import is_extended
from dra.objects import results_of
from dra.quantity import Quantity

PLUGIN = "plugin"  # the state of what a device plugin has handed out

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from analysis.loading import Scene
    from dra.stock import Stock


def refuse_unknown_node(name: str, stock: Stock) -> None:
    """Raise NotThere for a node that there is not."""
    if name not in stock.nodes:
        names = list(stock.nodes)
        raise NotThere(f"there is no node {name!r}", advice(nearest(name, names), names))


def node_stories(wanted: Collection[str], scene: Scene) -> Iterator[NodeStory]:
    """Yield the story of nodes by name, or of every node that has devices; each node that reaches a device has it."""
    stock = scene.stock
    for name in wanted:
        refuse_unknown_node(name, stock)
    holders: defaultdict[tuple[str, str, str], list[Holder]] = defaultdict(list)
    for claim in stock.claims.values():
        for result in results_of(claim):
            holders[result.driver, result.pool, result.device].append(holder_of(claim, result))
    by_plugin: defaultdict[str, defaultdict[str, list[Holder]]] = defaultdict(lambda: defaultdict(list))
    for pod in scene.pods.values():
        # What a running pod has by the name of an extended resource, where no claim serves it.
        if not pod.spec.node_name or pod.has_ended or pod.status.extended_resource_claim_status is not None:
            continue
        since = next((one.last_transition_time for one in pod.status.conditions if one.type == "PodScheduled"), "")
        for key, amount in requests(pod).items():
            if amount and is_extended(key):
                share = {key: str(Quantity.from_nano(amount))}
                holder = Holder(claim="", pods=(pod.metadata.key,), since=since, share=share)
                by_plugin[pod.spec.node_name][key].append(holder)
    for node in wanted or sorted(stock.nodes):
        devices = [
            DeviceHeld(
                device=f"{one.driver}/{one.pool}/{one.device}",
                state=known_state(one.state, scene),
                model=one.model,
                holders=tuple(holders[one.driver, one.pool, one.device]),
            )
            for one in node_report(stock, node).devices
        ]
        devices += [
            DeviceHeld(device=key, state=PLUGIN, holders=tuple(of_key)) for key, of_key in by_plugin[node].items()
        ]
        if devices or wanted:
            yield NodeStory(node=node, devices=tuple(devices))
