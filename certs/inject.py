"""The bundle in the webhook configurations: put it there, put the rules in their places, and say whether it is everywhere.

A webhook without a bundle cannot be called: the API server would not believe our certificate, and under failurePolicy Fail
turn every pod back. So a generated configuration calls no webhook when it is applied: it has no rules. They stand in an
annotation, and go to their places together with the bundle. What an apply does not mention it leaves alone, so the same
manifest applied again takes neither away; and applied where no controller runs it changes nothing.

Whose annotation says that another keeps the bundle (`certs.annotations`) is given its rules as
soon as there is a bundle, and never a bundle.

A configuration that is not there yet (drawbridge started before `kubectl apply`) counts as fine: no API server calls through it.
Only caBundle and rules are touched, with a `test` on the version that was read, so a concurrent edit by the admin wins and
is looked at again on the next round. Configurations are read before the bundle is: then a bundle that has become old
meanwhile cannot take the place of a newer one that another replica has put in.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from certs.annotations import BUNDLE_KEEPER, OTHER_KEEPERS, RULES
from cluster import resources
from cluster.errors import ApiError, Conflict, Invalid, NotFound
from cluster.patch import Operations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cluster.protocol import Cluster

Operation = dict[str, object]
logger = logging.getLogger("drawbridge.inject")
KINDS = (resources.MUTATING_WEBHOOKS.raw, resources.VALIDATING_WEBHOOKS.raw)


Found = tuple[resources.Resource[resources.Raw], resources.Raw]


async def read(cluster: Cluster, names: Sequence[str]) -> list[Found]:
    """Read the webhook configurations of these names that are there."""
    found: list[Found] = []
    for kind in KINDS:
        for name in names:
            with suppress(NotFound):
                configuration = await cluster.get(kind, name)
                found.append((kind, configuration))
    return found


async def ensure(cluster: Cluster, found: Sequence[Found], bundle: bytes) -> bool:
    """Put the bundle into webhook configurations that were read before it; say whether all of them carry it now."""
    text = b64encode(bundle).decode()
    done = [await _ensure(cluster, kind, configuration, text) for kind, configuration in found]
    return all(done)


async def _ensure(cluster: Cluster, kind: resources.Resource[resources.Raw], found: resources.Raw, bundle: str) -> bool:
    try:
        if missing := bundles(found, bundle):
            found = await _write(cluster, kind, found, missing)
    except NotFound:
        return True
    except (Conflict, Invalid):  # a failed `test` is Invalid
        return False
    if waiting := rules(found):
        try:
            await _write(cluster, kind, found, waiting)
        except ApiError as error:
            # A policy may hold us to the rules that are there. Certificates are renewed all the same.
            logger.warning("rules were not put in their places", extra={"configuration": found["metadata"]["name"], "problem": str(error)})  # fmt: skip
    return True


async def _write(
    cluster: Cluster, kind: resources.Resource[resources.Raw], found: resources.Raw, changes: Sequence[Operation]
) -> resources.Raw:
    metadata = found["metadata"]
    unchanged: Operation = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": metadata["resourceVersion"],
    }
    operations = Operations((unchanged, *changes))
    return await cluster.patch(kind, metadata["name"], operations)


def bundles(configuration: Mapping[str, Any], bundle: str) -> list[Operation]:
    """What has to be written for our bundle to be in a configuration, unless another keeps it."""
    annotations = configuration["metadata"].get("annotations") or {}
    if annotations.get(BUNDLE_KEEPER) == "other" or any(name in annotations for name in OTHER_KEEPERS):
        return []
    return [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        if _bundle(webhook) != bundle
    ]


def rules(configuration: Mapping[str, Any]) -> list[Operation]:
    """What has to be written for the rules that wait to be in their places, where there is a bundle to call with."""
    waiting = _waiting(configuration)
    operations: list[Operation] = []
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        name = webhook["name"]
        if name not in waiting or not _bundle(webhook):
            continue
        wanted = waiting[name]
        if webhook.get("rules") != wanted:
            path = f"/webhooks/{index}/rules"
            operations.append({"op": "add", "path": path, "value": wanted})
    return operations


def _bundle(webhook: Mapping[str, Any]) -> str:
    return (webhook.get("clientConfig") or {}).get("caBundle") or ""


def _waiting(configuration: Mapping[str, Any]) -> dict[str, object]:
    text = (configuration["metadata"].get("annotations") or {}).get(RULES, "")
    try:
        read = json.loads(text or "{}")
    except ValueError:
        return {}  # written by hand: no webhook is called, and nothing else suffers
    return read if isinstance(read, dict) else {}
