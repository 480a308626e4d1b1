"""Deletion: finalizers, and dependents of owners (k8s.io/apiserver pkg/registry/generic, kubernetes pkg/controller/garbagecollector).

In a real cluster the garbage collector deletes dependents some time after the write. Here the write itself deletes them, so a caller sees
the final state as soon as the write returns. The real collector also deletes objects whose owner does not exist. This one deletes a new
object only if its owners were deleted in this store before, because objects of a snapshot may name owners that the snapshot lacks. A
namespace is deleted at once, although objects with finalizers are left in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cluster import resources
from cluster.resources import NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Callable

    from cluster.embedded.store import Store, StoredObject
    from cluster.resources import Key, Raw, Resource


# A controller that creates an object for a pod has read the pod shortly before, so older deletions do not matter.
_REMEMBERED = 10_000


class Deletions:
    """Removes objects from a store, with all that must be deleted with them."""

    def __init__(self, store: Store, now: Callable[[], str]) -> None:
        self._store = store
        self._now = now
        # Removed objects whose dependents are still to be handled: a list instead of recursion, because chains of owners may be long.
        self._removed: list[StoredObject] = []
        self._removed_uids: dict[str, None] = {}

    def delete(self, resource: Resource[Any], key: Key) -> None:
        """Delete an object, and then its dependents, and the content of a namespace. An object with finalizers is only marked."""
        self._delete(resource, key)
        if resource.id == NAMESPACES.id:
            for kind in [resources.BY_ID[resource_id] for resource_id in self._store.resources()]:
                for record in [*self._store.records(kind.id, key[1])] if kind.namespaced else ():
                    self._delete(kind, (key[1], record.meta.name))
        self._follow_up()

    def delete_orphan(self, resource: Resource[Any], key: Key) -> None:
        """Delete a new object if all its owners were deleted before it was created."""
        record = self._store.get(resource.id, key)
        owners = record.meta.owner_references if record else ()
        if owners and all(owner.uid in self._removed_uids for owner in owners):
            self.delete(resource, key)

    def drop(self, resource: Resource[Any], key: Key) -> None:
        """Remove an object and then its dependents. Finalizers of the stored version do not prevent it: the caller's update removed the last one."""
        self._drop(resource, key)
        self._follow_up()

    def _delete(self, resource: Resource[Any], key: Key) -> None:
        record = self._store.get(resource.id, key)
        if record is None:
            return
        if not record.meta.finalizers:
            self._drop(resource, key)
        elif not record.meta.deletion_timestamp:
            obj = record.plain()
            obj["metadata"] |= {"deletionTimestamp": self._now(), "deletionGracePeriodSeconds": 0}
            self._store.put(resource, key, obj)

    def _drop(self, resource: Resource[Any], key: Key) -> None:
        record = self._store.get(resource.id, key)
        if record is not None:
            self._store.remove(resource, key)
            self._removed.append(record)
            self._removed_uids[record.meta.uid] = None
            if len(self._removed_uids) > _REMEMBERED:
                del self._removed_uids[next(iter(self._removed_uids))]

    def _follow_up(self) -> None:
        try:
            while self._removed:
                uid = self._removed.pop().meta.uid
                for resource_id, key in self._store.dependents(uid):
                    resource = resources.BY_ID[resource_id]
                    # A dependent that has another owner, too, only loses the reference to this one.
                    owned = self._store.get(resource_id, key)
                    if owned is not None and all(owner.uid == uid for owner in owned.meta.owner_references):
                        self._delete(resource, key)
                    elif owned is not None:
                        self._disown(resource, key, owned, uid)
        finally:
            self._removed.clear()

    def _disown(self, resource: Resource[Any], key: Key, record: StoredObject, uid: str) -> None:
        obj: Raw = record.plain()
        owners = [owner for owner in obj["metadata"]["ownerReferences"] if owner.get("uid") != uid]
        obj["metadata"]["ownerReferences"] = owners
        self._store.put(resource, key, obj)
