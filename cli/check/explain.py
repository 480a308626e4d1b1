"""`drawbridge explain`: what a code of a finding or of a refusal means, and what helps."""

from __future__ import annotations

import click

from cli import contract as inputs
from cli.contract import Broken, Exit


@inputs.command("explain", empty={"codes": []})
@click.argument("codes", nargs=-1, required=True, metavar="CODE...")
@inputs.output("text", "json", "markdown", default="text")
def command(*, codes: tuple[str, ...], output: str) -> Exit:
    """Say what a code means and what helps; `all` lists every code.

    Codes begin with R (the gate refuses it), D (`drawbridge check` found it) or C (the configuration).
    """
    return explain_codes(" ".join(codes), output)


def explain_codes(wanted: str, output: str) -> Exit:
    """Print what codes mean that are separated by blanks, or all."""
    from cli.check.reports import KNOWN, page_of_codes
    from dra.validation import shape

    known = KNOWN
    if wanted != "all":
        names = [name.strip("[],").upper() for name in wanted.split()]
        for name in names:
            if name not in KNOWN:
                near = shape.nearest(name, list(KNOWN))
                meant = f"did you mean {near}? " if near else ""
                raise Broken(
                    f"no finding and no refusal has the code {name!r}", f"{meant}`drawbridge explain all` lists them"
                )
        known = {name: KNOWN[name] for name in names}
    if output == "json":
        inputs.write_json({"codes": [{"code": name, **code._asdict()} for name, code in known.items()]})
    elif output == "markdown":
        click.echo(page_of_codes(known), nl=False)
    else:
        for name, code in known.items():
            inputs.tell((f"{name} {code.severity.value}: {code.title}", f"      {code.hint}"))
    return Exit.FINE
