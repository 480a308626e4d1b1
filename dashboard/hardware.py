"""The hardware of a node, drawn to scale and grouped by its place on the bus: how much of each card is held, and how much is free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from allocator.strategies import room, units
from dashboard.colours import text_of
from dashboard.html import concatenated, el, link, strip, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dashboard.html import Html
    from dra.objects import Device, DeviceRequestAllocationResult
    from dra.stock import Stock

# Where a device is plugged in, the nearest first.
_PLACES: Final = (
    ("resource.kubernetes.io/pcieRoot", "PCIe root"),
    ("resource.kubernetes.io/numaNode", "NUMA node"),
    ("dra.net/numaNode", "NUMA node"),
)
_CARDS, _PARTS, _NAMED = 100, 20, 5  # the most that is shown: cards on a page, parts drawn separately, claims named


class PartHeld(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a card that a claim holds; `part` is from 0 to 1."""

    device: str
    claim: str
    part: float
    # Whether other claims can have the rest of the device.
    shared: bool


class HardwareUsage(msgspec.Struct, frozen=True, kw_only=True):
    """A card, or other hardware that a driver partitions: where it is plugged in, which parts of it are held, and how much is free."""

    name: str
    place: str
    parts: tuple[PartHeld, ...]
    free: float


def hardware_of(stock: Stock, node: str) -> tuple[HardwareUsage, ...]:
    """List the hardware of a node in the order of its places on the bus."""
    cards: list[HardwareUsage] = []
    for pool in stock.pools(node):
        for unit in units(pool):
            parts = {part.device.name: part for part in unit.parts}
            held_parts: list[PartHeld] = []
            for claim, results in stock.results.get(pool.id, {}).items():
                for result in results:
                    part = parts.get(result.device)
                    if part is None or result.admin_access:
                        continue
                    size = round(part.size * _share(result, part.device), 4)
                    held_parts.append(
                        PartHeld(device=result.device, claim=claim, part=size, shared=bool(result.share_id))
                    )
            name = "/".join((*pool.id, unit.name))
            free = round(room(unit, stock.use(pool.id)).free, 4)
            attributes = unit.parts[0].device.attributes
            places = (f"{word} {value}" for name, word in _PLACES if (value := text_of(attributes.get(name))))
            cards.append(HardwareUsage(name=name, place=next(places, ""), parts=tuple(held_parts), free=free))
    return tuple(sorted(cards, key=lambda card: card.place or "~"))


def _share(result: DeviceRequestAllocationResult, device: Device) -> float:
    """Return the share of a device that a claim has: the mean over the capacities that it consumes."""
    if not result.share_id or not result.consumed_capacity:
        return 1.0
    shares = [
        amount.nano / device.capacity[key].value.nano
        for key, amount in result.consumed_capacity.items()
        if key in device.capacity and device.capacity[key].value.nano
    ]
    return sum(shares) / len(shares) if shares else 1.0


def page_of(cards: Iterable[HardwareUsage]) -> Iterator[Html]:
    """Draw the hardware of a node, one row for each place."""
    shown = list(cards)
    rows: dict[str, list[Html]] = {}
    for card in shown[:_CARDS]:
        parts = [
            (
                held_part.part,
                "shared" if held_part.shared else "held",
                f"{held_part.device}: {held_part.part:.0%}, claim {held_part.claim}",
            )
            for held_part in card.parts[:_PARTS]
        ]
        if parts_left := card.parts[_PARTS:]:
            parts.append(
                (sum(held_part.part for held_part in parts_left), "shared", f"{len(parts_left):,} more claims")
            )
        held_fraction = sum(part for part, *_ in parts)
        blocked = max(0.0, 1.0 - held_fraction - card.free)
        parts += [(blocked, "blocked", f"{blocked:.0%} not available"), (card.free, "free", f"{card.free:.0%} free")]
        summary = f"{card.name}: {held_fraction:.0%} held, {card.free:.0%} free"
        claim_links: list[object] = []
        for held_part in card.parts[:_NAMED]:
            claim_links += [" ", link(held_part.claim, "claims", *held_part.claim.split("/", 1))]
        drawn = strip([part for part in parts if part[0] > 0], summary)
        rows.setdefault(card.place, []).append(el("div", drawn, el("small", summary, *claim_links), class_="unit"))
    if not rows:
        return
    yield el("h2", "To scale")
    yield table(
        ("Plugged in at", "Hardware"),
        [(location or "not published", concatenated(cards)) for location, cards in rows.items()],
    )
    if len(shown) > _CARDS:
        yield el("p", f"and {len(shown) - _CARDS:,} more", class_="soft")
