"""`drawbridge snapshot`: saves the objects of a cluster that decide about devices in one file, for commands that read dumps.

It needs the rights of a survey. Kinds that may not be read are reported, the rest is saved, and the exit code is 3.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import click
import msgspec

from analysis.configuration import CONFIG_KEY, configuration_in_force, given_configuration
from analysis.installation import merge
from cli import contract as inputs
from cli.contract import Broken, CommandFailed, Exit
from dra.raw import inside

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.configuration import ConfigurationInForce
    from analysis.loading import ObjectIdentity, Visit
    from analysis.redaction import Redaction
    from cluster.protocol import Cluster
    from dra.raw import Object

EMPTY: dict[str, object] = {
    "configuration": {"source": "", "mode": ""},
    "file": "",
    "server": "",
    "objects": 0,
    "bytes": 0,
    "leftOut": 0,
    "unread": [],
}


@inputs.command(
    "snapshot",
    empty=EMPTY,
    examples=("drawbridge snapshot --to snapshot.json", "drawbridge snapshot -n team-a --to team-a.json"),
)
@click.option("--to", "target", metavar="FILE", required=True, help="The file to write.")
@inputs.option("--force", "Overwrite the file.")
@inputs.reached()
@click.option("-n", "--namespace", metavar="NAME", default="", help="Only this namespace, and cluster-scoped objects.")
@inputs.config("A DrawbridgeConfiguration: the variables and keys of its dialects are kept.")
@inputs.output("text", "json", default="text")
def command(
    *, target: str, force: bool, kubeconfig: str, context: str, namespace: str, config: str, output: str
) -> Exit:
    """Save the objects of a cluster that decide about devices in one file.

    The file is a List in JSON, for -f of survey, explain, simulate, doctor, check, translate and allocate, or for --inventory. Secrets are not
    read. Only fields that decide about devices are kept: of ConfigMaps the settings of device plugins, of variables the values that a
    dialect reads, of opaque parameters those that a driver is known to read, of labels and annotations those that a dialect or selector
    uses, of volumes the kubelet's folders. No commands, probes or messages; arguments only of device plugins and autoscalers.
    """
    from analysis import loop
    from analysis.loading import Visit, evidence_in, identity_of, look_around, read_installed
    from analysis.redaction import redaction_of
    from cluster import resources

    # Fail now, not after minutes of reading.
    path = Path(target)
    if str(path) == "-":
        raise Broken("a snapshot cannot go to standard output", "--to FILE")
    if path.is_dir():
        raise Broken(f"{path} is a folder", f"name a file in it: --to {path / 'snapshot.json'}")
    if path.exists() and not force:
        raise Broken(f"{path} already exists", "choose another name, or overwrite it with --force")
    if not path.parent.is_dir():
        raise Broken(f"{path.parent} is not a folder", "create it first")
    given = given_configuration(config)
    evidence: dict[ObjectIdentity, Object] = {}
    merged: set[ObjectIdentity] = set()

    def keep(redaction: Redaction, obj: Object) -> bytes:
        """Redact an object, but for the settings of device plugins and autoscalers."""
        redacted = redaction.redact(obj)
        identity = identity_of(obj)
        if identity in evidence:
            merged.add(identity)
            merge(redacted, evidence[identity])
        return msgspec.json.encode(redacted)

    async def look(cluster: Cluster) -> tuple[Visit[bytes], str, Redaction, ConfigurationInForce]:
        """Read the objects that decide about devices."""
        installed, problem = await read_installed(cluster)
        in_force = configuration_in_force(given, installed)._replace(problem="" if given else problem)
        configuration = in_force.configuration
        redaction = redaction_of(configuration)
        server = await cluster.server(probe=False)
        objects, unread = await look_around(cluster, evidence_in(configuration, narrow=bool(namespace)))
        evidence.update({identity_of(one): written(one) for one in objects})
        config_maps = [one.object for one in installed if one.object.get("kind") == "ConfigMap"]
        evidence.update({identity_of(one): as_installed(one) for one in config_maps})
        with inputs.progress() as report_progress:
            visit = Visit(cluster, namespace or None, report_progress, partial(keep, redaction))
            visit.unread += unread
            # For doctor, simulate, explain and quota.
            also: tuple[resources.Resource[Any], ...] = (
                resources.LEASES,
                resources.POD_DISRUPTION_BUDGETS,
                resources.DEVICE_QUOTAS,
                resources.VALIDATING_WEBHOOKS,
            )
            await visit.read_input(also)
        return visit, server.version, redaction, in_force

    visit, version, redaction, in_force = loop.visit(kubeconfig, context, look, "docs/survey.md")
    in_force.report()
    lines = redaction.finish(visit.objects) + [
        msgspec.json.encode(one) for name, one in evidence.items() if name not in merged
    ]
    try:
        write(lines, path, replace=force)
    except FileExistsError:
        raise Broken(f"{path} now exists", "choose another name, or overwrite it with --force") from None
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}", "choose another place") from None
    if output == "json":
        answer = {
            "configuration": in_force.described(),
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
        inputs.print_lines([f"{path}: {objects} of a server {version}; {values} redacted"])
    return Exit.UNDECIDED if visit.unread else Exit.FINE


def as_installed(config_map: Object) -> Object:
    """Reduce the ConfigMap of an installation to its configuration."""
    metadata = config_map["metadata"]
    data = inside(config_map, "data")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "data": {CONFIG_KEY: data[CONFIG_KEY]} if CONFIG_KEY in data else {},
    }


def written(obj: Object) -> Object:
    """Reduce an object of a device plugin or autoscaler to the settings that are read; texts of ConfigMaps become JSON."""
    from cluster.manifests import unfold
    from webhook.state import IN_CONFIG_MAPS, outline

    outlined = outline(unfold(obj, IN_CONFIG_MAPS))
    if "data" in outlined:
        outlined["data"] = {name: msgspec.json.encode(text).decode() for name, text in outlined["data"].items()}
    return outlined


def write(lines: Iterable[bytes], path: Path, *, replace: bool) -> None:
    """Write a List as kubectl prints it, with mode 0600; an older file is replaced atomically."""
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
