"""`--strategy`: which there are, and which was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import contract as inputs
from cli.contract import Broken

if TYPE_CHECKING:
    from collections.abc import Iterable

HELP = "help"


def tell_strategies() -> None:
    """Print the strategies, a line each."""
    from allocator.strategies import STRATEGIES

    inputs.tell(f"{one.name:<22} {one.summary}" for one in STRATEGIES.values())


def refuse_unknown(names: Iterable[str]) -> None:
    """Refuse a name that no strategy has."""
    from allocator.strategies import STRATEGIES

    for name in names:
        if name not in STRATEGIES:
            raise Broken(f"no strategy named {name}", f"there are: {', '.join(STRATEGIES)}")
