"""The rules for every object before it is stored (k8s.io/apiserver pkg/registry/rest): names, uids, generations, and fields
that only the server or only the status subresource may set.

Documents are JSON values, and a refusal is an `ApiError`. The defaults of single resources are in
`cluster.embedded.defaults`, the validation of fields is in `dra.validation`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from cluster.embedded.defaults import fill_in_defaults
from cluster.errors import BadRequest, Conflict, Invalid, StatusCause
from cluster.patch import equal_json
from cluster.resources import BY_ID
from dra import names, wire
from dra.objects import ObjectMeta
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cluster.resources import Raw, Resource


Json = Any
GENERATED_NAME_BASE = 58
# Set by the server; a client's values are ignored.
_SERVER_FIELDS = (
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)


class Identity(msgspec.Struct, frozen=True):
    now: Callable[[], str]
    uid: Callable[[], str]
    suffix: Callable[[], str]


def prepare_for_create(resource: Resource[Any], obj: Raw, namespace: str | None, identity: Identity) -> Raw:
    body = dict(_check_type(resource, without_nulls(obj)))
    meta = dict(body.get("metadata") or {})
    if meta.get("resourceVersion"):
        raise BadRequest("resourceVersion should not be set on objects to be created")
    for name in _SERVER_FIELDS:
        meta.pop(name, None)
    own_namespace = meta.pop("namespace", None) or ""
    if resource.namespaced:
        meta["namespace"] = new_namespace = namespace or own_namespace
        if not new_namespace:
            raise BadRequest(f"a {resource.kind} needs a namespace")
        if own_namespace and own_namespace != new_namespace:
            raise BadRequest(
                f"the namespace of the provided object does not match the namespace sent on the request ({own_namespace!r}, {new_namespace!r})"
            )
    if not meta.get("name"):
        base = meta.get("generateName")
        if not base:
            raise invalid(
                resource, "", [StatusCause("metadata.name", "Required value: name or generateName is required")]
            )
        meta["name"] = base[:GENERATED_NAME_BASE] + identity.suffix()
    # Names are DNS subdomains; that of a namespace is a DNS label.
    name, is_label = meta["name"], resource.id == "namespaces"
    if not isinstance(name, str) or (names.dns_label if is_label else names.dns_subdomain)(name):
        longest = names.MAX_LABEL if is_label else names.MAX_SUBDOMAIN
        message = (
            f"Invalid value: {name!r}: a lowercase RFC 1123 name has at most {longest} letters, digits, "
            "'-' or '.', and begins and ends alphanumeric"
        )
        raise invalid(resource, str(name), [StatusCause("metadata.name", message)])
    meta["uid"] = identity.uid()
    meta["creationTimestamp"] = identity.now()
    if resource.generation:
        meta["generation"] = 1
    # Nodes may be created with a status; the status of all other objects is dropped.
    if resource.status and resource.id != "nodes":
        body.pop("status", None)
    body["metadata"] = _full(meta)
    return fill_in_defaults(resource.id, body, created=True)


def prepare_for_update(resource: Resource[Any], old: Raw, new: Raw, subresource: str) -> Raw:
    """Return the document that an update of `old` to `new` would store."""
    old_meta = old["metadata"]
    try:
        new = _check_type(resource, without_nulls(new))
    except BadRequest as error:
        raise invalid(resource, old_meta["name"], [StatusCause("patch", f"Invalid value: {error}")]) from error
    new_meta = new.get("metadata") or {}
    name = old_meta["name"]
    moved = resource.namespaced and new_meta.get("namespace") != old_meta.get("namespace")
    if moved or new_meta.get("name") != name:
        raise BadRequest("the name and namespace of an object cannot change")
    uid = new_meta.get("uid")
    if uid not in (None, old_meta["uid"]):
        raise invalid(resource, name, [StatusCause("metadata.uid", f"Invalid value: {uid!r}: field is immutable")])
    if new_meta.get("resourceVersion") not in (None, "", old_meta["resourceVersion"]):
        raise Conflict(
            f'Operation cannot be fulfilled on {resource.id} "{name}": the object has been modified; '
            "please apply your changes to the latest version and try again"
        )
    if subresource == "status":
        return {**old, "status": _full(new.get("status") or {})}
    meta = dict(new["metadata"])
    for member in _SERVER_FIELDS:
        _replace_member(meta, old_meta, member)
    meta = _full(meta)
    body = {**new, "metadata": meta}
    if resource.status:
        _replace_member(body, old, "status")
    if old_meta.get("deletionTimestamp"):
        added = set(meta.get("finalizers") or ()) - set(old_meta.get("finalizers") or ())
        if added:
            message = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers"
            raise invalid(resource, name, [StatusCause("metadata.finalizers", f"{message} {added}")])
    body = fill_in_defaults(resource.id, body, created=False)
    if resource.generation and not equal_json(_content(old), _content(body)):
        body["metadata"]["generation"] = int(meta.get("generation") or 0) + 1
    return body


def invalid(resource: Resource[Any], name: str, causes: Iterable[StatusCause]) -> Invalid:
    causes = tuple(causes)
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    group_kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return Invalid(f'{group_kind} "{name}" is invalid: {text}', causes=causes)


def without_nulls(value: Json) -> Json:
    """Drop members that are null, except inside opaque parameters, which are a driver's JSON."""
    # Encoding is much cheaper than walking, and nulls are rare.
    return wire.without_nulls(value, keep="parameters") if b"null" in msgspec.json.encode(value) else value


def _full(meta: Raw) -> Raw:
    """Metadata without empty members, which no server stores."""
    return {name: value for name, value in meta.items() if value not in ("", {}, [])}


def _check_type(resource: Resource[Any], obj: Raw) -> Raw:
    if (obj.get("apiVersion"), obj.get("kind")) != (resource.api_version, resource.kind):
        given_kind = f"{obj.get('apiVersion')} {obj.get('kind')}"
        raise BadRequest(f"expected an object of {resource.api_version} {resource.kind}, got {given_kind}")
    try:
        convert(obj.get("metadata") or {}, ObjectMeta)
        convert(obj, BY_ID[resource.id].type)
    except WireError as error:
        raise BadRequest(f"{resource.kind} in version {resource.api_version!r} cannot be handled: {error}") from error
    return obj


def _replace_member(target: Raw, source: Raw, name: str) -> None:
    target.pop(name, None)
    if name in source:
        target[name] = source[name]


def _content(obj: Raw) -> Raw:
    return {name: value for name, value in obj.items() if name not in ("metadata", "status", "apiVersion", "kind")}
