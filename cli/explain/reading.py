"""Reading for an explanation: files, or a live cluster page by page, never writing, and going on without what may not be read. The rim."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from typing import TYPE_CHECKING, Any

from cli import contract as inputs
from cli.configuration import features_of
from cli.explain.scene import Scene, scene_of, trim
from cli.survey import Unread, Visit
from cluster import resources
from webhook import names
from webhook.state import Features

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cluster.protocol import Cluster
    from cluster.resources import Resource

    _Object = dict[str, Any]

# What says which devices there are, and who has them.
HELD: tuple[Resource[Any], ...] = (
    resources.RESOURCE_CLAIMS,
    resources.NODES,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_SLICES,
    resources.DEVICE_TAINT_RULES,
    resources.DEVICE_COMPATIBILITIES,
)
# Claims before pods: a pod that came between the two is no ghost.
KINDS: tuple[Resource[Any], ...] = (
    *HELD,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.DEVICE_QUOTAS,
    resources.NAMESPACES,
    resources.RESOURCE_QUOTAS,
    resources.LIMIT_RANGES,
    resources.PODS,
)


def read_dump(files: Sequence[str]) -> Scene:
    """Read files; what cannot be read is named, and the rest goes on."""
    documents = inputs.read_what_can_be(files, keep=trim)
    objects = [document.object for document in documents]
    return scene_of(objects, features_of(None), seals=seals_among(objects))


def visit(
    kubeconfig: str,
    context: str,
    *,
    namespace: str = "",
    pod: str = "",
    kinds: Sequence[Resource[Any]] = KINDS,
    page: str = "docs/explain.md",
) -> Scene:
    """Read a live cluster; `pod` is the name of the one whose whole object is kept, `page` says which rights it takes."""
    from cli import loop

    async def look(cluster: Cluster) -> Scene:
        return await gather(cluster, namespace, pod, kinds)

    return loop.visit(kubeconfig, context, look, page)


async def gather(cluster: Cluster, namespace: str, pod: str = "", kinds: Sequence[Resource[Any]] = KINDS) -> Scene:
    """Read some kinds of a cluster. What may be read in one namespace only is read there, and named as not whole."""
    server = await cluster.server(probe=False)
    everywhere = await _read(cluster, None, kinds)
    objects = everywhere.objects
    unread = everywhere.unread
    if namespace:
        missed = {one.kind for one in unread}
        narrow = [kind for kind in kinds if kind.namespaced and kind.id in missed]
        there = await _read(cluster, namespace, narrow)
        objects += there.objects
        unread += [_in(namespace, one) for one in there.unread]
    known = Features.seen(server.minor, server.gates)
    return scene_of(
        objects,
        known,
        unread=unread,
        server=server,
        raw=(pod,),
    )


async def _read(cluster: Cluster, namespace: str | None, kinds: Iterable[Resource[Any]]) -> Visit[_Object]:
    """Read kinds one after the other: the first come before the last."""
    with inputs.progress() as tell:
        looking = Visit(cluster, namespace, tell, trim)
        for kind in kinds:
            await looking.read((kind,))
    return looking


def _in(namespace: str, one: Unread) -> Unread:
    return Unread(f"{one.kind} in {namespace}", one.reason)


def seals_among(objects: Iterable[_Object]) -> tuple[bytes, ...]:
    """The keys of the seal, if somebody gave their Secret: with them a record can be verified."""
    from certs import material

    for obj in objects:
        metadata = obj.get("metadata")
        if obj.get("kind") != "Secret" or not isinstance(metadata, dict):
            continue
        if metadata.get("name") != f"{names.NAME}-seal":
            continue
        sealing = _decoded(obj.get("data"))
        return material.decode(material.Data(sealing=sealing)).seals.keys
    return ()


def _decoded(data: Any) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name, value in data.items() if isinstance(data, dict) else ():
        try:
            found[str(name)] = b64decode(str(value), validate=True)
        except (NotBase64, ValueError):
            continue
    return found
