"""Writes the CA bundle and the rules into webhook configurations, and reports whether all of them have the bundle.

The API server cannot call a webhook without a CA bundle, and with failurePolicy Fail it would reject every pod. So the generated
configurations have no rules when they are applied and call no webhook: the rules are in an annotation, and are written into the webhooks
together with the bundle. Applying the same manifest again removes neither, because an apply leaves fields alone that it does not mention.

If an annotation states that another program maintains the bundle (`certs.annotations`), only the rules are written, once there is a bundle.

A missing configuration (drawbridge started before `kubectl apply`) counts as done, because no API server calls a webhook by it. Only
caBundle and rules are patched, with a `test` of the resourceVersion that was read, so an administrator's concurrent edit wins, and the next
round tries again.
Configurations must be read before the bundle, so that an outdated bundle cannot replace a newer one that another replica has written.
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


KindAndConfiguration = tuple[resources.Resource[resources.Raw], resources.Raw]


async def read_webhooks(cluster: Cluster, names: Sequence[str]) -> list[KindAndConfiguration]:
    """Return the existing webhook configurations with these names."""
    configurations: list[KindAndConfiguration] = []
    for kind in KINDS:
        for name in names:
            with suppress(NotFound):
                configuration = await cluster.get(kind, name)
                configurations.append((kind, configuration))
    return configurations


async def ensure_bundle(cluster: Cluster, configurations: Sequence[KindAndConfiguration], bundle: bytes) -> bool:
    """Write the bundle into webhook configurations that were read before the bundle; report whether all of them have it now."""
    text = b64encode(bundle).decode()
    have_bundle = [await _ensure_bundle(cluster, kind, configuration, text) for kind, configuration in configurations]
    return all(have_bundle)


async def _ensure_bundle(
    cluster: Cluster, kind: resources.Resource[resources.Raw], configuration: resources.Raw, bundle: str
) -> bool:
    try:
        if bundle_changes := bundles(configuration, bundle):
            configuration = await _write(cluster, kind, configuration, bundle_changes)
    except NotFound:
        return True
    except (Conflict, Invalid):  # a failed `test` is Invalid
        return False
    if rule_changes := rules(configuration):
        try:
            await _write(cluster, kind, configuration, rule_changes)
        except ApiError as error:
            # An admission policy may forbid the change. Certificates are renewed nevertheless.
            logger.warning("cannot write the rules of a webhook configuration", extra={"configuration": configuration["metadata"]["name"], "problem": str(error)})  # fmt: skip
    return True


async def _write(
    cluster: Cluster,
    kind: resources.Resource[resources.Raw],
    configuration: resources.Raw,
    changes: Sequence[Operation],
) -> resources.Raw:
    metadata = configuration["metadata"]
    unchanged: Operation = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": metadata["resourceVersion"],
    }
    operations = Operations((unchanged, *changes))
    return await cluster.patch(kind, metadata["name"], operations)


def bundles(configuration: Mapping[str, Any], bundle: str) -> list[Operation]:
    """Return the operations that write the bundle; none if another program maintains it."""
    annotations = configuration["metadata"].get("annotations") or {}
    if annotations.get(BUNDLE_KEEPER) == "other" or any(name in annotations for name in OTHER_KEEPERS):
        return []
    return [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}
        for index, webhook in enumerate(configuration.get("webhooks") or ())
        if _bundle(webhook) != bundle
    ]


def rules(configuration: Mapping[str, Any]) -> list[Operation]:
    """Return the operations that write the annotated rules into the webhooks that have a bundle."""
    rules_by_name = _annotated_rules(configuration)
    operations: list[Operation] = []
    for index, webhook in enumerate(configuration.get("webhooks") or ()):
        name = webhook["name"]
        if name not in rules_by_name or not _bundle(webhook):
            continue
        annotated_rules = rules_by_name[name]
        if webhook.get("rules") != annotated_rules:
            path = f"/webhooks/{index}/rules"
            operations.append({"op": "add", "path": path, "value": annotated_rules})
    return operations


def _bundle(webhook: Mapping[str, Any]) -> str:
    return (webhook.get("clientConfig") or {}).get("caBundle") or ""


def _annotated_rules(configuration: Mapping[str, Any]) -> dict[str, object]:
    text = (configuration["metadata"].get("annotations") or {}).get(RULES, "")
    try:
        annotated = json.loads(text or "{}")
    except ValueError:
        return {}  # the annotation was edited by hand: the rules stay as they are
    return annotated if isinstance(annotated, dict) else {}
