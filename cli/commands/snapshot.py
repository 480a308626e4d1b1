"""`drawbridge snapshot --to FILE`: what a cluster has that decides about devices, in one file, for every command that reads a dump.

It only reads, with the rights of a survey. What may not be read is named, and the rest is written; then the exit says that it is not whole.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import click
import msgspec

from cli import contract as inputs
from cli.configuration import configuration_of
from cli.contract import Broken, Exit, Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cli.loading import Visit
    from cli.redaction import Redaction
    from cluster.protocol import Cluster
    from webhook.state import Configuration

EMPTY: dict[str, object] = {"file": "", "server": "", "objects": 0, "bytes": 0, "leftOut": 0, "unread": []}


@inputs.command(
    "snapshot",
    empty=EMPTY,
    examples=("drawbridge snapshot --to snapshot.json", "drawbridge snapshot -n team-a --to team-a.json"),
)
@click.option("--to", "target", metavar="FILE", required=True, help="Where to write it.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@inputs.reached()
@click.option("-n", "--namespace", metavar="NAME", default="", help="Of objects in namespaces, only those of this one.")
@inputs.config("A DrawbridgeConfiguration, for the variables that it reads.")
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
    from cli import loop
    from cli.loading import Visit
    from cluster import resources

    # Say now what would fail after minutes of reading.
    path = Path(target)
    if str(path) == "-":
        raise Broken("a snapshot is a file of its own", "--to FILE")
    if path.is_dir():
        raise Broken(f"{path} is a folder", f"name a file in it: --to {path / 'snapshot.json'}")
    if path.exists() and not force:
        raise Broken(f"{path} is there already", "choose another name, or say --force to replace it")
    if not path.parent.is_dir():
        raise Broken(f"{path.parent} is not a folder", "make it first")
    redaction = redaction_of(configuration_of(config))

    async def look(cluster: Cluster) -> tuple[Visit[bytes], str]:
        """Read everything that decides about devices. With a namespace, only that and what the whole cluster has."""
        server = await cluster.server(probe=False)
        with inputs.progress() as tell:
            visit = Visit(cluster, namespace or None, tell, lambda obj: msgspec.json.encode(redaction.redact(obj)))
            # What other commands than survey look at: doctor, simulate, explain, quota.
            also: tuple[resources.Resource[Any], ...] = (
                resources.LEASES,
                resources.POD_DISRUPTION_BUDGETS,
                resources.DEVICE_QUOTAS,
                resources.VALIDATING_WEBHOOKS,
            )
            await visit.look(also)
        return visit, server.version

    visit, version = loop.visit(kubeconfig, context, look, "docs/survey.md")
    lines = redaction.finish(visit.objects)
    try:
        write(lines, path, replace=force)
    except FileExistsError:
        raise Broken(f"{path} has come meanwhile", "choose another name, or say --force to replace it") from None
    except OSError as error:
        raise Failed(
            f"{path} cannot be written: {error.strerror}", "nothing was left there; choose another place"
        ) from None
    if output == "json":
        answer = {
            "file": str(path),
            "server": version,
            "objects": len(lines),
            "bytes": path.stat().st_size,
            "leftOut": redaction.left_out,
            "unread": [{"kind": one.kind, "reason": one.reason} for one in visit.unread],
        }
        inputs.write_json(answer)
    else:
        for one in visit.unread:
            inputs.warn(f"{one.kind} could not be read: {one.reason}")
        objects = inputs.count_of(len(lines), "object")
        values = inputs.count_of(redaction.left_out, "value")
        inputs.tell([f"{path}: {objects} of a server of {version}; {values} left out that decide nothing"])
    return Exit.UNDECIDED if visit.unread else Exit.FINE


def redaction_of(configuration: Configuration) -> Redaction:
    """What is kept under a configuration: the words of its dialects."""
    from cli.redaction import Redaction
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


def write(lines: Iterable[bytes], path: Path, *, replace: bool) -> None:
    """Write a List that kubectl could have printed. The file is its owner's alone, and an older one stays until it is whole."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(b'{"apiVersion":"v1","kind":"List","items":[\n')
            for number, line in enumerate(lines):
                file.write(b",\n" if number else b"")
                file.write(line)
            file.write(b"\n]}\n")
            file.flush()
            os.fsync(file.fileno())
            if path.exists() and not replace:
                raise FileExistsError(path)
            Path(file.name).replace(path)
        finally:
            with suppress(FileNotFoundError):
                Path(file.name).unlink()
