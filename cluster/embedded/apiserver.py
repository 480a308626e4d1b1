"""The verbs of an API server over a store, one complete write at a time.

Synchronous and without I/O; `cluster.embedded.embedded` adds time, ids and waiting. `cluster.embedded.registry` decides
what may be written, `cluster.embedded.deletion` what is deleted with an object.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from cluster import resources
from cluster.embedded import registry
from cluster.embedded.defaults import fill_in_defaults
from cluster.embedded.deletion import Deletions
from cluster.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound, StatusCause, map_exceptions
from cluster.patch import Apply, Merge, Operations, apply_configuration, apply_json_patch, apply_merge_patch, equal_json
from cluster.resources import NAMESPACES, PODS, Raw, Resource
from dra.objects import ObjectMeta
from dra.pointer import field_path
from dra.validation import errors, gates, update_errors
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cluster.embedded.registry import Identity
    from cluster.embedded.store import Store, StoredObject
    from cluster.patch import Patch
    from cluster.resources import Key

_VALIDATED = frozenset(
    resource.id
    for resource in (
        resources.DEVICE_CLASSES,
        resources.DEVICE_COMPATIBILITIES,
        resources.DEVICE_TAINT_RULES,
        resources.RESOURCE_CLAIM_TEMPLATES,
        resources.RESOURCE_CLAIMS,
        resources.RESOURCE_SLICES,
    )
)
# The code and path of a finding that the API server reports as forbidden, not as an invalid value.
_FORBIDDEN = "D116", "/status/reservedFor"


class ApiServer:
    def __init__(self, store: Store, identity: Identity) -> None:
        self.store = store
        self._identity = identity
        self._deletions = Deletions(store, identity.now)

    def check(self, resource: Resource[Any]) -> None:
        known = resources.BY_ID.get(resource.id)
        if known is None or known.version != resource.version:
            raise NotFound("the server could not find the requested resource")

    def get(self, resource: Resource[Any], name: str, namespace: str | None) -> StoredObject:
        self.check(resource)
        record = self.store.get(resource.id, _key(resource, name, namespace))
        if record is None:
            raise _not_found(resource, name)
        return record

    def create(self, resource: Resource[Any], obj: Raw, namespace: str | None, *, dry_run: bool) -> bytes:
        """Create an object, and return it as stored (in a dry run, as it would be stored)."""
        self.check(resource)
        new = registry.prepare_for_create(resource, obj, namespace, self._identity)
        key = object_namespace, name = resources.key(new)
        if resource.namespaced and self.store.get(NAMESPACES.id, ("", object_namespace)) is None:
            raise NotFound(f'namespaces "{object_namespace}" not found')
        if self.store.get(resource.id, key) is not None:
            raise AlreadyExists(f'{resource.id} "{name}" already exists')
        self._validate(resource, new, None, "")
        stored = self._commit(resource, key, new, dry_run=dry_run)
        if not dry_run:
            self._deletions.delete_orphan(resource, key)
        return stored

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
        self.check(resource)
        if subresource and (subresource != "status" or not resource.status):
            raise NotFound(f"the server could not find the requested resource ({resource.id}/{subresource})")
        key = _key(resource, name, namespace)
        record = self.store.get(resource.id, key)
        if record is None:
            if isinstance(patch, Apply) and not subresource:
                body = {"metadata": {"name": name}} | resource.plain(patch.body)
                return self.create(resource, body, namespace, dry_run=dry_run)
            raise _not_found(resource, name)
        old = record.plain()
        patched: Any
        match patch:
            case Merge():
                patched = apply_merge_patch(old, patch.body)
            case Operations():
                patched = apply_json_patch(old, patch.operations)
            case Apply():
                patched = apply_configuration(old, patch.body)
        if not isinstance(patched, dict):
            raise Invalid(f"the result of the patch is not an object of {resource.id}, but {patched!r}")
        new = registry.prepare_for_update(resource, old, patched, subresource)
        if equal_json(old, new):
            return record.data
        self._validate(resource, new, old, subresource)
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            # The update removed the last finalizer. The new object is returned but not stored, and the stored object is deleted.
            if not dry_run:
                self._deletions.drop(resource, key)
            return msgspec.json.encode(new)
        return self._commit(resource, key, new, dry_run=dry_run)

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str | None,
        *,
        uid: str,
        resource_version: str,
        dry_run: bool,
    ) -> None:
        """Delete an object and its dependents, or mark it for deletion if it has finalizers."""
        key = _key(resource, name, namespace)
        record = self.get(resource, name, namespace)
        _check_preconditions(resource, record, uid, resource_version)
        if not dry_run:
            self._deletions.delete(resource, key)

    def bind(self, name: str, namespace: str, node: str, *, uid: str, dry_run: bool) -> None:
        """Assign a pod to a node (pkg/registry/core/pod/storage, assignPod)."""
        record = self.get(PODS, name, namespace)
        _check_preconditions(PODS, record, uid, "")
        pod = record.plain()
        spec = pod["spec"]
        status = pod.get("status") or {}
        refusal = f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} '
        if pod["metadata"].get("deletionTimestamp"):
            raise Conflict(f"{refusal}is being deleted, cannot be assigned to a host")
        bound = spec.get("nodeName")
        if bound:
            raise Conflict(f'{refusal}is already assigned to node "{bound}"')
        if spec.get("schedulingGates"):
            cause = StatusCause("spec.schedulingGates", "Forbidden: the pod is gated")
            raise registry.invalid(PODS, name, [cause])
        scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": self._identity.now()}
        before = status.get("conditions") or ()
        conditions = [*(condition for condition in before if condition.get("type") != "PodScheduled"), scheduled]
        pod["spec"] = {**spec, "nodeName": node}
        pod["status"] = {**status, "conditions": conditions}
        self._commit(PODS, (namespace, name), pod, dry_run=dry_run)

    def load(self, obj: Raw) -> None:
        """Add an object of a snapshot with its status, without validation. Fill in missing metadata and defaults."""
        resource = resources.resource_of(obj)
        if resource is None:
            raise BadRequest(f"no such resource: {obj.get('apiVersion')} {obj.get('kind')}")
        metadata = obj.get("metadata") or {}
        name = metadata.get("name") if isinstance(metadata, dict) else None
        opening = f"{resource.kind} {name!r}, metadata"
        with map_exceptions({WireError: lambda error: BadRequest(f"{opening}: {error}")}):
            convert(metadata, ObjectMeta)
        meta = {member: value for member, value in metadata.items() if value is not None}
        meta.setdefault("uid", self._identity.uid())
        meta.setdefault("creationTimestamp", self._identity.now())
        if resource.namespaced:
            namespace = meta.get("namespace") or "default"
            meta["namespace"] = namespace
            if self.store.get(NAMESPACES.id, ("", namespace)) is None:
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                self.create(NAMESPACES, body, None, dry_run=False)
        if not meta.get("name"):
            meta["name"] = (meta.get("generateName") or "") + self._identity.suffix()
        loaded = {**obj, "apiVersion": resource.api_version, "metadata": meta}
        with suppress(WireError):  # an object that cannot be read stays as it is
            convert(loaded, resource.type)
            loaded = fill_in_defaults(resource.id, loaded, created=True)
        if obj.get("status"):
            loaded = {**loaded, "status": obj["status"]}
        self.store.put(resource, resources.key(loaded), loaded)

    def _validate(self, resource: Resource[Any], new: Raw, old: Raw | None, subresource: str) -> None:
        causes = [*_causes(new, old, subresource)] if resource.id in _VALIDATED else []
        if causes:
            raise registry.invalid(resource, new["metadata"].get("name", ""), causes)

    def _commit(self, resource: Resource[Any], key: Key, new: Raw, *, dry_run: bool) -> bytes:
        if dry_run:
            return msgspec.json.encode(new)
        return self.store.put(resource, key, new).data


def _key(resource: Resource[Any], name: str, namespace: str | None) -> Key:
    if not resource.namespaced:
        return "", name
    if not namespace:
        raise BadRequest(f"a {resource.kind} is addressed with its namespace")
    return namespace, name


def _not_found(resource: Resource[Any], name: str) -> NotFound:
    return NotFound(f'{resource.id} "{name}" not found')


def _check_preconditions(resource: Resource[Any], record: StoredObject, uid: str, resource_version: str) -> None:
    name = record.meta.name
    for field, expected, have in (
        ("UID", uid, record.meta.uid),
        ("ResourceVersion", resource_version, str(record.version)),
    ):
        if expected and expected != have:
            raise Conflict(
                f'Operation cannot be fulfilled on {resource.id} "{name}": Precondition failed: '
                f"{field} in precondition: {expected}, {field} in object meta: {have}"
            )


def _causes(new: Raw, old: Raw | None, subresource: str) -> Iterator[StatusCause]:
    """Validate a write by the rules of `dra.validation`, as causes of an API error."""
    if old is None:
        problems = errors(new, gates.ALL)
    else:
        problems = update_errors(new, old, gates.ALL, status=subresource == "status")
    for problem in problems:
        kind, reason = "Invalid value", "FieldValueInvalid"
        if (problem.code, problem.path) == _FORBIDDEN:
            kind, reason = "Forbidden", "FieldValueForbidden"
        yield StatusCause(field_path(problem.path), f"{kind}: {problem.message}", reason)
