"""`drawbridge schema`: JSON schemas of the configuration file and of what commands answer, for editors and for programs."""

from __future__ import annotations

import click

from cli import contract as inputs
from cli.contract import Broken, Exit


@inputs.command("schema", examples=("drawbridge schema config > config.json", "drawbridge schema check"))
@click.argument("name", required=False)
def command(name: str | None) -> Exit:
    """Print the JSON schema of the configuration (`config`) or of what a command answers with -o json; without a name, list them.

    An editor that knows YAML completes and judges a configuration whose first line is
    `# yaml-language-server: $schema=config.json`, once `drawbridge schema config > config.json` has put the schema beside it.
    """
    from cli.schemas import CONFIGURATION, NAMES, text_of
    from dra.validation import shape

    if name is None:
        of_configuration = "DrawbridgeConfiguration: what the webhook and --config read, rules of your own included"
        for one in NAMES:
            says = of_configuration if one == CONFIGURATION else f"what `drawbridge {one} -o json` prints"
            inputs.tell([f"{one:<10} {says}"])
    elif name in NAMES:
        click.echo(text_of(name), nl=False)
    else:
        near = shape.nearest(name, list(NAMES))
        meant = f"did you mean {near}? " if near else ""
        raise Broken(f"there is no schema named {name[:80]!r}", f"{meant}there are: {', '.join(NAMES)}")
    return Exit.FINE
