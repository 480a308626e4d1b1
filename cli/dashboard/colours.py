"""What devices are coloured by: their state, or whose they are, by which driver, mechanism or model. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from cli.dashboard.picture import STATES, count_devices
from cli.html import SAID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cli.explain import DeviceHeld, NodeStory

STATE = "state"
CHOICES = (STATE, "namespace", "driver", "mechanism", "model")
_OWN = 7  # values that have a colour of their own; the others share the last
_FREE, _LAST, _OTHERS = "free", f"k{_OWN + 1}", "others"
_WITHOUT = {"namespace": "not held", "mechanism": "not held", "model": "no model"}


def value_of(device: DeviceHeld, by: str) -> str:
    """What a device is coloured by; "" if it has no holder, or no model is published."""
    match by:
        case "namespace":
            holders = (one.claim or next(iter(one.pods), "") for one in device.holders)
            return next((one.partition("/")[0] for one in holders if one), "")
        case "driver":
            return "device plugin" if device.state == "plugin" else device.device.partition("/")[0]
        case "mechanism":
            return "device plugin" if device.state == "plugin" else "claim" if device.holders else ""
        case "model":
            return device.model
    return device.state


class Colours(NamedTuple):
    """The class of each value, the most frequent first, and what a class stands for."""

    by: str
    classes: dict[str, str]

    def of(self, device: DeviceHeld) -> str:
        """The class of a device."""
        if self.by == STATE:
            return device.state
        value = value_of(device, self.by)
        return self.classes.get(value, _LAST) if value else _FREE

    def legend(self) -> list[tuple[str, str]]:
        """Each class with its words."""
        if self.by == STATE:
            return [(one, SAID[one]) for one in STATES if one in self.classes]
        named = [(colour, value) for value, colour in list(self.classes.items())[:_OWN]]
        others = len(self.classes) - len(named)
        without = [(_FREE, words)] if (words := _WITHOUT.get(self.by)) else []
        return [*without, *named, *([(_LAST, f"{_OTHERS}: {others}")] if others else [])]

    def counts(self, nodes: Iterable[NodeStory]) -> dict[str, int]:
        """Count devices by class; one that several nodes reach counts once."""
        if self.by == STATE:
            return count_devices(nodes)
        seen = {device.device: device for node in nodes for device in node.devices}
        counted = Counter(self.of(device) for device in seen.values())
        return {colour: counted[colour] for colour, _ in self.legend() if counted[colour]}

    def words(self, counts: dict[str, int]) -> str:
        """Say counts by class in words."""
        named = dict(self.legend()) | {_LAST: _OTHERS}
        return ", ".join(f"{number:,} {colour if self.by == STATE else named[colour]}" for colour, number in counts.items()) or "none"  # fmt: skip


def colours_of(nodes: Iterable[NodeStory], by: str) -> Colours:
    """Give the values of a fleet their classes; of a choice that there is not, those of the state."""
    if by not in CHOICES or by == STATE:
        return Colours(STATE, dict.fromkeys(count_devices(nodes), ""))
    counted = Counter(value for node in nodes for device in node.devices if (value := value_of(device, by)))
    ranked = [value for value, _ in sorted(counted.items(), key=lambda one: (-one[1], one[0]))]
    return Colours(by, {value: f"k{min(at, _OWN) + 1}" for at, value in enumerate(ranked)})
