"""Reads the input of commands from files or a cluster, and warns of what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from analysis.configuration import features_of
from analysis.loading import (
    NO_CONFIGURATION,
    OUTLOOK,
    GeneratedNames,
    Needs,
    Reading,
    Trimmer,
    TypedObjects,
    read_cluster,
    reading_of,
    reading_of_documents,
    without_bookkeeping,
)
from cli import loop
from cli.files import InputFiles, ReadFiles, read_files, warn_of_skipped
from cli.output import progress, warn
from dra.texts import list_first

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.configuration import ConfigurationInForce
    from cluster.manifests import Document
    from cluster.protocol import Cluster
    from dra.server import Server

_NAMED = 5  # names that a warning lists


def read_dump(
    files: InputFiles,
    given: ConfigurationInForce | None = NO_CONFIGURATION,
    server: Server | None = None,
    *,
    pods: bool = True,
    judged: bool = False,
) -> Reading:
    """Read files. Unreadable manifests are reported, and the other manifests are used.

    `given` is the configuration of `--config`, and `server` the server that the options name. Without `pods`, pods are decoded only if
    the configuration has mixed resources, for which pods are counted, and equal parts of objects are stored once. With `judged`, an invalid
    configuration is not an error, because the command reports it as findings.
    """
    input_files = read_files(files, keep=without_bookkeeping if pods else Trimmer().trim, given=given, judged=judged)
    warn_of_skipped(input_files.skipped)
    warn_of_misspelt(input_files.documents)
    documents = [*input_files.inventory, *input_files.built]
    objects = [document.placed for document in documents]
    reading = reading_of(
        map(GeneratedNames().name, objects) if pods else objects,
        features_of(server, input_files.in_force.configuration),
        in_force=input_files.in_force,
        places=tuple(document.origin for document in documents),
        pods=pods,
    )
    warn_of_duplicates(reading.typed)
    return replace(reading, skipped=tuple(input_files.skipped), made=input_files.made)


def read_as_installed(
    files: InputFiles, given: ConfigurationInForce | None = NO_CONFIGURATION, server: Server | None = None
) -> Reading:
    """Read files as if their configuration were installed: a fence taints the devices of the bridge's drivers."""
    from dra.objects import DeviceTaintRule
    from dra.wire import convert
    from webhook.claims import taint_rule

    reading = read_dump(files, given, server)
    bridge = reading.configuration.file.bridge
    if bridge is None or not bridge.fence:
        return reading
    rules = [convert(taint_rule(driver), DeviceTaintRule) for driver in bridge.drivers]
    return replace(reading, typed=TypedObjects((*reading.typed, *rules)))


def read_whole(
    files: InputFiles,
    given: ConfigurationInForce | None,
    server: Server | None,
    *,
    judged: bool = False,
) -> tuple[Reading, ReadFiles]:
    """Read files with their text, for a command that judges or edits each document and reports the skipped ones.

    Every file of the inventory has to be readable. Pods are decoded only if the configuration has mixed resources.
    """
    input_files = read_files(files, given=given, judged=judged)
    features = features_of(server, input_files.in_force.configuration)
    reading = reading_of_documents(input_files.documents, input_files.inventory, features, input_files.in_force)
    return replace(reading, skipped=tuple(input_files.skipped), made=input_files.made), input_files


def read_live(
    kubeconfig: str,
    context: str,
    needs: Needs = OUTLOOK,
    *,
    given: ConfigurationInForce | None = NO_CONFIGURATION,
    namespace: str = "",
    probe: bool = False,
) -> Reading:
    """Read the cluster that kubectl talks to; `given` is the configuration of `--config`."""

    async def look(cluster: Cluster) -> Reading:
        with progress() as report_progress:
            return await read_cluster(cluster, needs, report_progress, given=given, namespace=namespace, probe=probe)

    return loop.visit(kubeconfig, context, look, needs.page)


def warn_of_duplicates(typed: TypedObjects) -> None:
    """Warn of objects that are defined more than once."""
    if typed.defined_twice:
        twice = list(dict.fromkeys(typed.defined_twice))
        warn(f"objects are defined more than once, and the last definition counts: {list_first(twice, _NAMED)}")


def warn_of_misspelt(documents: Iterable[Document]) -> None:
    """Warn of misspelt workload kinds, each at its first occurrence: such objects are not read as workloads."""
    from dra.validation import misnamed_kind

    warned: set[str] = set()
    for document in documents:
        problem = misnamed_kind(document.object)
        if problem and problem.message not in warned:
            warn(f"{document.file}:{document.line}: {problem.message} ({problem.remedy})")
            warned.add(problem.message)
