"""Treats manifests as if they were applied: sets namespaces, skips objects that controllers create, and makes the webhook's state."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cli.output import print_to_stderr, quiet, warn
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from analysis.loading import Reading
    from cluster.manifests import Document
    from webhook.state import State
    from webhook.translate import Decision

# Unreadable objects of these kinds are not reported here, because the webhook's decision about such an object says what is wrong.
_JUDGED = frozenset(("Pod", "ResourceClaim", "ResourceClaimTemplate"))


def state_of_files(reading: Reading) -> State:
    """Make the state that the webhook would have if the documents were applied; report objects that cannot be read."""
    from cli.answers import report_problems
    from cli.files import problems_of_unreadable

    unreadable = reading.typed.unreadable
    silent = [
        document for document in unreadable if reading.documents[document.number].object.get("kind") not in _JUDGED
    ]
    report_problems(problems_of_unreadable(reading.documents, silent))
    return reading.state


def print_assumed(assumed: Iterable[str]) -> None:
    """Print the keys whose meaning was assumed, because no fleet is known."""
    keys = list(dict.fromkeys(assumed))
    if keys and not quiet():
        subject = f"{keys[0]} is a whole device" if len(keys) == 1 else f"{' and '.join(keys)} are whole devices"
        print_to_stderr(f"assumed: {subject}; use --inventory for the devices of your cluster")


def warn_no_classes(documents: Iterable[Document], inventory: Sequence[Document], decided: Iterable[Decision]) -> None:
    """Warn if keys stay or claims are refused because the files contain a Node or ResourceSlice, and so count as a cluster."""
    from webhook.refusals import Code

    kinds = [(str(document.object.get("kind")), document) for document in documents]
    fleet_objects = [(kind, document) for kind, document in kinds if kind in ("Node", "ResourceSlice")]
    has_classes = any(kind == "DeviceClass" for kind, _ in kinds)
    if inventory or not fleet_objects:
        return
    if not any(decision.code == Code.NO_CLASS if has_classes else decision.outcome == "left" for decision in decided):
        return
    kind, first = fleet_objects[0]
    where = f"{first.file}:{first.line}"
    warn(
        f"{where}: this {kind} makes the files count as a cluster {'with only their' if has_classes else 'without'} DeviceClasses; if it is not of your cluster, --exclude its file"
    )


def in_namespace(documents: Sequence[Document], namespace: str) -> tuple[Sequence[Document], frozenset[int]]:
    """Set the namespaces of objects: as kustomize, Flux or Argo CD do, and of objects that name none as kubectl does.

    Also return the numbers of objects in other namespaces.
    """
    from analysis.configuration import KIND
    from cluster import resources
    from dra.raw import mapping

    placed: list[Document] = []
    elsewhere = set()
    for number, document in enumerate(documents):
        metadata = mapping(document.object.get("metadata"))
        kind = resources.resource_of(document.object)
        has_none = (kind is not None and not kind.namespaced) or document.object.get("kind") == KIND
        own = document.namespace or metadata.get("namespace")
        if namespace and not own and not has_none:
            obj = {**document.object, "metadata": {**metadata, "namespace": namespace}}
            placed.append(replace(document, object=obj))
        else:
            placed.append(replace(document, object=document.placed) if document.is_placed else document)
            if namespace and own != namespace and not has_none:
                elsewhere.add(number)
    return placed, frozenset(elsewhere)


def find_controlled(documents: Sequence[Document]) -> frozenset[int]:
    """Return the numbers of the objects whose controller is among these documents; print how many objects are skipped for this reason.

    Anyone can write an owner reference into a manifest, so the controller must have the referenced uid, which only a server assigns.
    """
    from analysis.loading import inside, items, text

    metadata = [inside(document.object, "metadata") for document in documents]
    uids = {meta["uid"] for meta in metadata if isinstance(meta.get("uid"), str) and meta["uid"]}
    controlled = frozenset(
        number
        for number, meta in enumerate(metadata)
        if meta.get("uid")
        and any(
            owner.get("controller") is True and text(owner.get("uid")) in uids
            for owner in items(meta, "ownerReferences")
        )
    )
    if controlled and not quiet():
        print_to_stderr(f"skipped: {count_of(len(controlled), 'object')} whose controller is in the input")
    return controlled
