"""`drawbridge dialects`: every legacy key that is understood, what a unit of it is, and what becomes of it."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from cli import contract as inputs
from cli.contract import Broken, Exit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from webhook.dialects import Dialect, Row


@inputs.command("dialects", empty={"dialects": []})
@click.argument("names", metavar="[DIALECT|KEY]...", nargs=-1)
@click.option("--config", metavar="FILE", help="Show the keys under the names that this DrawbridgeConfiguration gives them.")  # fmt: skip
@inputs.output("text", "json", "yaml", "markdown", default="text")
def command(names: tuple[str, ...], config: str | None, output: str) -> Exit:
    """List the vocabularies and their keys, those of some of them, or what a key means and to whom.

    As YAML this is the form in which a configuration takes tables of your own (`dialects:`).
    """
    from cli.configuration import configuration_of

    every = configuration_of(config).dialects
    chosen = _choose(names, every) if names else list(every)
    if output == "text":
        for dialect in chosen:
            _print(dialect)
    elif output == "markdown":
        click.echo("\n".join(line for dialect in chosen for line in _tabulate(dialect)), nl=False)
    else:
        _write([_plain(dialect) for dialect in chosen], output)
    return Exit.FINE


def _choose(names: Sequence[str], dialects: Sequence[Dialect]) -> list[Dialect]:
    """Pick dialects by their names, and of others the rows for a key that is named."""
    import msgspec

    chosen: dict[str, Dialect] = {}
    for name in names:
        found = [one for dialect in dialects if (one := _about(name, dialect)) is not None]
        if not found:
            raise Broken(f"no dialect and no key is named {name}", _meant(name, dialects))
        for one in found:
            keys = one.keys
            if one.name in chosen:
                both = (*chosen[one.name].keys, *keys)
                keys = tuple(dict.fromkeys(both))
            chosen[one.name] = msgspec.structs.replace(one, keys=keys)
    return list(chosen.values())


def _about(name: str, dialect: Dialect) -> Dialect | None:
    """What a dialect says of a name: all of it if the name is its own, else the rows for the key of that name."""
    import msgspec

    from webhook.dialects import pattern

    if dialect.name == name:
        return dialect
    rows = tuple([row for row in dialect.keys if row.name == name or pattern(row.name)(name)])
    return msgspec.structs.replace(dialect, keys=rows) if rows else None


def _meant(name: str, dialects: Sequence[Dialect]) -> str:
    """Say what there is, and what was probably meant first."""
    from dra.validation import shape

    known = [dialect.name for dialect in dialects]
    keys = [row.name for dialect in dialects for row in dialect.keys]
    likely = shape.nearest(name, known) or next(iter(get_close_matches(name, keys, n=1, cutoff=0.75)), "")
    listed = f"the dialects are {', '.join(known)}"
    return f"did you mean {likely}? {listed}" if likely else listed


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
