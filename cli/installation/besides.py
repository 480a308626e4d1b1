"""What stands beside any scheduler, or holds others: the onlooker, the agent on nodes, our driver and the adapter, the guards, protected claims."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cli.installation.placing import (
    ADAPTER,
    DRIVER,
    GUARDS,
    NAMESPACE,
    NODE_AGENT,
    ONLOOKER,
    PROTECTED_CLAIMS,
    adapt,
    listed,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MANAGED = "drawbridge-managed-drivers"
NODES = "-nodes"  # of the namespace beside it: who runs on nodes needs what the first one allows nobody


def on_looking(namespace: str, image: str) -> Iterable[dict[str, Any]]:
    """What the onlooker adds, as its kustomize component would print it for this namespace and image."""
    from cluster import manifests

    for document in manifests.read(listed(ONLOOKER)):
        yield adapt(document.object, namespace, image, "", ())


def on_nodes(namespace: str, image: str) -> Iterable[dict[str, Any]]:
    """What the audit agent adds, as its kustomize component would print it, in a namespace of its own beside this one."""
    from cluster import manifests

    for document in manifests.read(listed(NODE_AGENT)):
        said = json.dumps(document.object).replace(f"{NAMESPACE}{NODES}", f"{namespace}{NODES}")
        yield adapt(json.loads(said), f"{namespace}{NODES}", image, "", ())


def driving(image: str) -> Iterable[dict[str, Any]]:
    """What our driver adds, as its kustomize component would print it: in a namespace of its own, wherever the rest is."""
    return _apart(DRIVER, "drawbridge-driver", image)


def adapting(image: str) -> Iterable[dict[str, Any]]:
    """What the adapter of device plugins adds, in the same way."""
    return _apart(ADAPTER, "drawbridge-adapter", image)


def _apart(folder: Path, namespace: str, image: str) -> Iterable[dict[str, Any]]:
    from cluster import manifests

    for document in manifests.read(listed(folder)):
        yield adapt(document.object, namespace, image, "", ())


def protecting() -> Iterable[dict[str, Any]]:
    """The policy by which claims of pods have their finalizer from the beginning, as its kustomize component would print it."""
    return _apart(PROTECTED_CLAIMS, "", "")


def guarding(namespace: str, drivers: Iterable[str]) -> Iterable[dict[str, Any]]:
    """What the guards are, as their kustomize component would print them for this namespace, with the drivers that are managed."""
    from cluster import manifests

    for document in manifests.read(listed(GUARDS)):
        obj = document.object
        adapt(obj, namespace, "", "", ())
        if obj["metadata"]["name"] == MANAGED:
            obj["data"] = dict.fromkeys(drivers, "given by the bridge")
        if obj["kind"] == "ValidatingAdmissionPolicyBinding":
            reference = obj["spec"].get("paramRef", {})
            reference["namespace"] = namespace
        yield obj
