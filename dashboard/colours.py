"""Colours devices by state, health, the holder's namespace or owner, driver, mechanism, model, or a published attribute."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from analysis.capacity import PLUGIN, STATE_TEXTS, STATES
from dashboard.picture import count_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from analysis.capacity import Card, NodeDevices
    from analysis.loading import Reading
    from dra.objects import Device, DeviceAttribute
    from dra.stock import Stock

STATE = "state"
CHOICES = (STATE, "health", "namespace", "owner", "driver", "mechanism", "model")
MAX_VALUES = 50  # devices cannot be coloured by an attribute with more values
_OWN = 7  # values that have a colour of their own; all other values share the last colour
_FREE, _LAST, _OTHERS, _PLUGIN = "free", f"k{_OWN + 1}", "others", "device plugin"
_WITHOUT = {
    "health": "no taint",
    "namespace": "not held",
    "owner": "not held by a workload",
    "mechanism": "not held",
    "model": "no model",
}


class Colours(NamedTuple):
    """What devices are coloured by (`by`), and the CSS class of each value, the most frequent value first."""

    by: str
    classes: dict[str, str]
    # For health and attributes, the value of each device by name; for owners, the owner of each pod by key.
    known: dict[str, str] = {}

    def css_class(self, card: Card) -> str:
        """Return the CSS class of a card."""
        if self.by == STATE:
            return card.state
        value = self.value(card)
        return self.classes.get(value, _LAST) if value else _FREE

    def value(self, card: Card) -> str:
        """Return the value by which a card is coloured; "" without a holder or without the attribute."""
        is_plugin = card.devices[0].state == PLUGIN
        match self.by:
            case "namespace":
                holders = (holder.claim or next(iter(holder.pods), "") for holder in card.holders)
                return next((holder.partition("/")[0] for holder in holders if holder), "")
            case "owner":
                pods = (pod for holder in card.holders for pod in holder.pods)
                return next((owner for pod in pods if (owner := self.known.get(pod))), "")
            case "driver":
                return _PLUGIN if is_plugin else card.product[0]
            case "mechanism":
                if not card.holders:
                    return ""
                both = len({device.state == PLUGIN for device in card.node.devices if device.holders}) > 1
                return f"{_PLUGIN if is_plugin else 'claim'}{', on a node with both' if both else ''}"
            case "model":
                return card.product[1]
        return next((value for device in card.devices if (value := self.known.get(device.device))), "")

    def legend(self) -> list[tuple[str, str]]:
        """Return each class with its text."""
        if self.by == STATE:
            return [(state, STATE_TEXTS[state]) for state in STATES if state in self.classes]
        named = [(colour, value) for value, colour in list(self.classes.items())[:_OWN]]
        others = len(self.classes) - len(named)
        words = _WITHOUT.get(self.by, "" if self.by == "driver" else f"no {self.by}")
        return [*([(_FREE, words)] if words else []), *named, *([(_LAST, f"{others} {_OTHERS}")] if others else [])]

    def counts(self, nodes: Iterable[NodeDevices]) -> dict[str, int]:
        """Count devices by class."""
        counted = count_devices(nodes, self.css_class)
        return {colour: counted[colour] for colour, _ in self.legend() if counted.get(colour)}

    def words(self, counts: dict[str, int]) -> str:
        """Return the counts of classes as text."""
        named = dict(self.legend()) | {_LAST: _OTHERS}
        return ", ".join(f"{number:,} {colour if self.by == STATE else named[colour]}" for colour, number in counts.items()) or "none"  # fmt: skip


def colours_of(nodes: Iterable[NodeDevices], by: str, reading: Reading) -> Colours:
    """Assign a class to each value in the fleet. If `by` is not a known choice, colour by state."""
    known: dict[str, str] = {}
    if by == "health":
        known = dict(_published(reading.stock, _taints_of))
    elif by == "owner":
        for key, pod in reading.pods.items():
            if owner := pod.metadata.controller:
                known[key] = f"{owner.kind} {key.partition('/')[0]}/{owner.name}"
    elif by not in CHOICES:
        known = dict(_published(reading.stock, lambda device: text_of(device.attributes.get(by))))
    if by == STATE or (by not in CHOICES and not known):
        return Colours(STATE, dict.fromkeys(count_devices(nodes), ""))
    without_classes = Colours(by, {}, known)
    counted = count_devices(nodes, without_classes.value)
    ranked = sorted(filter(None, counted), key=lambda value: (-counted[value], value))
    return without_classes._replace(classes={value: f"k{min(rank, _OWN) + 1}" for rank, value in enumerate(ranked)})


def _published(stock: Stock, value_of: Callable[[Device], str]) -> Iterator[tuple[str, str]]:
    for page in stock.every_newest_page():
        pool = "/".join(page.pool)
        for device in page.devices:
            if value := value_of(device):
                yield f"{pool}/{device.name}", value


def _taints_of(device: Device) -> str:
    return ", ".join(sorted({f"{taint.key} ({taint.effect})" for taint in device.taints}))


def text_of(attribute: DeviceAttribute | None) -> str:
    """Return an attribute with one value as text; "" if it has several values or none."""
    if attribute is None:
        return ""
    values = (attribute.int_, attribute.bool_, attribute.string, attribute.version)
    return next(
        (str(value).lower() if value is attribute.bool_ else str(value) for value in values if value is not None), ""
    )


def attributes_of(stock: Stock) -> tuple[str, ...]:
    """List the attributes by which devices can be coloured: those with at least two values, and at most MAX_VALUES."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    for page in stock.every_newest_page():
        for device in page.devices:
            for name, attribute in device.attributes.items():
                known = values[name]
                if len(known) <= MAX_VALUES and (value := text_of(attribute)):
                    known.add(value)
    return tuple(sorted(name for name, texts in values.items() if 1 < len(texts) <= MAX_VALUES and name not in CHOICES))
