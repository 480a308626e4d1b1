"""`drawbridge dialects`: every legacy key that drawbridge knows, its unit and its translation."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from analysis.errors import Broken
from analysis.report import CodeSpan, Marked, Own, Report, Rows
from cli import options
from cli.answers import write
from cli.command import declare
from cli.configuration import report_configuration
from cli.exits import Exit
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from analysis.report import Cell, Part
    from webhook.dialects import Dialect


@declare("dialects", examples=("drawbridge dialects hami", "drawbridge dialects nvidia.com/gpu"))
@click.argument("names", metavar="[DIALECT|KEY]...", nargs=-1)
@options.config("Show the keys as this DrawbridgeConfiguration names them.")
@options.output("text", "json", "yaml", "markdown", default="text")
def command(names: tuple[str, ...], config: str, output: str) -> Exit:
    """List the legacy keys of all dialects or of the named dialects, or explain the named keys.

    A dialect is the keys of a device plugin or of a system with its own scheduler. With `-o yaml` the output has the form of
    `dialects:` in a configuration.
    """
    from analysis.configuration import configuration_in_force
    from cli.configuration import given_configuration
    from cluster import manifests

    in_force = configuration_in_force(given_configuration(config))
    report_configuration(in_force)
    every = in_force.configuration.dialects
    chosen = _choose(names, every) if names else list(every)
    if output == "yaml":
        click.echo(manifests.dump([{"dialects": _plain(chosen)}]), nl=False)
    else:
        write(output, lambda: _report(chosen), lambda: {"dialects": _plain(chosen)})
    return Exit.FINE


def _plain(dialects: Sequence[Dialect]) -> list[dict[str, Any]]:
    """Return the dialects in the form of a configuration, with default values written out."""
    import msgspec

    defaults = {"outcome": "translated", "unit": "count", "place": "resource"}
    tables = [msgspec.to_builtins(dialect) for dialect in dialects]
    return [{**table, "keys": [defaults | row for row in table["keys"]]} for table in tables]


def _report(dialects: Sequence[Dialect]) -> Report:
    """Return a report with a table of keys for each dialect."""
    head = ("Key", "Where", "Unit", "Outcome", "What it says")
    parts: list[Part] = []
    for dialect in dialects:
        rows: list[Sequence[Cell]] = []
        for row in dialect.keys:
            says = [Own(text[0].upper() + text[1:]) for text in (row.meaning, row.because) if text]
            rows.append((CodeSpan(row.name), row.place, row.unit, Marked(row.outcome), ("", *says)))
        scope = "each container" if dialect.scope == "container" else "the whole pod"
        parts += [Rows(head, rows, f"{dialect.title} ({dialect.name})"), f"Numbers count for {scope}."]
    outcomes = Counter(row.outcome for dialect in dialects for row in dialect.keys)
    counts = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
    return Report(
        "Vocabularies", parts, f"{count_of(outcomes.total(), 'key')} of {count_of(len(dialects), 'dialect')}: {counts}"
    )


def _choose(names: Sequence[str], dialects: Sequence[Dialect]) -> list[Dialect]:
    """Return the named dialects, and for each named key the dialects that have it, with only the matching rows."""
    import msgspec

    from dra.validation import shape
    from webhook.dialects import pattern

    chosen: dict[str, Dialect] = {}
    for name in names:
        is_known = False
        for dialect in dialects:
            rows = dialect.keys
            if dialect.name != name:
                rows = tuple([row for row in rows if row.name == name or pattern(row.name)(name)])
                if not rows:
                    continue
            is_known = True
            if dialect.name in chosen:
                rows = tuple(dict.fromkeys((*chosen[dialect.name].keys, *rows)))
            chosen[dialect.name] = msgspec.structs.replace(dialect, keys=rows)
        if not is_known:
            dialect_names = [dialect.name for dialect in dialects]
            keys = [row.name for dialect in dialects for row in dialect.keys]
            similar = shape.nearest_name(name, dialect_names) or next(
                iter(get_close_matches(name, keys, n=1, cutoff=0.75)), ""
            )
            listed = f"dialects: {', '.join(dialect_names)}"
            meant = f"did you mean {similar}? " if similar else ""
            raise Broken(f"{name} is neither a dialect nor a key", f"{meant}{listed}")
    return list(chosen.values())
