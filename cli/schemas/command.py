"""`drawbridge schema`: JSON schemas of the configuration file and of what commands answer, for editors and for programs."""

from __future__ import annotations

import json

import click

from cli import contract as inputs
from cli.contract import Broken, Exit


@inputs.command("schema")
@click.argument("name", required=False)
def command(name: str | None) -> Exit:
    """Print the JSON schema of the configuration (`config`) or of what a command answers with -o json; without a name, list them.

    An editor that knows YAML completes and judges a configuration whose first line is
    `# yaml-language-server: $schema=config.json`, once `drawbridge schema config > config.json` has put the schema beside it.
    """
    from cli.schemas.schema import CONFIGURATION, NAMES
    from dra.validation import shape

    if name is None:
        inputs.tell(f"{one:<10} {_says(one, CONFIGURATION)}" for one in NAMES)
    elif name in NAMES:
        click.echo(text_of(name), nl=False)
    else:
        near = shape.nearest(name, list(NAMES))
        meant = f"did you mean {near}? " if near else ""
        raise Broken(f"there is no schema named {name[:80]!r}", f"{meant}there are: {', '.join(NAMES)}")
    return Exit.FINE


def _says(name: str, configuration: str) -> str:
    if name == configuration:
        return "DrawbridgeConfiguration: what the webhook and --config read, rules of your own included"
    return f"what `drawbridge {name} -o json` prints"


def text_of(name: str) -> str:
    """Write a schema as it stands in docs/schemas."""
    from cli.schemas.schema import schema_of

    return json.dumps(schema_of(name), indent=1, ensure_ascii=False) + "\n"
