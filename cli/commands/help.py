"""`drawbridge help`: the help of a command or of a topic that concerns all commands."""

from __future__ import annotations

import click

from cli.command import ENVIRONMENT, declare
from rendering.exits import Broken, Exit
from rendering.output import print_lines
from rendering.terminal import aligned

_TOPICS = {
    "exit-codes": [(str(int(code)), code.meaning) for code in Exit],
    "environment": list(ENVIRONMENT.items()),
}


@declare("help", examples=("drawbridge help translate", "drawbridge help exit-codes"))
@click.argument("topic", required=False)
@click.pass_context
def command(ctx: click.Context, *, topic: str | None) -> Exit:
    """Print the help of a command or of a topic (exit-codes, environment). For codes of findings see `drawbridge explain`."""
    from cli.main import COMMANDS, command_of, main
    from dra.validation import shape

    root = ctx.find_root()
    if topic is None:
        click.echo(main.get_help(root))
    elif topic in COMMANDS:
        topic_command = command_of(topic)
        click.echo(topic_command.get_help(topic_command.context_class(topic_command, info_name=topic, parent=root)))
    elif topic in _TOPICS:
        print_lines(aligned(_TOPICS[topic]))
    else:
        known = [*COMMANDS, *_TOPICS]
        similar = shape.nearest_name(topic, known)
        remedy = f"did you mean {similar}?" if similar else f"commands and topics: {', '.join(known)}"
        raise Broken(f"{topic!r} is neither a command nor a topic", remedy)
    return Exit.FINE
