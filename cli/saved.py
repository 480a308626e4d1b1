"""`drawbridge snapshot`: reads the objects of a cluster that decide about devices, redacts them, and writes them to a file."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from analysis.configuration import CONFIG_KEY, configuration_in_force
from analysis.loading import SURVEY, Visit, evidence_in, identity_of, look_around, read_installed
from analysis.redaction import Redaction
from cli.output import progress
from cluster import resources
from cluster.manifests import unfold
from dra.raw import inside
from webhook.state import IN_CONFIG_MAPS, outline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analysis.configuration import ConfigurationInForce
    from analysis.loading import ObjectIdentity, Unread
    from cluster.protocol import Cluster
    from dra.raw import Object


class SnapshotRead(NamedTuple):
    """The objects of a snapshot as lines of JSON, and how many of their values are left out."""

    lines: list[bytes]
    left_out: int
    version: str
    unread: Sequence[Unread]
    in_force: ConfigurationInForce


async def read(cluster: Cluster, given: ConfigurationInForce | None, namespace: str) -> SnapshotRead:
    """Read the objects that decide about devices, and the evidence: objects with the settings of device plugins and autoscalers."""
    evidence: dict[ObjectIdentity, Object] = {}
    merged: set[ObjectIdentity] = set()

    def keep(redaction: Redaction, obj: Object) -> bytes:
        """Redact an object, except its settings of device plugins and autoscalers."""
        redacted = redaction.redact(obj)
        identity = identity_of(obj)
        if identity in evidence:
            merged.add(identity)
            _merge(redacted, evidence[identity])
        return msgspec.json.encode(redacted)

    installed, problem = await read_installed(cluster)
    in_force = configuration_in_force(given, installed)._replace(problem="" if given else problem)
    configuration = in_force.configuration
    redaction = Redaction(configuration)
    server = await cluster.server(probe=False)
    objects, unread = await look_around(cluster, evidence_in(configuration, narrow=bool(namespace)))
    evidence.update({identity_of(obj): _outlined(obj) for obj in objects})
    config_maps = [document.object for document in installed if document.object.get("kind") == "ConfigMap"]
    evidence.update({identity_of(config_map): _as_installed(config_map) for config_map in config_maps})
    with progress() as report_progress:
        visit = Visit(cluster, namespace or None, report_progress, partial(keep, redaction))
        # The kinds that only doctor, simulate, explain and quota read.
        further_kinds: tuple[resources.Resource[Any], ...] = (
            resources.LEASES,
            resources.POD_DISRUPTION_BUDGETS,
            resources.DEVICE_QUOTAS,
            resources.VALIDATING_WEBHOOKS,
        )
        objects_read = await visit.read((*further_kinds, *SURVEY.kinds))
        objects_read += await visit.read_custom_kinds()
    lines = redaction.finish(objects_read)
    lines += [msgspec.json.encode(obj) for name, obj in evidence.items() if name not in merged]
    return SnapshotRead(
        lines,
        redaction.left_out,
        server.version,
        sorted([*unread, *visit.unread], key=lambda missed: missed.kind),
        in_force,
    )


def _as_installed(config_map: Object) -> Object:
    """Reduce the ConfigMap of an installation to its configuration."""
    metadata = config_map["metadata"]
    data = inside(config_map, "data")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "data": {CONFIG_KEY: data[CONFIG_KEY]} if CONFIG_KEY in data else {},
    }


def _outlined(obj: Object) -> Object:
    """Reduce an object of a device plugin or autoscaler to the settings that drawbridge reads; texts of ConfigMaps become JSON."""
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


def _merge(obj: dict[str, Any], patch: dict[str, Any]) -> None:
    """Merge a patch into an object. List members with the same name are merged."""
    for key, value in patch.items():
        match obj.get(key), value:
            case dict() as current, dict():
                _merge(current, value)
            case list() as current, [dict(), *_]:
                by_name = {item["name"]: item for item in current}
                for member in value:
                    if member["name"] in by_name:
                        _merge(by_name[member["name"]], member)
                    else:
                        current.append(member)
            case _:
                obj[key] = value
