"""Manifests as typed objects of the kinds that the allocator and the webhook read.

Objects of other kinds are ignored. Objects of these kinds that cannot be read are reported all together, with file, line
and pointer.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from analysis.loading.objects import group_of
from cluster import resources
from dra.objects import (
    DeviceClass,
    DeviceCompatibility,
    DeviceTaintRule,
    Node,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    channel_template,
    defaults,
    is_compute_domain,
    versions,
)
from dra.raw import inside, text
from dra.server import EVERYTHING
from dra.stock import Stock
from dra.texts import count_of
from dra.wire import WireError, convert

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dra.raw import Object
    from dra.server import Server

T = TypeVar("T")

_TYPES: dict[tuple[str, str], type[Any]] = {
    (resource.group, resource.kind): resource.type
    for resource in (
        resources.NODES,
        resources.PODS,
        resources.POD_DISRUPTION_BUDGETS,
        resources.POD_GROUPS,
        resources.DEVICE_CLASSES,
        resources.RESOURCE_SLICES,
        resources.RESOURCE_CLAIMS,
        resources.RESOURCE_CLAIM_TEMPLATES,
        resources.DEVICE_TAINT_RULES,
        resources.DEVICE_COMPATIBILITIES,
        resources.DEVICE_QUOTAS,
        resources.NAMESPACES,
        resources.RESOURCE_QUOTAS,
        resources.LIMIT_RANGES,
        resources.LEASES,
        resources.EVENTS,
    )
}


IN_STOCK: Final = (ResourceSlice, DeviceClass, Node, DeviceTaintRule, DeviceCompatibility, ResourceClaim)


class UnreadableObject(NamedTuple):
    """An invalid object: its number in the input, and the error."""

    number: int
    error: WireError


class TypedObjects:
    """Typed objects by type and namespace/name. Of two with the same name the later one counts, as with `kubectl apply`."""

    def __init__(self, objects: Iterable[Any] = ()) -> None:
        self._by_type: dict[type[Any], dict[str, Any]] = {}
        self.unreadable: list[UnreadableObject] = []
        self.defined_twice: list[str] = []
        for obj in objects:
            self._add(obj)

    @classmethod
    def read(cls, objects: Iterable[Object | Any], *, pods: bool = True) -> TypedObjects:
        """Read the objects of known kinds, with or without pods. Objects that are typed already are kept.

        A ComputeDomain counts as the template that its controller creates, unless that is among the objects. An object with only a
        generateName gets a number, where an API server appends random letters.
        """
        typed_objects = cls()
        generated = GeneratedNames()
        expected: list[ResourceClaimTemplate] = []
        for number, stored in enumerate(objects):
            if not isinstance(stored, dict):
                typed_objects._add(stored)
                continue
            obj = generated.name(stored)
            if is_pod(obj) and not pods:
                continue
            try:
                typed = read_object(obj)
            except WireError as error:
                typed_objects.unreadable.append(UnreadableObject(number, error))
                continue
            if typed is not None:
                typed_objects._add(typed)
            elif template := channel_template(obj):
                expected.append(template)
        templates = typed_objects.by_key(ResourceClaimTemplate)
        for template in expected:
            if template.metadata.key not in templates:
                typed_objects._add(template)
        return typed_objects

    def _add(self, obj: Any) -> None:
        of_type = self._by_type.setdefault(type(obj), {})
        key: str = obj.metadata.key
        if not obj.metadata.name:
            key = f"{key}{len(of_type)}"
        elif key in of_type:
            self.defined_twice.append(f"{obj.kind} {obj.metadata.name}")
        of_type[key] = obj

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(objects.values() for objects in self._by_type.values())

    def by_key(self, type_: type[T]) -> dict[str, T]:
        """Return the objects of one type by namespace/name; an object without a namespace counts as one in `default`."""
        return self._by_type.get(type_, {})

    def of_type(self, type_: type[T]) -> list[T]:
        """Return the objects of one type in input order."""
        return list(self.by_key(type_).values())

    def with_types(self, objects: dict[type[Any], dict[str, Any]]) -> TypedObjects:
        """Return these objects, but all objects of the given types replaced. `objects` has the new ones by type and namespace/name."""
        changed = TypedObjects()
        changed._by_type = self._by_type | objects
        return changed

    def stock(self, server: Server = EVERYTHING) -> Stock:
        """Build the stock, as a server of this version reads it; devices of allocated claims are in use.

        Nodes and slices are in the order in which an API server lists them, because of equally good nodes and devices the first are chosen.
        """
        slices, nodes = self.by_key(ResourceSlice), self.by_key(Node)
        return Stock.of(
            slices=[slices[key] for key in sorted(slices)],
            classes=self.of_type(DeviceClass),
            nodes=[nodes[key] for key in sorted(nodes)],
            rules=self.of_type(DeviceTaintRule),
            compatibilities=self.of_type(DeviceCompatibility),
            claims=map(identified, self.of_type(ResourceClaim)),
            server=server,
        )


def read_object(obj: dict[str, Any]) -> Any | None:
    """Decode one object; None if its kind is not relevant for devices. Raises WireError."""
    kind = text(obj.get("kind"))
    type_ = _TYPES.get((group_of(obj.get("apiVersion")), kind))
    if type_ is None:
        return None
    obj = with_text_labels(obj) if kind == "Namespace" else obj
    decoded = convert(versions.upgrade(obj).value, type_)
    # The defaults of the API server.
    if isinstance(decoded, ResourceClaim):
        return defaults.claim(decoded)
    return defaults.template(decoded) if isinstance(decoded, ResourceClaimTemplate) else decoded


def with_text_labels(namespace: Object) -> Object:
    """Return a Namespace whose labels are strings. An unquoted `off` in a manifest is a boolean; as text, it is an invalid mode (D214)."""
    metadata = inside(namespace, "metadata")
    labels = {name: str(value) for name, value in inside(metadata, "labels").items()}
    return {**namespace, "metadata": {**metadata, "labels": labels}} if labels else namespace


def is_pod(obj: Object) -> bool:
    """Return whether an object is a pod."""
    return obj.get("kind") == "Pod" and "/" not in str(obj.get("apiVersion"))


def identified(claim: ResourceClaim) -> ResourceClaim:
    """Return the claim with its name as uid, if no API server has given it one."""
    metadata = claim.metadata
    return claim if metadata.uid else replace(claim, metadata=replace(metadata, uid=metadata.key))


def ignored(objects: Iterable[Object], *, also: Sequence[tuple[str, str]] = ()) -> str:
    """Count the objects whose kind a command does not read; "" if there are none. `also` are further kinds it reads, as (apiVersion, kind)."""
    kinds: Counter[str] = Counter()
    for obj in objects:
        version, kind = text(obj.get("apiVersion")), text(obj.get("kind"))
        if (group_of(version), kind) in _TYPES or (version, kind) in also or is_compute_domain(obj):
            continue
        kinds[kind or "without a kind"] += 1
    if not kinds:
        return ""
    listed = ", ".join(f"{number} {kind}" for kind, number in kinds.items())
    return f"{count_of(kinds.total(), 'object')} ignored, of kinds that this command does not read: {listed}"


class GeneratedNames:
    """Numbers objects that have only a generateName, where an API server appends random letters."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()

    def name(self, obj: dict[str, Any]) -> dict[str, Any]:
        """Return the object with a name; unchanged if it has one or has no generateName."""
        metadata = obj.get("metadata")
        begin = metadata.get("generateName") if isinstance(metadata, dict) else None
        if not isinstance(metadata, dict) or metadata.get("name") or not isinstance(begin, str) or not begin:
            return obj
        kind = f"{obj.get('kind')} {metadata.get('namespace') or 'default'}/{begin}"
        self._given[kind] += 1
        return obj | {"metadata": metadata | {"name": f"{begin}{self._given[kind]:05}"}}
