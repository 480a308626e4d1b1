"""`drawbridge snapshot`: saves in one file the objects of a cluster that decide about devices, for commands that read dumps.

It needs the rights of a survey. It reports kinds that it may not read, and saves the rest; then the exit code is 3.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analysis.errors import Broken, Failed
from analysis.report import Report
from cli import options
from cli.answers import write
from cli.command import declare
from cli.configuration import given_configuration, report_configuration
from cli.exits import Exit
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from cli.saved import SnapshotRead
    from cluster.protocol import Cluster


@declare(
    "snapshot", examples=("drawbridge snapshot --to snapshot.json", "drawbridge snapshot -n team-a --to team-a.json")
)
@click.option("--to", "target", metavar="FILE", required=True, help="The file to write.")
@options.option("--force", "Overwrite the file.")
@options.cluster_access()
@click.option("-n", "--namespace", metavar="NAME", default="", help="Only this namespace, and cluster-scoped objects.")
@options.config("A DrawbridgeConfiguration; the snapshot keeps the variables and keys of its dialects.")
@options.output("text", "json", default="text")
def command(
    *, target: str, force: bool, kubeconfig: str, context: str, namespace: str, config: str, output: str
) -> Exit:
    """Save in one file the objects of a cluster that decide about devices.

    The file is a List in JSON. The commands survey, explain, simulate, doctor, check and translate read it with -f, or with --inventory beside your own files.
    The command reads no Secrets. It saves only fields that decide about devices: the settings of device plugins in ConfigMaps; the
    environment variables, labels and annotations that a dialect or selector uses; the opaque parameters that a known driver reads;
    volumes with the kubelet's folders; the arguments of device plugins and autoscalers. It does not save commands, probes and messages.
    """
    from cli import loop, saved

    # Fail now, not after minutes of reading.
    path = Path(target)
    if str(path) == "-":
        raise Broken("a snapshot cannot go to standard output", "name a file: --to FILE")
    if path.is_dir():
        raise Broken(f"{path} is a folder", f"name a file in it: --to {path / 'snapshot.json'}")
    if path.exists() and not force:
        raise Broken(f"{path} already exists", "choose another name, or overwrite the file with --force")
    if not path.parent.is_dir():
        raise Broken(f"{path.parent} is not a folder", "create the folder first")
    given = given_configuration(config)

    def read(cluster: Cluster) -> Coroutine[Any, Any, SnapshotRead]:
        return saved.read(cluster, given, namespace)

    snapshot = loop.visit(kubeconfig, context, read, "docs/commands.md#drawbridge-survey")
    report_configuration(snapshot.in_force)
    try:
        saved.write(snapshot.lines, path, replace=force)
    except FileExistsError:
        raise Broken(f"{path} now exists", "choose another name, or overwrite the file with --force") from None
    except OSError as error:
        raise Failed(f"{path} cannot be written: {error.strerror}", "choose another path") from None
    objects = count_of(len(snapshot.lines), "object")
    values = count_of(snapshot.left_out, "value")
    write(
        output,
        lambda: Report("Snapshot", (), f"{path}: {objects} of a server {snapshot.version}; {values} redacted"),
        lambda: {
            "configuration": snapshot.in_force.described(),
            "file": str(path),
            "server": snapshot.version,
            "objects": len(snapshot.lines),
            "bytes": path.stat().st_size,
            "redactedValues": snapshot.left_out,
        },
        unread=snapshot.unread,
    )
    return Exit.UNDECIDED if snapshot.unread else Exit.FINE
