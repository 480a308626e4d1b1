"""The bundle in the webhook configurations: put it there, and say whether it is everywhere.

A configuration that is not there yet (drawbridge started before `kubectl apply`) counts as fine: nobody calls us through it.
Only `caBundle` is touched, with a `test` on the version that was read, so a concurrent edit by the admin wins and is
looked at again on the next round.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from cluster import resources
from cluster.errors import Conflict, Invalid, NotFound
from cluster.patch import Operations

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.protocol import Cluster

KINDS = (resources.MUTATING_WEBHOOKS.raw, resources.VALIDATING_WEBHOOKS.raw)


async def ensure(cluster: Cluster, names: Sequence[str], bundle: bytes) -> bool:
    """Put the bundle into every webhook configuration of these names; say whether all of them carry it now."""
    done = [await _ensure(cluster, kind, name, b64encode(bundle).decode()) for kind in KINDS for name in names]
    return all(done)


async def _ensure(cluster: Cluster, kind: resources.Resource[resources.Raw], name: str, bundle: str) -> bool:
    try:
        found = await cluster.get(kind, name)
    except NotFound:
        return True
    stale = [
        index
        for index, webhook in enumerate(found.get("webhooks") or ())
        if (webhook.get("clientConfig") or {}).get("caBundle") != bundle
    ]
    if not stale:
        return True
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]}
    changes = [{"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle} for index in stale]
    try:
        await cluster.patch(kind, name, Operations((version, *changes)))
    except (Conflict, Invalid, NotFound):  # a failed `test` is Invalid
        return False
    return True
