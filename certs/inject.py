"""The bundle in the webhook configurations: put it there, open the door, and say whether it is everywhere.

A webhook without a bundle cannot be called: the API server would not believe our certificate, and under failurePolicy Fail
turn every pod back. So a generated configuration calls nobody when it is applied: it has no rules. They stand in an
annotation, and go to their places together with the bundle. What an apply does not mention it leaves alone, so the same
manifest applied again takes neither away; and whoever applies it where no controller runs has changed nothing for anybody.

Whose annotation says that another keeps the bundle (`certs.annotations`) is given its rules as
soon as there is a bundle, and never a bundle.

A configuration that is not there yet (drawbridge started before `kubectl apply`) counts as fine: nobody calls us through it.
Only caBundle and rules are touched, with a `test` on the version that was read, so a concurrent edit by the admin wins and
is looked at again on the next round.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from certs.annotations import BUNDLE_KEEPER, OTHER_KEEPERS, RULES
from cluster import resources
from cluster.errors import Conflict, Invalid, NotFound
from cluster.patch import Operations

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    wanted = changes(found, bundle)
    if not wanted:
        return True
    version = {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]}
    try:
        await cluster.patch(kind, name, Operations((version, *wanted)))
    except (Conflict, Invalid, NotFound):  # a failed `test` is Invalid
        return False
    return True


def changes(configuration: Mapping[str, Any], bundle: str) -> list[dict[str, object]]:
    """Say what has to be written into a configuration for our bundle to be in it, and the rules where a bundle is."""
    annotations = configuration["metadata"].get("annotations") or {}
    ours = annotations.get(BUNDLE_KEEPER) != "other" and not any(name in annotations for name in OTHER_KEEPERS)
    rules = _rules(annotations.get(RULES, ""))
    made: list[dict[str, object]] = []
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        present = (webhook.get("clientConfig") or {}).get("caBundle") or ""
        if ours and present != bundle:
            made.append({"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle})
        wanted = rules.get(webhook["name"])
        if wanted is not None and (ours or present) and webhook.get("rules") != wanted:
            made.append({"op": "add", "path": f"/webhooks/{index}/rules", "value": wanted})
    return made


def _rules(text: str) -> dict[str, object]:
    try:
        read = json.loads(text or "{}")
    except ValueError:
        return {}  # written by hand: nobody is called, and nothing else suffers
    return read if isinstance(read, dict) else {}
