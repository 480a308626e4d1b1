"""`drawbridge schema`: JSON schemas of the configuration file and of commands' JSON output."""

from __future__ import annotations

import click

from analysis.errors import Broken
from cli.command import declare
from cli.exits import Exit
from cli.output import print_lines


@declare("schema", examples=("drawbridge schema config > config.json", "drawbridge schema check"))
@click.argument("name", required=False)
def command(name: str | None) -> Exit:
    """Print the JSON schema of the configuration (`config`) or of a command's `-o json`; without a name, list the schemas.

    For completion and validation in an editor, run `drawbridge schema config > config.json` beside the configuration, and begin
    its file with `# yaml-language-server: $schema=config.json`.
    """
    from cli.schemas import CONFIGURATION, NAMES, text_of
    from dra.validation import shape

    if name is None:
        for schema in NAMES:
            of_command = f"the output of `drawbridge {schema} -o json`"
            print_lines([f"{schema:<10} {'DrawbridgeConfiguration' if schema == CONFIGURATION else of_command}"])
    elif name in NAMES:
        click.echo(text_of(name), nl=False)
    else:
        similar = shape.nearest_name(name, list(NAMES))
        meant = f"did you mean {similar}? " if similar else ""
        raise Broken(f"no schema is named {name[:80]!r}", f"{meant}schemas: {', '.join(NAMES)}")
    return Exit.FINE
