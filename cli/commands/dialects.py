"""`drawbridge dialects`: every legacy key that is understood, its unit and its translation."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from cli import contract as inputs
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.dialects import Dialect, Row


@inputs.command(
    "dialects", empty={"dialects": []}, examples=("drawbridge dialects hami", "drawbridge dialects nvidia.com/gpu")
)
@click.argument("names", metavar="[DIALECT|KEY]...", nargs=-1)
@inputs.config("Show the keys as this DrawbridgeConfiguration names them.")
@inputs.output("text", "json", "yaml", "markdown", default="text")
def command(names: tuple[str, ...], config: str, output: str) -> Exit:
    """List the dialects and their keys: all, the named dialects, or the meaning of the named keys.

    With `-o yaml` the output has the form of `dialects:` in a configuration.
    """
    from analysis.configuration import configuration_in_force, given_configuration

    every = configuration_in_force(given_configuration(config)).configuration.dialects
    chosen = _choose(names, every) if names else list(every)
    if output == "text":
        for dialect in chosen:
            whole = "each container" if dialect.scope == "container" else "the whole pod"
            inputs.print_lines([f"{dialect.name}: {dialect.title} (numbers count for {whole})"])
            for row in dialect.keys:
                inputs.print_lines([f"  {row.outcome:<12} {row.name}  [{row.place}, {row.unit}]"])
                inputs.print_lines(f"      {line}" for line in _lines(row))
            inputs.print_lines([""])
    elif output == "markdown":
        # The tables of docs/vocabularies.md.
        lines: list[str] = []
        for dialect in chosen:
            scope = "each container" if dialect.scope == "container" else "the whole pod"
            lines += [f"## {dialect.title} (`{dialect.name}`)", "", f"Numbers count for {scope}.", ""]
            lines += ["| key | where | unit | what becomes of it | what it says |", "|---|---|---|---|---|"]
            for row in dialect.keys:
                words = ". ".join(text[0].upper() + text[1:] for text in _lines(row)).replace("|", "\\|")
                lines.append(f"| `{row.name}` | {row.place} | {row.unit} | {row.outcome} | {words} |")
            lines.append("")
        click.echo("\n".join(lines), nl=False)
    else:
        import msgspec

        from cluster import manifests

        plain: list[dict[str, Any]] = []
        for dialect in chosen:
            table = msgspec.to_builtins(dialect)
            defaults = {"outcome": "translated", "unit": "count", "place": "resource"}
            plain.append({**table, "keys": [defaults | row for row in table["keys"]]})
        if output == "json":
            inputs.write_json({"dialects": plain})
        else:
            click.echo(manifests.dump([{"dialects": plain}]), nl=False)
    return Exit.FINE


def _choose(names: Sequence[str], dialects: Sequence[Dialect]) -> list[Dialect]:
    """Select the named dialects, and of the others the rows of named keys."""
    import msgspec

    from dra.validation import shape
    from webhook.dialects import pattern

    chosen: dict[str, Dialect] = {}
    for name in names:
        known = False
        for dialect in dialects:
            rows = dialect.keys
            if dialect.name != name:
                rows = tuple([row for row in rows if row.name == name or pattern(row.name)(name)])
                if not rows:
                    continue
            known = True
            if dialect.name in chosen:
                rows = tuple(dict.fromkeys((*chosen[dialect.name].keys, *rows)))
            chosen[dialect.name] = msgspec.structs.replace(dialect, keys=rows)
        if not known:
            dialect_names = [dialect.name for dialect in dialects]
            keys = [row.name for dialect in dialects for row in dialect.keys]
            likely = shape.nearest(name, dialect_names) or next(
                iter(get_close_matches(name, keys, n=1, cutoff=0.75)), ""
            )
            listed = f"dialects: {', '.join(dialect_names)}"
            meant = f"did you mean {likely}? " if likely else ""
            raise Broken(f"{name} is neither a dialect nor a key", f"{meant}{listed}")
    return list(chosen.values())


def _lines(row: Row) -> list[str]:
    return [text for text in (row.meaning, row.because) if text]
