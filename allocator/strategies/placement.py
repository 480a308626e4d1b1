"""The text form of strategies: one name, or several names with weights, such as `topology=3,CompactFirst=1`.

The first strategy chooses devices, and a node's score is the weighted mean of all scores.
"""

from __future__ import annotations

import msgspec

from allocator.strategies.strategy import DEFAULT, STRATEGIES

MAX_WEIGHT = 100
_LONGEST = 60  # characters of a wrong name in a message


class UnknownStrategy(ValueError):  # noqa: N818  user input, reported with its message
    """An unknown strategy, or an invalid weight."""


class Weighted(msgspec.Struct, frozen=True):
    """A strategy and its weight."""

    strategy: str
    weight: int = 1


class Placement(msgspec.Struct, frozen=True):
    """The strategies that place a pod. The first strategy chooses the devices."""

    parts: tuple[Weighted, ...] = (Weighted(DEFAULT),)

    @property
    def is_default(self) -> bool:
        return self.parts == (Weighted(DEFAULT),)


def read_placement(text: str) -> Placement:
    """Parse the text form: a name, or names with weights."""
    parts: list[Weighted] = []
    for part in text.split(","):
        name, equals, weight = part.strip().partition("=")
        if name not in STRATEGIES:
            names = ", ".join(sorted(STRATEGIES))
            raise UnknownStrategy(f"there is no strategy {name[:_LONGEST]!r}; the strategies are {names}")
        if name in (known.strategy for known in parts):
            raise UnknownStrategy(f"strategy {name} is named twice")
        number = 1
        if equals:
            is_number = weight.isascii() and weight.isdigit() and len(weight) <= len(str(MAX_WEIGHT))
            number = int(weight) if is_number else 0
            if not 1 <= number <= MAX_WEIGHT:
                raise UnknownStrategy(
                    f"the weight of {name} is {weight[:_LONGEST]!r}, but must be a whole number from 1 to {MAX_WEIGHT}"
                )
        parts.append(Weighted(name, number))
    if len(parts) == 1:
        return Placement((Weighted(parts[0].strategy),))
    return Placement(tuple(parts))
