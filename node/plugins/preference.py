"""In which order a plugin would hand out its devices: it is asked which two it would give together, then which three, and so on.

The kubelet asks for each container. Here the devices are chosen before the node hears of it, so what the plugin prefers has to stand in what is published:
allocators take the first devices that do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.messages import OneChoice
from node.plugins.offered import HEALTHY

if TYPE_CHECKING:
    from node.messages import PluginDevice, PreferenceResponse

# A question each; beyond that many the rest stays in the plugin's own order.
MOST_QUESTIONS = 16


class Preference:
    """The order of a plugin's devices, as far as it is known."""

    def __init__(self, devices: tuple[PluginDevice, ...]) -> None:
        self._devices = {one.id: one for one in devices}
        self._available = tuple(one.id for one in devices if one.health == HEALTHY)
        self._first: list[str] = []
        self._over = False

    def next_choice(self) -> OneChoice | None:
        """Say what to ask next; None when nothing more is to be learned."""
        size = len(self._first) + 1
        if self._over or size >= len(self._available) or size > MOST_QUESTIONS:
            return None
        return OneChoice(available=self._available, included=tuple(self._first), size=size)

    def learn(self, answer: PreferenceResponse) -> None:
        """Take an answer; one that cannot be used ends the questions."""
        chosen = answer.containers[0].ids if len(answer.containers) == 1 else ()
        new = [one for one in chosen if one in self._available and one not in self._first]
        if len(new) != 1:
            self._over = True
        else:
            self._first += new

    def ordered(self) -> tuple[PluginDevice, ...]:
        """Give the devices, those first that were preferred."""
        rest = [one for one in self._devices if one not in self._first]
        return tuple(self._devices[one] for one in [*self._first, *rest])
