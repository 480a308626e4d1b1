"""What a survey looks at: objects as they were read, from a cluster or from files, and what could not be read. Values only.

Of an object that a server gave out enough is kept to say what becomes of it, and once what many have alike: a dump of a large cluster
is mostly managed fields, conditions and pods that say the same as their neighbours. What no server has let in yet is kept as it is: it may be
wrong anywhere, and the survey says where.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from cluster.server import Server
from webhook.translate import mapping

Object = dict[str, Any]
CLUSTER = ""  # the namespace of what has none
_NATIVE = "kubernetes.io"
# Parts of metadata that say nothing to us.
_BOOKKEEPING = ("managedFields", "resourceVersion", "creationTimestamp", "generation", "finalizers", "selfLink")
# What kubectl writes down of what was applied: the whole object once more.
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SHARED = ("labels", "annotations", "ownerReferences")
# Kinds of which nothing but phase and conditions is asked in the status.
_WITH_PODS = frozenset(
    ("Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController")
)
_STATUS = ("phase", "conditions", "numberReady")
_OF_CONDITION = ("type", "status")


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
    # Whether of what has a namespace only that of one was read.
    narrow: bool = False

    @property
    def knows_pods(self) -> bool:
        """Whether it can say what pods hold on their nodes: all of them were read, and of files some that are on one."""
        if self.narrow or any(one.kind == "pods" for one in self.unread):
            return False
        return self.server is not None or any(inside(pod, "spec").get("nodeName") for pod in self.of("Pod"))

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


# What is kept of an object


class Trimmer:
    """Cuts objects down; what is alike in them is one value afterwards, which nobody may change."""

    def __init__(self) -> None:
        self._known: dict[bytes, Any] = {}

    def trim(self, obj: Object) -> Object:
        """Cut down an object."""
        metadata = mapping(obj.get("metadata"))
        if not metadata.get("uid"):
            return obj
        kept = {name: value for name, value in metadata.items() if name not in _BOOKKEEPING}
        annotations = kept.get("annotations")
        if isinstance(annotations, dict):
            kept["annotations"] = {name: value for name, value in annotations.items() if name != _APPLIED}
        for name in _SHARED:
            if name in kept:
                kept[name] = self._share(kept[name])
        trimmed = {**obj, "metadata": kept}
        if obj.get("kind") in _WITH_PODS:
            trimmed["status"] = self._share(_status(obj))
            trimmed["spec"] = self._shared_spec(obj.get("spec"))
        return trimmed

    def _shared_spec(self, spec: Any) -> Any:
        """Keep a spec member by member: two pods of one workload differ in their node and in the name of a volume."""
        if not isinstance(spec, dict):
            return spec
        return {name: self._share(value) for name, value in spec.items()}

    def _share(self, value: Any) -> Any:
        if not isinstance(value, dict | list):
            return value
        encoded = msgspec.json.encode(value)
        sign = blake2b(encoded, digest_size=16).digest()
        return self._known.setdefault(sign, value)


def _status(obj: Object) -> Object:
    status = mapping(obj.get("status"))
    kept = {name: value for name, value in status.items() if name in _STATUS}
    conditions = kept.get("conditions")
    if isinstance(conditions, list):
        kept["conditions"] = [_condition(one) for one in conditions]
    return kept


def _condition(one: Any) -> Object:
    known = mapping(one)
    return {name: known[name] for name in _OF_CONDITION if name in known}
