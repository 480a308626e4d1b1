"""Reading a cluster into the lines of a snapshot, and writing them to a file that is whole or not there. The rim."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from cli.loading import Visit
from cluster import resources

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cli.loading import Unread
    from cli.snapshot.redaction import Redaction
    from cluster.protocol import Cluster

# What other commands than survey look at: doctor, simulate, explain, quota.
_ALSO: tuple[resources.Resource[Any], ...] = (
    resources.LEASES,
    resources.POD_DISRUPTION_BUDGETS,
    resources.DEVICE_QUOTAS,
    resources.VALIDATING_WEBHOOKS,
)
_OPENS = b'{"apiVersion":"v1","kind":"List","items":[\n'
_CLOSES = b"\n]}\n"


class Recorded(NamedTuple):
    """The objects of a cluster, each as one line of JSON, and what could not be read."""

    lines: list[bytes]
    unread: list[Unread]
    server: str


async def record(
    cluster: Cluster, namespace: str | None, tell: Callable[[str], None], redaction: Redaction
) -> Recorded:
    """Read everything that decides about devices. With a namespace, only that and what the whole cluster has."""

    def keep(obj: dict[str, Any]) -> bytes:
        bare = redaction.redact(obj)
        return msgspec.json.encode(bare)

    server = await cluster.server(probe=False)
    visit = Visit(cluster, namespace, tell, keep)
    await visit.look(_ALSO)
    return Recorded(redaction.finish(visit.objects), visit.unread, server.version)


def write(lines: Iterable[bytes], path: Path, *, replace: bool) -> None:
    """Write a List that kubectl could have printed. Nobody else may read the file, and an older one stays until it is whole."""
    with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            file.write(_OPENS)
            for number, line in enumerate(lines):
                file.write(b",\n" if number else b"")
                file.write(line)
            file.write(_CLOSES)
            file.flush()
            os.fsync(file.fileno())
            if path.exists() and not replace:
                raise FileExistsError(path)
            Path(file.name).replace(path)
        finally:
            with suppress(FileNotFoundError):
                Path(file.name).unlink()
