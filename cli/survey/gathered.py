"""What a survey looks at: objects as they were read, from a cluster or from files, and what could not be read. Values only."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from cluster.server import Server
from webhook.translate import mapping

Object = dict[str, Any]
CLUSTER = ""  # the namespace of what has none
_NATIVE = "kubernetes.io"


class Who(NamedTuple):
    """An object by what an owner reference says of it: a version is no part of that."""

    group: str
    kind: str
    namespace: str
    name: str


class Unread(msgspec.Struct, frozen=True):
    """A kind that could not be read, and why."""

    kind: str
    reason: str


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read. `places` has file and line for objects of files, in the same order."""

    objects: tuple[Object, ...]
    unread: tuple[Unread, ...] = ()
    server: Server | None = None
    places: tuple[tuple[str, int], ...] = ()

    def of(self, *kinds: str) -> list[Object]:
        """Give the objects of some kinds."""
        return [one for one in self.objects if one.get("kind") in kinds]


def inside(obj: Object, *path: str) -> Object:
    """Follow names into an object; empty where they lead nowhere."""
    for name in path:
        obj = mapping(obj.get(name))
    return obj


def items(obj: Object, name: str) -> list[Object]:
    """The objects of a list in an object."""
    listed = obj.get(name)
    return [mapping(one) for one in listed] if isinstance(listed, list) else []


def who(obj: Object) -> Who:
    """Say who an object is."""
    metadata = mapping(obj.get("metadata"))
    name = text(metadata.get("name")) or f"{text(metadata.get('generateName'))}*"
    return Who(
        group_of(obj.get("apiVersion")), text(obj.get("kind")), text(metadata.get("namespace")) or "default", name
    )


def owner_of(obj: Object) -> Who | None:
    """Say who controls an object, by its own word."""
    metadata = inside(obj, "metadata")
    namespace = text(metadata.get("namespace")) or "default"
    for reference in items(metadata, "ownerReferences"):
        if reference.get("controller") is True:
            group = group_of(reference.get("apiVersion"))
            kind = text(reference.get("kind"))
            name = text(reference.get("name"))
            return Who(group, kind, namespace, name)
    return None


def group_of(version: object) -> str:
    """The group of an apiVersion."""
    return text(version).rpartition("/")[0]


def text(value: object) -> str:
    """A text, or "" for what is none."""
    return value if isinstance(value, str) else ""


def is_extended(key: str) -> bool:
    """Say whether a resource name is one that somebody else than Kubernetes hands out."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and domain != _NATIVE and not domain.endswith(f".{_NATIVE}")
