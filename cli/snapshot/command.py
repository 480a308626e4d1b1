"""`drawbridge snapshot --to FILE`: what a cluster has that decides about devices, in one file, for every command that reads a dump.

It only reads, with the rights of a survey. What may not be read is named, and the rest is written; then the exit says that it is not whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli import contract as inputs
from cli.configuration import configuration_of
from cli.contract import Broken, Exit, Failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.snapshot.recording import Recorded
    from cli.snapshot.redaction import Redaction
    from cluster.protocol import Cluster
    from webhook.state import Configuration

EMPTY: dict[str, object] = {"file": "", "server": "", "objects": 0, "bytes": 0, "leftOut": 0, "unread": []}


@inputs.command("snapshot", empty=EMPTY)
@click.option("--to", "target", metavar="FILE", required=True, help="Where to write it.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@inputs.reached()
@click.option("-n", "--namespace", metavar="NAME", default="", help="Of objects in namespaces, only those of this one.")
@click.option(
    "--config", metavar="FILE", default="", help="A DrawbridgeConfiguration, for the variables that it reads."
)
@inputs.output("text", "json", default="text")
def command(
    *, target: str, force: bool, kubeconfig: str, context: str, namespace: str, config: str, output: str
) -> Exit:
    """Write what a cluster has that decides about devices into one file.

    The file is a List in JSON: give it to survey, explain, simulate, doctor, check, translate or allocate with -f, or as --inventory.
    Secrets and config maps are not read. Of all else only what decides about devices is written: of variables the
    values that a dialect reads, of opaque parameters what a driver is known to read, and no commands, arguments, probes,
    volumes, messages, and labels and annotations of others that no selector asks for.
    """
    path = Path(target)
    _refuse_bad_target(path, force=force)
    redaction = redaction_of(configuration_of(config))
    recorded = _visit(kubeconfig, context, namespace, redaction)
    _write(recorded, path, force=force)
    _tell(recorded, path, redaction, output)
    return Exit.UNDECIDED if recorded.unread else Exit.FINE


def _refuse_bad_target(path: Path, *, force: bool) -> None:
    """Say now what would fail after minutes of reading."""
    if str(path) == "-":
        raise Broken("a snapshot is a file of its own", "--to FILE")
    if path.is_dir():
        raise Broken(f"{path} is a folder", f"name a file in it: --to {path / 'snapshot.json'}")
    if path.exists() and not force:
        raise Broken(f"{path} is there already", "choose another name, or say --force to replace it")
    if not path.parent.is_dir():
        raise Broken(f"{path.parent} is not a folder", "make it first")


def redaction_of(configuration: Configuration) -> Redaction:
    """What is kept under a configuration: the words of its dialects."""
    from cli.snapshot.redaction import Redaction
    from webhook.dialects import Position, pattern

    read: list[Callable[[str], object]] = []
    understood: list[Callable[[str], object]] = []
    domains: set[str] = set()
    for dialect in configuration.dialects:
        read += [pattern(row.name) for row in dialect.keys if row.place is Position.ENV]
        understood += [pattern(row.name) for row in dialect.keys]
        domains.update(row.name.partition("/")[0] for row in dialect.keys if "/" in row.name)
    return Redaction(
        lambda name: any(matches(name) for matches in read),
        lambda key: key.partition("/")[0] in domains or any(matches(key) for matches in understood),
    )


def _visit(kubeconfig: str, context: str, namespace: str, redaction: Redaction) -> Recorded:
    from cli import loop
    from cli.snapshot.recording import record

    async def look(cluster: Cluster) -> Recorded:
        with inputs.progress() as tell:
            return await record(cluster, namespace or None, tell, redaction)

    return loop.visit(kubeconfig, context, look, "docs/survey.md")


def _write(recorded: Recorded, path: Path, *, force: bool) -> None:
    from cli.snapshot.recording import write

    try:
        write(recorded.lines, path, replace=force)
    except FileExistsError:
        raise Broken(f"{path} has come meanwhile", "choose another name, or say --force to replace it") from None
    except OSError as error:
        raise Failed(
            f"{path} cannot be written: {error.strerror}", "nothing was left there; choose another place"
        ) from None


def _tell(recorded: Recorded, path: Path, redaction: Redaction, output: str) -> None:
    if output == "json":
        unread = [{"kind": one.kind, "reason": one.reason} for one in recorded.unread]
        answer = {
            "file": str(path),
            "server": recorded.server,
            "objects": len(recorded.lines),
            "bytes": path.stat().st_size,
            "leftOut": redaction.left_out,
            "unread": unread,
        }
        inputs.write_json(answer)
        return
    for one in recorded.unread:
        inputs.warn(f"{one.kind} could not be read: {one.reason}")
    objects = inputs.count_of(len(recorded.lines), "object")
    secrets = inputs.count_of(redaction.left_out, "value")
    inputs.tell([f"{path}: {objects} of a server of {recorded.server}; {secrets} left out that decide nothing"])
