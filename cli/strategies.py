"""The values of `--strategy`."""

from __future__ import annotations

from analysis.errors import Broken
from analysis.report import Report, Rows
from cli.answers import print_report

HELP = "help"


def print_strategies() -> None:
    """Print each strategy with its summary."""
    from allocator.strategies import STRATEGIES

    rows = [(strategy.name, strategy.summary) for strategy in STRATEGIES.values()]
    print_report(Report("Strategies", (Rows(("", ""), rows),)))


def refuse_unknown(name: str) -> None:
    """Raise Broken for an unknown strategy."""
    from allocator.strategies import STRATEGIES

    if name not in STRATEGIES:
        raise Broken(f"unknown strategy {name}", f"strategies: {', '.join(STRATEGIES)}")
