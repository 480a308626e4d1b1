"""What a code of a finding or of a refusal means, and what helps."""

from __future__ import annotations

import click

from cli import contract as inputs
from cli.contract import Broken, Exit


def explain_codes(wanted: str, output: str, also: tuple[str, ...] = ()) -> Exit:
    """Print what codes mean that are separated by blanks, or all; `also` are words that might have been meant instead."""
    from cli.check.reports import KNOWN, page_of_codes
    from dra.validation import shape

    known = KNOWN
    if wanted != "all":
        names = [name.strip("[],").upper() for name in wanted.split()]
        for name in names:
            if name not in KNOWN:
                near = shape.nearest(name, [*also, *KNOWN])
                meant = f"did you mean {near}? " if near else ""
                objects = f", and `drawbridge explain {'|'.join(also)} NAME` tells of an object" if also else ""
                remedy = f"{meant}`drawbridge explain all` lists them{objects}"
                raise Broken(f"no finding and no refusal has the code {name!r}", remedy)
        known = {name: KNOWN[name] for name in names}
    if output == "json":
        inputs.write_json({"codes": [{"code": name, **code._asdict()} for name, code in known.items()]})
    elif output == "markdown":
        click.echo(page_of_codes(known), nl=False)
    else:
        for name, code in known.items():
            inputs.tell((f"{name} {code.severity.value}: {code.title}", f"      {code.hint}"))
    return Exit.FINE
