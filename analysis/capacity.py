"""Counts the devices and those in use, and names the holders of each. All commands and pages show these counts."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from allocator.pods import requested_devices
from allocator.reports import DeviceState, device_reports
from analysis.naming import refuse_unknown_node
from dra.errors import NodeSelectorError
from dra.objects import results_of
from dra.policy import FENCE_TOLERATION
from dra.quantity import Quantity, parse
from dra.stock import PoolStatus
from node.hardware import identities_of
from webhook.dialects import Role
from webhook.state import Configuration

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping

    from allocator.pods import Amounts
    from allocator.reports import DeviceReport
    from analysis.loading import Reading
    from dra.objects import DeviceRequestAllocationResult, Node, Pod, ResourceClaim
    from dra.stock import Stock
    from node.hardware import Identity

# The states of a device, in the order in which they are shown.
STATE_TEXTS = {
    "free": "free",
    "shared": "shared, with room left",
    "held": "held",
    "plugin": "held through a device plugin",
    "blocked": "not available while its neighbours are held",
    "unusable": "held by no pod, and not available: node away, taint, or incomplete pool",
    "unknown": "not known, as not all claims were read",
}
STATES = tuple(STATE_TEXTS)
FREE = "free"
PLUGIN = "plugin"  # the state of devices that a device plugin has allocated
UNKNOWN = "unknown"
UNUSABLE = "unusable"
_COUNTED = ("used", FREE, UNKNOWN)
# The states of devices with a holder, or blocked by a device that has one.
IN_USE = frozenset(("held", "shared", PLUGIN, "blocked"))
# Taints of nodes on which no pod starts, whatever it tolerates.
_AWAY = {
    "node.kubernetes.io/not-ready": "its node is not ready",
    "node.kubernetes.io/unreachable": "its node is not ready",
    "node.kubernetes.io/out-of-service": "its node is out of service",
    "node.kubernetes.io/unschedulable": "its node is cordoned",
}
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
    # Whether no existing pod uses the claim, so that deleting the claim frees its devices.
    unused: bool = False


class DeviceHeld(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A device of a node and its holders. Devices of a device plugin have the resource's name and the state `plugin`."""

    device: str
    state: str
    model: str = ""
    # The card that the device is a part of, by its first counter set or another device with its uuid or PCI address. "" if it is a whole card.
    card: str = ""
    # Why no pod can use the device now, although no pod holds it.
    reason: str = ""
    # The devices of a device plugin that the node has, held or not.
    of_plugin: int = 0
    # The amounts that the device has, that its holders use, and that a pod can still get, by the name of the capacity.
    capacity: dict[str, str] = {}
    used: dict[str, str] = {}
    available: dict[str, str] = {}
    holders: tuple[Holder, ...] = ()


class Total(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices of one model, or of one resource of device plugins. A card that is published in several ways counts once."""

    # The driver, or the resource of device plugins.
    name: str
    model: str
    total: int
    used: int
    # The used devices of which a pod can still get a share or a partition.
    partly: int = 0
    free: int
    # The devices that no pod holds and no pod can use, by reason.
    unusable: dict[str, int] = {}
    # The devices that may be free or held, because not all claims were read.
    unknown: int = 0
    # The sums of the amounts of the devices, by the name of the capacity. Cards that are published in several ways are left out.
    capacity: dict[str, str] = {}
    used_capacity: dict[str, str] = {}
    free_capacity: dict[str, str] = {}

    @property
    def free_amounts(self) -> str:
        return "; ".join(f"{name}: {free} of {self.capacity[name]}" for name, free in self.free_capacity.items())


class NodeDevices(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The devices that a node can reach."""

    node: str
    devices: tuple[DeviceHeld, ...]
    totals: tuple[Total, ...] = ()
    # Why the devices are not known.
    reason: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether a pod could use one of the devices, and no pod uses any."""
        return any(total.free for total in self.totals) and not any(
            total.used or total.unknown for total in self.totals
        )


class Card(NamedTuple):
    """What counts as one device: a device, all devices that are parts of one card, or `number` devices of a plugin in one state."""

    node: NodeDevices
    state: str
    devices: tuple[DeviceHeld, ...]
    number: int = 1

    @property
    def holders(self) -> tuple[Holder, ...]:
        return tuple([holder for device in self.devices for holder in device.holders])

    @property
    def product(self) -> tuple[str, str]:
        """The driver and the model, or the resource of device plugins."""
        first = self.devices[0]
        return (first.device, "") if first.state == PLUGIN else (_driver(first), first.model)


@lru_cache(maxsize=1024)
def is_count(key: str) -> bool:
    """Return whether a device plugin's resource counts devices, and not an amount or a percentage of a device."""
    roles = _clear_roles(key)
    return roles.isdisjoint(_AMOUNTS) if roles else not _PART.search(key.partition("/")[2])


def _clear_roles(key: str) -> set[Role]:
    return {configured.row.role for configured in Configuration().resource(key)}.difference(_UNCLEAR_ROLES)


def cards_of(nodes: Iterable[NodeDevices]) -> Iterator[Card]:
    """Yield the cards of nodes. A device that several nodes reach counts once, if possible on a node where a pod can use it."""
    devices: dict[str, tuple[NodeDevices, DeviceHeld]] = {}
    for node in nodes:
        for device in node.devices:
            if device.state == PLUGIN:
                yield from _cards_of_plugin(node, device)
            elif device.device not in devices or devices[device.device][1].state == UNUSABLE:
                devices[device.device] = (node, device)
    cards: defaultdict[str, list[tuple[NodeDevices, DeviceHeld]]] = defaultdict(list)
    for node, device in devices.values():
        cards[device.card or device.device].append((node, device))
    for parts in cards.values():
        node, first = parts[0]
        if len(parts) == 1:
            yield Card(node, first.state, (first,))
        else:
            yield Card(node, _state_of_card({part.state for _, part in parts}), tuple([part for _, part in parts]))


def _cards_of_plugin(node: NodeDevices, device: DeviceHeld) -> Iterator[Card]:
    """Yield a card for the devices of each holder, and a card for the devices without a holder."""
    for holder in device.holders:
        yield Card(node, PLUGIN, (replace(device, holders=(holder,)),), devices_of(holder))
    if (left := device.of_plugin - sum(map(devices_of, device.holders))) > 0:
        yield Card(node, UNUSABLE if device.reason else FREE, (replace(device, holders=()),), left)


def _state_of_card(states: Collection[str]) -> str:
    """Return the state of a card from the states of its parts."""
    if len(states) == 1:
        return next(iter(states))
    if not IN_USE.isdisjoint(states):
        return "held" if {FREE, "shared"}.isdisjoint(states) else "shared"
    return next(state for state in (UNUSABLE, UNKNOWN, FREE) if state in states)


def totals(nodes: Iterable[NodeDevices]) -> list[Total]:
    """Count the devices by driver and model, and the devices of plugins by resource."""
    counted: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    partly: Counter[tuple[str, str]] = Counter()
    whole_cards: defaultdict[tuple[str, str], list[DeviceHeld]] = defaultdict(list)
    for card in cards_of(nodes):
        partly[card.product] += card.number if card.state == "shared" else 0
        group = "used" if card.state in IN_USE else card.state
        if card.state == UNUSABLE:
            group = next(part.reason for part in card.devices if part.reason)
        product = card.product
        counted[product][group] += card.number
        if len(card.devices) == 1:
            whole_cards[product] += card.devices
    return [
        Total(
            name=name,
            model=model,
            total=amounts.total(),
            used=amounts["used"],
            partly=partly[name, model],
            free=amounts["free"],
            unusable={why: number for why, number in amounts.items() if why not in _COUNTED and number},
            unknown=amounts[UNKNOWN],
            capacity=_sums(device.capacity for device in whole_cards[name, model]),
            used_capacity=_sums(device.used for device in whole_cards[name, model]),
            free_capacity=_sums(device.available for device in whole_cards[name, model]),
        )
        for (name, model), amounts in sorted(counted.items())
    ]


def _sums(amounts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Add amounts by name. A sum has the format of its first amount that is not 0."""
    by_name: defaultdict[str, list[Quantity]] = defaultdict(list)
    for of_device in amounts:
        for name, text in of_device.items():
            by_name[name].append(parse(text))
    sums: dict[str, str] = {}
    for name, quantities in by_name.items():
        first = next((quantity for quantity in quantities if quantity.nano), quantities[0])
        sums[name] = str(Quantity.from_nano(sum(quantity.nano for quantity in quantities), first.format))
    return sums


def devices_of(holder: Holder) -> int:
    """Return how many devices of a plugin a pod has, or 1 for a claim's device; 0 for admin access, which holds nothing."""
    if holder.claim:
        return 0 if holder.admin_access else 1
    return sum(parse(amount).whole() or 0 for key, amount in holder.share.items() if is_count(key))


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


def unused_claims(reading: Reading) -> frozenset[str]:
    """Return the allocated claims that no existing pod uses."""
    unused: list[str] = []
    # A dump may have the pods of some namespaces only.
    namespaces = {pod.metadata.namespace for pod in reading.pods.values()} if reading.knows_pods else set()
    for key, claim in reading.stock.claims.items():
        users = claim.status.reserved_for
        knows_pods = reading.knows_pods and (reading.is_live or (claim.metadata.namespace or "default") in namespaces)
        gone = knows_pods and not any(user.uid in reading.living or not user.is_pod for user in users)
        if claim.status.allocation is not None and (gone or not users):
            unused.append(key)
    return frozenset(unused)


def holder_of(claim: ResourceClaim, result: DeviceRequestAllocationResult, unused: Container[str]) -> Holder:
    """Return the holder that one result of a claim's allocation describes."""
    return Holder(
        claim=claim.metadata.key,
        pods=pods_of(claim),
        since=since_of(claim),
        share=texts(result.consumed_capacity),
        share_id=result.share_id or "",
        admin_access=bool(result.admin_access),
        unused=claim.metadata.key in unused,
    )


def known_state(state: str, reading: Reading) -> str:
    """Return the state of a device. Without the claims, it is unknown whether a device that seems free is free."""
    return UNKNOWN if state == DeviceState.FREE and not reading.knows_claims else state


def state_of_device(report: DeviceReport, node: Node, pool: PoolStatus, reading: Reading) -> tuple[str, str]:
    """Return the state of a device of a node, and if it is `unusable`, the reason why no pod can use it."""
    if report.state is DeviceState.SHARED and report.capacity:
        return (DeviceState.SHARED if any(left.nano for left in report.available.values()) else DeviceState.HELD), ""
    if report.state not in (DeviceState.HELD, DeviceState.SHARED):
        taints = [taint for taint in report.taints if not taint.startswith(f"{FENCE_TOLERATION.key}:")]
        in_pool = f"its pool is {pool}" if pool is not PoolStatus.OK else ""
        if reason := _away(node) or in_pool or (f"tainted {taints[0]}" if taints else ""):
            return UNUSABLE, reason
    return known_state(report.state, reading), ""


def _amounts_of(report: DeviceReport, state: str) -> Iterator[Mapping[str, Quantity]]:
    """Yield the capacity of a device, and how much of it is used and available."""
    used, available = dict[str, Quantity](), dict[str, Quantity]()
    for name, capacity in report.capacity.items():
        left = report.available[name].nano
        taken = {DeviceState.HELD: capacity.nano, DeviceState.SHARED: capacity.nano - left}.get(report.state, 0)
        used[name] = Quantity.from_nano(taken, capacity.format)
        available[name] = Quantity.from_nano(0 if state in (UNUSABLE, UNKNOWN) else left, capacity.format)
    yield from (report.capacity, used, available)


def texts(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    """Write amounts as they are written in manifests."""
    return {name: str(amount) for name, amount in amounts.items()}


def devices_of_nodes(node_names: Collection[str], reading: Reading) -> Iterator[NodeDevices]:
    """Yield the devices of these nodes, or if none are named, of every node with devices. Each node that reaches a device has it."""
    stock = reading.stock
    for name in node_names:
        refuse_unknown_node(name, stock)
    holders: defaultdict[tuple[str, str, str], list[Holder]] = defaultdict(list)
    unused = unused_claims(reading)
    for claim in stock.claims.values():
        for result in results_of(claim):
            holders[result.driver, result.pool, result.device].append(holder_of(claim, result, unused))
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
    shared_values: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}  # equal amounts of devices are one value
    for name in node_names or sorted(stock.nodes):
        node = stock.nodes[name]
        try:
            pools = {pool.id: pool.status for pool in stock.pools(name)}
        except NodeSelectorError as error:
            yield NodeDevices(node=name, devices=(), reason=f"it is not known which devices it has: {error}")
            continue
        devices: list[DeviceHeld] = []
        hardware = _hardware_of(stock, name)
        first_of: dict[Identity, str] = {}
        for report in device_reports(stock, name):
            state, reason = state_of_device(report, node, pools[report.driver, report.pool], reading)
            written = [texts(amounts) for amounts in _amounts_of(report, state)]
            capacity, used, available = [shared_values.setdefault(tuple(text.items()), text) for text in written]
            full_name = f"{report.driver}/{report.pool}/{report.device}"
            card = next((first_of[identity] for identity in hardware[full_name] if identity in first_of), report.card)
            first_of |= dict.fromkeys(hardware[full_name], card or full_name)
            devices.append(
                DeviceHeld(
                    device=full_name,
                    state=state,
                    model=report.model,
                    card=card,
                    reason=reason,
                    holders=tuple(holders[report.driver, report.pool, report.device]),
                    capacity=capacity,
                    used=used,
                    available=available,
                )
            )
        in_use = defaultdict[str, set[str]](set)  # the drivers of devices in use, by card
        for device in devices:
            in_use[device.card or device.device].update([_driver(device)] if device.state in IN_USE else ())
        devices = [
            replace(device, state="blocked")
            if device.state == FREE and in_use[device.card or device.device] - {_driver(device)}
            else device
            for device in devices
        ]
        of_plugins = {
            key: amount.whole() or 0
            for key, amount in node.status.allocatable.items()
            if is_count(key) and _clear_roles(key)
        }
        reason = _away(node)
        if not devices and not any(of_plugins.values()):  # neither a driver nor a device plugin serves the node
            of_plugins, reason = _discovered(node), "neither a driver nor a device plugin serves it"
        devices += [
            DeviceHeld(
                device=key,
                state=PLUGIN,
                reason=reason,
                of_plugin=of_plugins.get(key, 0),
                holders=tuple(by_plugin[name][key]),
            )
            for key in by_plugin[name] | of_plugins
            if by_plugin[name][key] or of_plugins[key]
        ]
        if devices or node_names:
            node_devices = NodeDevices(node=name, devices=tuple(devices))
            yield replace(node_devices, totals=tuple(totals((node_devices,))))


def _driver(device: DeviceHeld) -> str:
    return device.device.partition("/")[0]


def _discovered(node: Node) -> dict[str, int]:
    """Return the devices that a node has by its capacity or the labels of GPU feature discovery, by the key of a device plugin."""
    count = node.metadata.labels.get("nvidia.com/gpu.count", "")
    labelled = {"nvidia.com/gpu": int(count)} if count.isdecimal() else {}
    counted = {key: amount.whole() or 0 for key, amount in node.status.capacity.items() if is_count(key)}
    return labelled | {key: amount for key, amount in counted.items() if amount and _clear_roles(key)}


def _hardware_of(stock: Stock, node: str) -> defaultdict[str, list[Identity]]:
    """Return the uuid and the PCI address of each device that a node reaches. A partition has those of its card, too."""
    hardware: defaultdict[str, list[Identity]] = defaultdict(list)
    for pool in stock.pools(node):
        for device in chain.from_iterable([page.devices for page in pool.accessible]):
            identities = [identity for identity in identities_of(device) if identity[0] in ("uuid", "pci")]
            hardware["/".join((*pool.id, device.name))] = identities
    return hardware


def _away(node: Node) -> str:
    """Return why no pod starts on a node; "" if pods can start."""
    keys = ["node.kubernetes.io/unschedulable"] if node.spec.unschedulable else []
    return next((_AWAY[key] for key in [*keys, *[taint.key for taint in node.spec.taints]] if key in _AWAY), "")
