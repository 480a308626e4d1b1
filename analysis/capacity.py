"""Counts the devices and those in use, and names the holders of each. All commands and pages show these counts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from allocator.pods import requested_devices
from allocator.reports import DeviceState, device_reports
from analysis.naming import refuse_unknown_node
from dra.objects import results_of
from dra.quantity import Quantity, parse
from webhook.dialects import Role
from webhook.state import Configuration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from allocator.pods import Amounts
    from analysis.loading import Reading
    from dra.objects import DeviceRequestAllocationResult, Pod, ResourceClaim
    from dra.stock import Stock

# The states of a device, in the order in which they are shown.
STATE_TEXTS = {
    "free": "free",
    "shared": "shared, with room left",
    "held": "held",
    "plugin": "held through a device plugin",
    "blocked": "not available while its neighbours are held",
    "unknown": "not known, as not all claims were read",
}
STATES = tuple(STATE_TEXTS)
PLUGIN = "plugin"  # the state of devices that a device plugin has allocated
UNKNOWN = "unknown"
# The roles of keys that request a part of a device.
_AMOUNTS = (Role.MEMORY, Role.MEMORY_PERCENT, Role.CORES, Role.COMBINED, Role.PRIORITY)
# The roles of keys that stay with their device plugin. Whether such a key counts devices follows from its name, not from the role.
_UNCLEAR_ROLES = (Role.NONE, Role.POLICY)
_PART = re.compile(r"mem|core|percent|\bepc$", re.IGNORECASE)


class Holder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who holds a device, or a share of it, and since when."""

    claim: str
    pods: tuple[str, ...]
    since: str
    share: dict[str, str] = {}
    share_id: str = msgspec.field(name="shareID", default="")
    admin_access: bool = False


class DeviceHeld(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device of a node and its holders. Devices of a device plugin have the resource's name and the state `plugin`."""

    device: str
    state: str
    model: str = ""
    holders: tuple[Holder, ...] = ()


class NodeDevices(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices that a node can reach."""

    node: str
    devices: tuple[DeviceHeld, ...]


@lru_cache(maxsize=1024)
def is_count(key: str) -> bool:
    """Return whether a device plugin's resource counts devices, and not an amount or a percentage of a device."""
    roles = {configured.row.role for configured in Configuration().resource(key)}.difference(_UNCLEAR_ROLES)
    return roles.isdisjoint(_AMOUNTS) if roles else not _PART.search(key.partition("/")[2])


def count_devices(
    nodes: Iterable[NodeDevices], state_of: Callable[[NodeDevices, DeviceHeld], str] = lambda _, device: device.state
) -> dict[str, int]:
    """Count devices by state, or by the result of `state_of`.

    A device that several nodes reach counts once. For a device plugin, the devices that its pods hold are counted.
    """
    names: set[str] = set()
    counted: Counter[str] = Counter()
    for node in nodes:
        for device in node.devices:
            if device.state == PLUGIN:
                counted[state_of(node, device)] += sum(map(devices_of, device.holders))
            elif device.device not in names:
                names.add(device.device)
                counted[state_of(node, device)] += 1
    ordered = sorted(counted, key=lambda state: STATES.index(state) if state in STATES else len(STATES))
    return {state: counted[state] for state in ordered if counted[state]}


def devices_of(holder: Holder) -> int:
    """Return how many devices of a plugin a pod has, or 1 for a claim's device; 0 for admin access, which holds nothing."""
    if holder.claim:
        return 0 if holder.admin_access else 1
    return sum(parse(amount).whole() or 0 for key, amount in holder.share.items() if is_count(key))


def in_use(counts: Mapping[str, int]) -> int:
    """Return how many devices have a holder."""
    return sum(counts.get(state, 0) for state in ("held", "shared", PLUGIN))


def published(stock: Stock) -> dict[str, tuple[int, int]]:
    """Count what every driver publishes now, in the newest generation of each pool: nodes and devices."""
    devices: Counter[str] = Counter()
    nodes: dict[str, set[str]] = {}
    for page in stock.every_newest_page():
        driver = page.slice.spec.driver
        devices[driver] += len(page.devices)
        nodes.setdefault(driver, set()).add(page.node_name)
    return {name: (len(nodes[name]), devices[name]) for name in sorted(devices)}


def held_of_plugins(pod: Pod) -> Amounts:
    """Return the device plugins' resources that a pod on a node holds, in nano-units; nothing if a claim serves its extended resources."""
    if not pod.spec.node_name or pod.has_ended or pod.status.extended_resource_claim_status is not None:
        return {}
    return requested_devices(pod)


def since_of(claim: ResourceClaim) -> str:
    """Return when a claim was allocated."""
    allocation = claim.status.allocation
    return allocation.allocation_timestamp if allocation is not None else ""


def pods_of(claim: ResourceClaim) -> tuple[str, ...]:
    """Return the names of the pods that a claim is reserved for. Before the name of another consumer stands its resource."""
    namespace = claim.metadata.namespace or "default"
    consumers: list[str] = []
    for consumer in claim.status.reserved_for:
        prefix = "" if consumer.is_pod else f"{consumer.resource} "
        consumers.append(f"{prefix}{namespace}/{consumer.name}")
    return tuple(consumers)


def holder_of(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> Holder:
    """Return the holder that one result of a claim's allocation describes."""
    return Holder(
        claim=claim.metadata.key,
        pods=pods_of(claim),
        since=since_of(claim),
        share=texts(result.consumed_capacity),
        share_id=result.share_id or "",
        admin_access=bool(result.admin_access),
    )


def known_state(state: str, reading: Reading) -> str:
    """Return the state of a device. Without the claims, it is unknown whether a device that seems free is free."""
    return UNKNOWN if state == DeviceState.FREE and not reading.knows_claims else state


def texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    """Write amounts as they are written in manifests."""
    return {name: str(amount) for name, amount in amounts.items()}


def devices_of_nodes(node_names: Collection[str], reading: Reading) -> Iterator[NodeDevices]:
    """Yield the devices of these nodes, or if none are named, of every node with devices. Each node that reaches a device has it."""
    stock = reading.stock
    for name in node_names:
        refuse_unknown_node(name, stock)
    holders: defaultdict[tuple[str, str, str], list[Holder]] = defaultdict(list)
    for claim in stock.claims.values():
        for result in results_of(claim):
            holders[result.driver, result.pool, result.device].append(holder_of(claim, result))
    by_plugin: defaultdict[str, defaultdict[str, list[Holder]]] = defaultdict(lambda: defaultdict(list))
    for pod in reading.pods.values():
        since = next(
            (condition.last_transition_time for condition in pod.status.conditions if condition.type == "PodScheduled"),
            "",
        )
        for key, amount in held_of_plugins(pod).items():
            share = {key: str(Quantity.from_nano(amount))}
            holder = Holder(claim="", pods=(pod.metadata.key,), since=since, share=share)
            by_plugin[pod.spec.node_name][key].append(holder)
    for node in node_names or sorted(stock.nodes):
        devices = [
            DeviceHeld(
                device=f"{device.driver}/{device.pool}/{device.device}",
                state=known_state(device.state, reading),
                model=device.model,
                holders=tuple(holders[device.driver, device.pool, device.device]),
            )
            for device in device_reports(stock, node)
        ]
        devices += [
            DeviceHeld(device=key, state=PLUGIN, holders=tuple(of_key)) for key, of_key in by_plugin[node].items()
        ]
        if devices or node_names:
            yield NodeDevices(node=node, devices=tuple(devices))
