"""The verbs of an API server over a store, one whole write at a time, with what follows from it: cascading deletes,
finalizers, namespaces that empty themselves.

Synchronous and without I/O; `cluster.embedded` puts time, ids, waiting and the journal around it. The garbage collector
and the namespace controller are part of a write here, so a test never waits for them. Unlike the real collector this
one acts only when an owner is seen to go, so objects loaded from a snapshot may name owners that were left out of it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from cluster import registry, resources, strategies
from cluster.apply import applied
from cluster.defaults import defaulted
from cluster.errors import AlreadyExists, BadRequest, Cause, Conflict, Invalid, NotFound
from cluster.patch import Apply, Merge, Operations, merged, operated, same
from cluster.resources import NAMESPACES, PODS, Raw, Resource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cluster.patch import Patch
    from cluster.protocol import Propagation
    from cluster.registry import Identity, Validator
    from cluster.resources import Key
    from cluster.store import Entry, Record, Store

_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"


class ApiServer:
    """Reads and writes one store by the API's rules."""

    def __init__(
        self,
        store: Store,
        identity: Identity,
        *,
        validators: Mapping[str, Validator] | None = None,
        committed: Callable[[Sequence[tuple[str, Entry]]], None] = lambda _: None,
    ) -> None:
        self.store = store
        self._identity = identity
        self._validators = validators or {}
        # Told of every write with all that followed from it. If it raises, nothing of that has happened.
        self._committed = committed
        self._entries: list[tuple[str, Entry]] = []

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Do one write whole or not at all. Nobody looks in between, since nothing here waits."""
        try:
            yield
            if self._entries:
                self._committed(self._entries)
        except BaseException:
            for resource, entry in reversed(self._entries):
                self.store.undo(resource, entry)
            raise
        finally:
            self._entries = []

    def check(self, resource: Resource[Any]) -> None:
        """Refuse a resource that is not served."""
        known = resources.BY_ID.get(resource.id)
        if known is None or known.version != resource.version:
            raise NotFound("the server could not find the requested resource")

    def get(self, resource: Resource[Any], name: str, namespace: str | None) -> Record:
        """The present record of an object, or NotFound."""
        self.check(resource)
        record = self.store.get(resource.id, _key(resource, name, namespace))
        if record is None:
            raise _not_found(resource, name)
        return record

    def create(self, resource: Resource[Any], obj: Raw, namespace: str | None, *, dry_run: bool) -> bytes:
        """Store a new object; the answer is how it was (or, in a dry run, would be) stored."""
        self.check(resource)
        new = registry.created(resource, obj, namespace, self._identity)
        new = strategies.prepared(resource.id, new, None, self._identity.now())
        key = resources.key(new)
        if resource.namespaced:
            self._check_namespace(resource, *key)
        if self.store.get(resource.id, key) is not None:
            raise AlreadyExists(f'{resource.id} "{key[1]}" already exists')
        self._validate(resource, new, None, "")
        return self._answer(resource, key, new, dry_run=dry_run)

    def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Patch,
        namespace: str | None,
        subresource: str,
        *,
        dry_run: bool,
    ) -> bytes:
        """Change an object; a patch that changes nothing writes nothing."""
        self.check(resource)
        if subresource and (subresource != "status" or not resource.status):
            raise NotFound(f"the server could not find the requested resource ({resource.id}/{subresource})")
        key = _key(resource, name, namespace)
        record = self.store.get(resource.id, key)
        if record is None:
            if isinstance(patch, Apply) and not subresource:
                return self._apply_new(resource, name, patch, namespace, dry_run=dry_run)
            raise _not_found(resource, name)
        old = record.plain()
        asked = self._patched(old, patch, subresource)
        if not isinstance(asked, dict):
            raise Invalid(f"the patch leaves no object of {resource.id}, but {asked!r}")
        new = registry.updated(resource, old, asked, subresource)
        new = strategies.prepared(resource.id, new, old, self._identity.now())
        if same(old, new):
            return record.data
        self._validate(resource, new, old, subresource)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return self._answer_last(resource, key, new, dry_run=dry_run)
        return self._answer(resource, key, new, dry_run=dry_run)

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None,
        *,
        uid: str,
        resource_version: str,
        propagation: Propagation,
        dry_run: bool,
    ) -> None:
        """Delete an object and what it owns, or mark it where finalizers hold it."""
        key = _key(resource, name, namespace)
        record = self.get(resource, name, namespace)
        _check_preconditions(resource, record, uid, resource_version)
        if dry_run:
            return
        if resource.id == NAMESPACES.id:
            self._delete_namespace(key)
        elif propagation == "Foreground":
            self._delete_foreground(resource, key)
        else:
            if propagation == "Orphan":
                self._orphan(record.meta.uid)
            self._delete(resource, key)

    def bind(self, name: str, namespace: str, node: str, *, uid: str, dry_run: bool) -> None:
        """Assign a pod to a node (pkg/registry/core/pod/storage, assignPod)."""
        key = (namespace, name)
        record = self.get(PODS, name, namespace)
        _check_preconditions(PODS, record, uid, "")
        pod = record.plain()
        refusal = f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} '
        if pod["metadata"].get("deletionTimestamp"):
            raise Conflict(f"{refusal}is being deleted, cannot be assigned to a host")
        if pod["spec"].get("nodeName"):
            raise Conflict(f'{refusal}is already assigned to node "{pod["spec"]["nodeName"]}"')
        if pod["spec"].get("schedulingGates"):
            raise registry.invalid(PODS, name, [Cause("spec.schedulingGates", "Forbidden: the pod is gated")])
        status = pod.get("status") or {}
        others = [one for one in status.get("conditions") or () if one.get("type") != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._identity.now()}
        pod["spec"] = {**pod["spec"], "nodeName": node}
        pod["status"] = {**status, "conditions": [*others, scheduled]}
        self._answer(PODS, key, pod, dry_run=dry_run)

    def load(self, obj: Raw) -> None:
        """Put an object in as it is, status and all: this is a snapshot being read, not a user creating something."""
        resource = resources.of(obj)
        if resource is None:
            raise BadRequest(f"no such resource: {obj.get('apiVersion')} {obj.get('kind')}")
        meta = dict(obj.get("metadata") or {})
        meta.setdefault("uid", self._identity.uid())
        meta.setdefault("creationTimestamp", self._identity.now())
        if resource.namespaced:
            meta["namespace"] = meta.get("namespace") or "default"
            self._ensure_namespace(meta["namespace"])
        if not meta.get("name"):
            meta["name"] = f"{meta.get('generateName') or ''}{self._identity.suffix()}"
        typed = {**obj, "apiVersion": resource.api_version, "metadata": meta}
        fresh = defaulted(resource.id, typed, created=True)
        loaded = {**fresh, **({"status": obj["status"]} if obj.get("status") else {})}
        self._commit(resource, resources.key(loaded), loaded)

    def _ensure_namespace(self, name: str) -> None:
        if self.store.get(NAMESPACES.id, ("", name)) is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.create(NAMESPACES, body, None, dry_run=False)

    def _check_namespace(self, resource: Resource[Any], namespace: str, name: str) -> None:
        record = self.store.get(NAMESPACES.id, ("", namespace))
        if record is None:
            raise NotFound(f'namespaces "{namespace}" not found')
        registry.check_new_namespace(record.plain(), resource, name)

    def _validate(self, resource: Resource[Any], new: Raw, old: Raw | None, subresource: str) -> None:
        namespace = self.store.get(NAMESPACES.id, ("", resources.key(new)[0]))
        labels = namespace.meta.labels if namespace else {}
        registry.require(resource, new, strategies.check(resource.id, new, old, labels))
        if validator := self._validators.get(resource.id):
            registry.require(resource, new, validator(new, old, subresource))

    def _patched(self, old: Raw, patch: Patch, subresource: str) -> Any:
        match patch:
            case Merge():
                return merged(old, patch.body)
            case Operations():
                return operated(old, patch.operations)
            case Apply():
                return applied(old, patch, subresource, now=self._identity.now())

    def _apply_new(
        self, resource: Resource[Any], name: str, patch: Apply, namespace: str | None, *, dry_run: bool
    ) -> bytes:
        body = resource.plain(patch.body) | {"metadata": {"name": name} | (patch.body.get("metadata") or {})}
        if body["metadata"].get("uid"):
            raise _not_found(resource, name)
        return self.create(resource, applied({}, Apply(body, patch.manager), "", now=self._identity.now()), namespace, dry_run=dry_run)  # fmt: skip

    def _answer(self, resource: Resource[Any], key: Key, new: Raw, *, dry_run: bool) -> bytes:
        if dry_run:
            return msgspec.json.encode(new)
        return self._commit(resource, key, new).record.data

    def _answer_last(self, resource: Resource[Any], key: Key, new: Raw, *, dry_run: bool) -> bytes:
        """An update took the last finalizer away: it is answered, never stored, and the object goes as it was before."""
        if not dry_run:
            self._drop(resource, key)
        return msgspec.json.encode(new)

    def _commit(self, resource: Resource[Any], key: Key, obj: Raw) -> Entry:
        version = self.store.version + 1
        obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
        entry = self.store.put(resource.id, key, msgspec.json.encode(obj), version)
        self._entries.append((resource.id, entry))
        return entry

    def _drop(self, resource: Resource[Any], key: Key) -> Entry:
        """Take an object out, and then what it owned and the namespace that waited for it."""
        record = self.store.get(resource.id, key)
        if record is None:
            raise _not_found(resource, key[1])
        version = self.store.version + 1
        last = record.plain()
        last["metadata"] = {**last["metadata"], "resourceVersion": str(version)}
        entry = self.store.remove(resource.id, key, msgspec.json.encode(last), version)
        self._entries.append((resource.id, entry))
        self._collect(record.meta.uid)
        for owner in record.meta.owner_references:
            self._release_owner(owner.uid)
        if resource.namespaced:
            self._release_namespace(key[0])
        return entry

    def _delete(self, resource: Resource[Any], key: Key) -> None:
        record = self.store.get(resource.id, key)
        if record is None:
            return
        if record.meta.finalizers:
            self._mark(resource, key, record)
        else:
            self._drop(resource, key)

    def _mark(self, resource: Resource[Any], key: Key, record: Record, finalizer: str = "") -> None:
        obj = record.plain()
        meta = obj["metadata"]
        if not meta.get("deletionTimestamp"):
            meta |= {"deletionTimestamp": self._identity.now(), "deletionGracePeriodSeconds": 0}
        if finalizer and finalizer not in meta.get("finalizers", ()):
            meta["finalizers"] = [*meta.get("finalizers", ()), finalizer]
        if not same(obj, record.plain()):
            self._commit(resource, key, obj)

    def _collect(self, uid: str) -> None:
        """Delete what a vanished owner owned; what has another living owner only loses the reference."""
        for resource_id, key in self.store.owned(uid):
            record = self.store.get(resource_id, key)
            if record is None:
                continue
            resource = resources.BY_ID[resource_id]
            others = [owner.uid for owner in record.meta.owner_references if owner.uid != uid]
            if others:
                self._disown(resource, key, record, uid)
            else:
                self._delete(resource, key)

    def _disown(self, resource: Resource[Any], key: Key, record: Record, uid: str) -> None:
        obj = record.plain()
        owners = [owner for owner in obj["metadata"]["ownerReferences"] if owner.get("uid") != uid]
        obj["metadata"]["ownerReferences"] = owners
        if not owners:
            del obj["metadata"]["ownerReferences"]
        self._commit(resource, key, obj)

    def _orphan(self, uid: str) -> None:
        for resource_id, key in self.store.owned(uid):
            record = self.store.get(resource_id, key)
            if record is not None:
                self._disown(resources.BY_ID[resource_id], key, record, uid)

    def _delete_foreground(self, resource: Resource[Any], key: Key) -> None:
        """Dependents that block go first; the owner stays, marked, until the last of them is gone."""
        record = self.store.get(resource.id, key)
        if record is None:
            return
        self._mark(resource, key, record, _FOREGROUND)
        for resource_id, dependent in self.store.owned(record.meta.uid):
            self._delete(resources.BY_ID[resource_id], dependent)
        self._release_owner(record.meta.uid, (resource, key))

    def _release_owner(self, uid: str, where: tuple[Resource[Any], Key] | None = None) -> None:
        found = where or self._deleting_in_foreground(uid)
        if found is None or self.store.owned(uid):
            return
        resource, key = found
        record = self.store.get(resource.id, key)
        if record is None or _FOREGROUND not in record.meta.finalizers:
            return
        others = [one for one in record.meta.finalizers if one != _FOREGROUND]
        if not others:
            self._drop(resource, key)
            return
        obj = record.plain()
        obj["metadata"]["finalizers"] = others
        self._commit(resource, key, obj)

    def _deleting_in_foreground(self, uid: str) -> tuple[Resource[Any], Key] | None:
        for resource_id in self.store.resources():
            for record in self.store.records(resource_id):
                if record.meta.uid == uid and _FOREGROUND in record.meta.finalizers:
                    return resources.BY_ID[resource_id], (record.meta.namespace, record.meta.name)
        return None

    def _delete_namespace(self, key: Key) -> None:
        record = self.store.get(NAMESPACES.id, key)
        if record is None:
            return
        if not record.meta.deletion_timestamp:
            obj = record.plain()
            obj["metadata"]["deletionTimestamp"] = self._identity.now()
            obj["status"] = {"phase": "Terminating"}
            self._commit(NAMESPACES, key, obj)
        for resource, content in self._content(key[1]):
            self._delete(resource, content)
        self._release_namespace(key[1])

    def _release_namespace(self, name: str) -> None:
        record = self.store.get(NAMESPACES.id, ("", name))
        if record is not None and record.meta.deletion_timestamp and not self._content(name):
            self._drop(NAMESPACES, ("", name))

    def _content(self, namespace: str) -> list[tuple[Resource[Any], Key]]:
        return [
            (resources.BY_ID[resource_id], (record.meta.namespace, record.meta.name))
            for resource_id in self.store.resources()
            if resources.BY_ID[resource_id].namespaced
            for record in self.store.records(resource_id, namespace)
        ]


def _key(resource: Resource[Any], name: str, namespace: str | None) -> Key:
    if not resource.namespaced:
        return "", name
    if not namespace:
        raise BadRequest(f"a {resource.kind} is addressed with its namespace")
    return namespace, name


def _not_found(resource: Resource[Any], name: str) -> NotFound:
    return NotFound(f'{resource.id} "{name}" not found')


def _check_preconditions(resource: Resource[Any], record: Record, uid: str, resource_version: str) -> None:
    name = record.meta.name
    for what, wanted, have in (
        ("UID", uid, record.meta.uid),
        ("ResourceVersion", resource_version, str(record.version)),
    ):
        if wanted and wanted != have:
            raise Conflict(
                f'Operation cannot be fulfilled on {resource.id} "{name}": Precondition failed: '
                f"{what} in precondition: {wanted}, {what} in object meta: {have}"
            )
