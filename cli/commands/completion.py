"""`drawbridge completion`: a script with which a shell completes commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cli.command import declare
from cli.exits import Exit

_VARIABLE = "_DRAWBRIDGE_COMPLETE"


@declare("completion", examples=("drawbridge completion bash > drawbridge.bash", "drawbridge completion zsh"))
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def command(*, shell: str) -> Exit:
    """Print a script that completes drawbridge in a shell.

    bash: `source <(drawbridge completion bash)`. zsh: `source <(drawbridge completion zsh)`. fish: `drawbridge completion fish | source`.
    """
    from cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None
    completion = kind(main, {}, "drawbridge", _VARIABLE)
    click.echo(completion.source_template % completion.source_vars())
    return Exit.FINE
