"""The values of `--strategy`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import contract as inputs
from cli.contract import Broken

if TYPE_CHECKING:
    from collections.abc import Iterable

HELP = "help"


def print_strategies() -> None:
    """Print each strategy with its summary."""
    from allocator.strategies import STRATEGIES

    inputs.print_lines(f"{one.name:<22} {one.summary}" for one in STRATEGIES.values())


def refuse_unknown(names: Iterable[str]) -> None:
    """Raise Broken for an unknown strategy."""
    from allocator.strategies import STRATEGIES

    for name in names:
        if name not in STRATEGIES:
            raise Broken(f"unknown strategy {name}", f"strategies: {', '.join(STRATEGIES)}")
