"""`drawbridge version`: the version of drawbridge, and the versions of Kubernetes that it knows."""

from __future__ import annotations

import platform

from cli import options
from cli.answers import write_json
from cli.command import declare
from cli.exits import Exit
from cli.output import print_lines


@declare("version", examples=("drawbridge version", "drawbridge version -o json"))
@options.output("text", "json", default="text")
def command(*, output: str) -> Exit:
    """Print the version of drawbridge, and the versions of Kubernetes that it knows."""
    from dra.server import NEWEST, OLDEST, SUPPORTED
    from webhook.names import VERSION

    kubernetes = [f"1.{minor}" for minor in range(OLDEST, NEWEST + 1)]
    if output == "json":
        write_json({"version": VERSION, "kubernetes": kubernetes, "python": platform.python_version()})
    else:
        print_lines(
            [
                f"drawbridge {VERSION}",
                f"Kubernetes {SUPPORTED}",
                f"Python {platform.python_version()}",
            ]
        )
    return Exit.FINE
