"""`drawbridge dialects`: every legacy key that is understood, what a unit of it is, and what becomes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli import contract as inputs
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.dialects import Dialect, Row


@inputs.command("dialects", empty={"dialects": []})
@click.argument("name", required=False)
@click.option("--config", metavar="FILE", help="Show the keys under the names that this DrawbridgeConfiguration gives them.")  # fmt: skip
@inputs.output("text", "json", "yaml", "markdown", default="text")
def command(name: str | None, config: str | None, output: str) -> Exit:
    """List the vocabularies and their keys, or those of one vocabulary.

    As YAML this is the form in which a configuration takes tables of your own (`dialects:`).
    """
    from cli.configuration import configuration_of

    every = configuration_of(config).dialects
    chosen = [dialect for dialect in every if name in (None, dialect.name)]
    if not chosen:
        raise Broken(f"no dialect named {name}", f"there are: {', '.join(dialect.name for dialect in every)}")
    if output == "text":
        for dialect in chosen:
            _print(dialect)
    elif output == "markdown":
        click.echo("\n".join(line for dialect in chosen for line in _tabulate(dialect)), nl=False)
    else:
        _write([_plain(dialect) for dialect in chosen], output)
    return Exit.FINE


def _plain(dialect: Dialect) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(dialect)
    plain["keys"] = [{"action": "translated", "unit": "count", "place": "resource", **row} for row in plain["keys"]]
    return plain


def _write(dialects: list[dict[str, Any]], output: str) -> None:
    from cluster import manifests

    if output == "json":
        inputs.write_json({"dialects": dialects})
    else:
        click.echo(manifests.dump([{"dialects": dialects}]), nl=False)


def _print(dialect: Dialect) -> None:
    scope = "numbers count for each container" if dialect.scope == "container" else "numbers count for the whole pod"
    inputs.tell([f"{dialect.name}: {dialect.title} ({scope})"])
    for row in dialect.keys:
        inputs.tell([f"  {row.action:<12} {row.name}  [{row.place}, {row.unit}]"])
        inputs.tell(f"      {line}" for line in _lines(row))
    inputs.tell([""])


def _tabulate(dialect: Dialect) -> Iterator[str]:
    """Write a dialect as a table for a document (docs/vocabularies.md is made of them)."""
    scope = "each container" if dialect.scope == "container" else "the whole pod"
    yield f"## {dialect.title} (`{dialect.name}`)"
    yield ""
    yield f"Numbers count for {scope}."
    yield ""
    yield "| key | where | unit | what becomes of it | what it says |"
    yield "|---|---|---|---|---|"
    for row in dialect.keys:
        words = ". ".join(text[0].upper() + text[1:] for text in _lines(row)).replace("|", "\\|")
        yield f"| `{row.name}` | {row.place} | {row.unit} | {row.action} | {words} |"
    yield ""


def _lines(row: Row) -> list[str]:
    return [text for text in (row.meaning, row.because) if text]
