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
from cli.contract import Broken, CommandFailed, Exit
from cli.installation import merge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cli.loading import Visit, Who
    from cluster.protocol import Cluster
    from dra.raw import Object

EMPTY: dict[str, object] = {"file": "", "server": "", "objects": 0, "bytes": 0, "leftOut": 0, "unread": []}


@inputs.command(
    "snapshot",
    empty=EMPTY,
    examples=("drawbridge snapshot --to snapshot.json", "drawbridge snapshot -n team-a --to team-a.json"),
)
@click.option("--to", "target", metavar="FILE", required=True, help="Where to write it.")
@inputs.option("--force", "Replace a file that is there.")
@inputs.reached()
@click.option("-n", "--namespace", metavar="NAME", default="", help="Of objects in namespaces, only those of this one.")
@inputs.config("A DrawbridgeConfiguration, for the variables that it reads.")
@inputs.output("text", "json", default="text")
def command(
    *, target: str, force: bool, kubeconfig: str, context: str, namespace: str, config: str, output: str
) -> Exit:
    """Write what a cluster has that decides about devices into one file.

    The file is a List in JSON: give it to survey, explain, simulate, doctor, check, translate or allocate with -f, or as --inventory.
    Secrets are not read. Only what decides about devices is written: of config maps the settings of device plugins, of variables the
    values that a dialect reads, of opaque parameters what a driver is known to read, and no commands, probes, volumes, messages, no
    arguments but flags of device plugins and autoscalers, and no labels and annotations of others that no selector asks for.
    """
    from cli import loop
    from cli.loading import Visit, evidence_in, look_around, who
    from cli.redaction import redaction_of
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
    configuration = configuration_of(config)
    redaction = redaction_of(configuration)
    evidence: dict[Who, Object] = {}
    merged: set[Who] = set()

    def keep(obj: Object) -> bytes:
        """Redact an object; what it says of device plugins and autoscalers stays."""
        redacted = redaction.redact(obj)
        identity = who(obj)
        if identity in evidence and obj.get("kind") in ("DaemonSet", "Deployment"):
            merged.add(identity)
            merge(redacted, evidence[identity])
        return msgspec.json.encode(redacted)

    async def look(cluster: Cluster) -> tuple[Visit[bytes], str]:
        """Read everything that decides about devices. With a namespace, only that and what the whole cluster has."""
        server = await cluster.server(probe=False)
        objects, unread = await look_around(cluster, evidence_in(configuration, narrow=bool(namespace)))
        evidence.update({who(one): written(one) for one in objects})
        with inputs.progress() as tell:
            visit = Visit(cluster, namespace or None, tell, keep)
            visit.unread += unread
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
    lines = redaction.finish(visit.objects) + [
        msgspec.json.encode(one) for name, one in evidence.items() if name not in merged
    ]
    try:
        write(lines, path, replace=force)
    except FileExistsError:
        raise Broken(f"{path} has come meanwhile", "choose another name, or say --force to replace it") from None
    except OSError as error:
        raise CommandFailed(
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


def written(obj: Object) -> Object:
    """Give an object of a device plugin or an autoscaler as it is written: of the texts of a ConfigMap what is read of them, as JSON."""
    from cluster.manifests import unfold
    from webhook.state import IN_CONFIG_MAPS, outline

    kept = outline(unfold(obj, IN_CONFIG_MAPS))
    if "data" in kept:
        kept["data"] = {name: msgspec.json.encode(text).decode() for name, text in kept["data"].items()}
    return kept


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
