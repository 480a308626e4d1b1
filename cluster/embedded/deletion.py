"""Deletion: finalizers, dependents of owners, and the content of namespaces
(k8s.io/apiserver pkg/registry/generic, kubernetes pkg/controller/garbagecollector and .../namespace).

In a real cluster the garbage collector and the namespace controller delete these objects some time after the write. Here the write itself
deletes them, so a caller sees the final state as soon as the write returns. The real collector also deletes objects whose owner does not
exist. This one acts only when an owner is deleted in this store, because objects of a snapshot may name owners that the snapshot lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster import resources
from cluster.resources import NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.embedded.store import StoredObject, Writes
    from cluster.resources import Key, Raw, Resource

FOREGROUND = "foregroundDeletion"
Place = tuple["Resource[Any]", "Key"]


class Deletions:
    """Removes objects from a store, with all that must be deleted with them."""

    def __init__(self, writes: Writes, now: Callable[[], str]) -> None:
        self._writes = writes
        self._store = writes.store
        self._now = now
        # Removed objects whose dependents are still to be handled: a list instead of recursion, because chains of owners may be long.
        self._removed: list[StoredObject] = []

    def delete(self, resource: Resource[Any], key: Key) -> None:
        """Delete an object in the background: first the object, then its dependents."""
        self._delete(resource, key)
        self._follow_up()

    def delete_foreground(self, resource: Resource[Any], key: Key) -> None:
        """Delete an object in the foreground: mark the object, and remove it after its last dependent."""
        record = self._store.get(resource.id, key)
        if record is None:
            return
        self._mark(resource, key, record, FOREGROUND)
        for dependent in self._dependents(record.meta.uid):
            self._delete(*dependent)
        self._release_owner(resource, key)
        self._follow_up()

    def orphan(self, uid: str) -> None:
        """Remove the reference to an owner from all its dependents."""
        for resource, key in self._dependents(uid):
            self._disown(resource, key, uid)

    def delete_namespace(self, key: Key) -> None:
        """Delete the content of a namespace; the namespace is removed with the last object."""
        record = self._store.get(NAMESPACES.id, key)
        if record is None:
            return
        if not record.meta.deletion_timestamp:
            obj = record.plain()
            obj["metadata"]["deletionTimestamp"] = self._now()
            obj["status"] = {"phase": "Terminating"}
            self._writes.put(NAMESPACES, key, obj)
        for content in self._content(key[1]):
            self._delete(*content)
        self._release_namespace(key[1])
        self._follow_up()

    def drop(self, resource: Resource[Any], key: Key) -> None:
        """Remove an object and then its dependents. Finalizers of the stored version do not prevent it: the caller's update removed the last one."""
        self._drop(resource, key)
        self._follow_up()

    def _delete(self, resource: Resource[Any], key: Key) -> None:
        record = self._store.get(resource.id, key)
        if record is None:
            return
        if record.meta.finalizers:
            self._mark(resource, key, record)
        else:
            self._drop(resource, key)

    def _drop(self, resource: Resource[Any], key: Key) -> None:
        record = self._store.get(resource.id, key)
        if record is not None:
            self._writes.remove(resource, key, record)
            self._removed.append(record)

    def _follow_up(self) -> None:
        try:
            while self._removed:
                record = self._removed.pop()
                uid = record.meta.uid
                for resource, key in self._dependents(uid):
                    # A dependent that has another owner, too, only loses the reference to this one.
                    owned = self._store.get(resource.id, key)
                    if owned is not None and all(owner.uid == uid for owner in owned.meta.owner_references):
                        self._delete(resource, key)
                    else:
                        self._disown(resource, key, uid)
                for owner in record.meta.owner_references:
                    kind = resources.BY_KIND.get((owner.api_version.rpartition("/")[0], owner.kind))
                    if kind is not None:
                        self._release_owner(kind, (record.meta.namespace if kind.namespaced else "", owner.name))
                self._release_namespace(record.meta.namespace)
        finally:
            self._removed.clear()

    def _dependents(self, uid: str) -> list[Place]:
        return [(resources.BY_ID[resource], key) for resource, key in self._store.dependents(uid)]

    def _mark(self, resource: Resource[Any], key: Key, record: StoredObject, finalizer: str = "") -> None:
        obj = record.plain()
        meta: Raw = obj["metadata"]
        finalizers = meta.get("finalizers", ())
        has_finalizer = not finalizer or finalizer in finalizers
        if meta.get("deletionTimestamp") and has_finalizer:
            return
        meta.setdefault("deletionTimestamp", self._now())
        meta.setdefault("deletionGracePeriodSeconds", 0)
        if finalizer:
            meta["finalizers"] = [*finalizers, finalizer]
        self._writes.put(resource, key, obj)

    def _disown(self, resource: Resource[Any], key: Key, uid: str) -> None:
        record = self._store.get(resource.id, key)
        if record is None:
            return
        obj = record.plain()
        metadata = obj["metadata"]
        owners = [owner for owner in metadata.pop("ownerReferences", ()) if owner.get("uid") != uid]
        if owners:
            metadata["ownerReferences"] = owners
        self._writes.put(resource, key, obj)

    def _release_owner(self, resource: Resource[Any], key: Key) -> None:
        """Remove an owner in foreground deletion once its last dependent is gone."""
        record = self._store.get(resource.id, key)
        if record is None or FOREGROUND not in record.meta.finalizers or self._store.dependents(record.meta.uid):
            return
        others = [finalizer for finalizer in record.meta.finalizers if finalizer != FOREGROUND]
        if not others:
            self._drop(resource, key)
            return
        obj = record.plain()
        obj["metadata"]["finalizers"] = others
        self._writes.put(resource, key, obj)

    def _release_namespace(self, name: str) -> None:
        record = self._store.get(NAMESPACES.id, ("", name))
        if record is not None and record.meta.deletion_timestamp and not self._content(name):
            self._drop(NAMESPACES, ("", name))

    def _content(self, namespace: str) -> list[Place]:
        return [
            (resources.BY_ID[resource], (record.meta.namespace, record.meta.name))
            for resource in self._store.resources()
            if resources.BY_ID[resource].namespaced
            for record in self._store.records(resource, namespace)
        ]
