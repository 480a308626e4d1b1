"""Reads CustomResourceDefinitions, and removes from objects of these kinds the fields that the API server prunes.

Follows the rules of structural schemas. A definition that cannot be read is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from dra.raw import items, mapping

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dra.wire import Json

_Object = Mapping[str, "Json"]
GroupKind = tuple[str, str]

_GROUP = "apiextensions.k8s.io"
# Bounds for the schemas of one definition. The largest published definition (KServe) has 16,217 nodes and 20 levels.
_MAX_NODES = 100_000
_MAX_DEPTH = 100
_META = frozenset(("apiVersion", "kind", "metadata"))


class Schema(NamedTuple):
    preserves: bool = False  # x-kubernetes-preserve-unknown-fields
    embedded: bool = False  # x-kubernetes-embedded-resource
    members: Mapping[str, Schema] = {}  # properties
    has_others: bool = False
    others: Schema | None = None  # additionalProperties
    items: Schema | None = None


_LEAF = Schema()


class CustomKind(NamedTuple):
    """A kind and the schemas of its versions; without a schema, every field is kept."""

    name: str
    schemas: Mapping[str, Schema | None]
    served: frozenset[str]
    storage: str
    converts: bool  # whether a webhook converts between versions, so that the stored form is unknown

    def prune(self, obj: _Object) -> Json:
        """Return what the API server keeps of an object, by the schema of its version and then of the stored version."""
        version = str(obj.get("apiVersion", "")).rpartition("/")[2]
        pruned: Json = dict(obj)
        for candidate in dict.fromkeys((version, version if self.converts else self.storage)):
            schema = self.schemas.get(candidate)
            if schema is not None:
                pruned = _prune(pruned, schema._replace(embedded=True))
        return pruned


def custom_kinds(objects: Iterable[_Object]) -> Mapping[GroupKind, tuple[CustomKind, ...]]:
    """Return the custom kinds whose objects and CustomResourceDefinitions are both among the objects. Two definitions of one kind are both kept."""
    definitions: list[_Object] = []
    wanted_kinds: set[GroupKind] = set()
    for obj in objects:
        group, _, _ = str(obj.get("apiVersion", "")).rpartition("/")
        if group == _GROUP and obj.get("kind") == "CustomResourceDefinition":
            definitions.append(obj)
        else:
            wanted_kinds.add((group, str(obj.get("kind", ""))))
    kinds: dict[GroupKind, tuple[CustomKind, ...]] = {}
    for definition in definitions:
        spec = mapping(definition.get("spec"))
        group_kind = str(spec.get("group", "")), str(mapping(spec.get("names")).get("kind", ""))
        read = _read(definition) if group_kind in wanted_kinds else None
        if read is not None:
            kinds[group_kind] = (*kinds.get(group_kind, ()), read)
    return kinds


def _read(definition: _Object) -> CustomKind | None:
    spec = mapping(definition.get("spec"))
    versions = items(spec, "versions")
    preserves = spec.get("preserveUnknownFields") is True
    reader = _Reader()
    schemas: dict[str, Schema | None] = {}
    try:
        for version in versions:
            schema = mapping(version.get("schema")).get("openAPIV3Schema")
            schemas[str(version.get("name"))] = None if preserves else reader.read(schema)
    except _UnreadableError:
        return None
    return CustomKind(
        name=str(mapping(definition.get("metadata")).get("name", "")),
        schemas=schemas,
        served=frozenset(str(version.get("name")) for version in versions if version.get("served") is True),
        storage=next((str(version.get("name")) for version in versions if version.get("storage") is True), ""),
        converts=mapping(spec.get("conversion")).get("strategy") == "Webhook",
    )


class _UnreadableError(Exception):
    """A schema is missing, or exceeds the bounds."""


class _Reader:
    def __init__(self) -> None:
        self._seen = 0

    def read(self, raw: Json, depth: int = 0) -> Schema:
        self._seen += 1
        if not isinstance(raw, dict) or self._seen > _MAX_NODES or depth > _MAX_DEPTH:
            raise _UnreadableError
        others, items = raw.get("additionalProperties"), raw.get("items")
        named = mapping(raw.get("properties"))
        schema = Schema(
            preserves=raw.get("x-kubernetes-preserve-unknown-fields") is True,
            embedded=raw.get("x-kubernetes-embedded-resource") is True,
            members={name: self.read(member, depth + 1) for name, member in named.items()},
            has_others=others is not None,
            others=self.read(others, depth + 1) if isinstance(others, dict) else None,
            items=self.read(items, depth + 1) if isinstance(items, dict) else None,
        )
        return _LEAF if schema == _LEAF else schema


def _prune(value: Json, schema: Schema | None) -> Json:
    if isinstance(value, list):
        if schema is None:
            return [_prune(item, None) for item in value]
        of_items = schema.items
        if schema.preserves:
            if of_items is None:
                return value
            of_items = of_items._replace(preserves=True)
        return [_prune(item, of_items) for item in value]
    if not isinstance(value, dict):
        return value
    if schema is None:
        return {}
    pruned: dict[str, Json] = {}
    for name, member in value.items():
        if schema.embedded and name in _META:
            pruned[name] = member
        elif name in schema.members:
            pruned[name] = _prune(member, schema.members[name])
        elif schema.has_others:
            pruned[name] = _prune(member, schema.others)
        elif schema.preserves:
            pruned[name] = member
    return pruned
