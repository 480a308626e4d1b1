"""Raw objects from a cluster or files, and what could not be read.

A dump of a large cluster is mostly managed fields, conditions, and pods that are almost equal. `Trimmer` keeps the fields of
an object that decide about devices, and stores equal parts once. An object without a uid does not come from a server and may be
invalid anywhere, so it is kept unchanged.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from cluster import resources
from dra.objects import POD_TEMPLATES, is_extended
from dra.raw import Object, containers_of, inside, items, mapping, text
from webhook.translate import pods_in

if TYPE_CHECKING:
    from collections.abc import Collection

    from cluster.resources import Resource
    from dra.wire import WireError

CLUSTER = ""  # the namespace of an object that has none
_NATIVE = "kubernetes.io"
_MANAGED = ("managedFields",)
# Metadata that is irrelevant for devices.
_BOOKKEEPING = (*_MANAGED, "resourceVersion", "creationTimestamp", "generation", "finalizers", "selfLink")
# kubectl's copy of the applied object.
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_SHARED = ("labels", "annotations", "ownerReferences")
_WITH_PODS = frozenset(kind for _, kind in POD_TEMPLATES)
# The fields of the status that are read for these kinds.
_STATUS = ("phase", "conditions", "numberReady", "extendedResourceClaimStatus")
# Device plugins and drivers mount this folder to reach the kubelet.
_KUBELET = "/var/lib/kubelet/"
_OF_CONDITION = ("type", "status")
# Kinds with the devices and the claims that hold them.
HELD: tuple[Resource[Any], ...] = (
    resources.RESOURCE_CLAIMS,
    resources.NODES,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_SLICES,
    resources.DEVICE_TAINT_RULES,
    resources.DEVICE_COMPATIBILITIES,
)
# Claims come before pods, so that the owner of a claim that was read is among the pods, unless it was deleted.
KINDS: tuple[Resource[Any], ...] = (
    *HELD,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.DEVICE_QUOTAS,
    resources.NAMESPACES,
    resources.RESOURCE_QUOTAS,
    resources.LIMIT_RANGES,
    resources.PODS,
)


# These kinds decide on which nodes a pod can run, and which pods it would preempt.
OUTLOOK_KINDS = (resources.POD_DISRUPTION_BUDGETS, *KINDS)


class ObjectIdentity(NamedTuple):
    """The identity of an object, as an owner reference has it: without a version."""

    group: str
    kind: str
    namespace: str
    name: str


class Unread(msgspec.Struct, frozen=True):
    """A kind or an object that could not be read, and why."""

    kind: str
    reason: str


def identity_of(obj: Object) -> ObjectIdentity:
    """Return the identity of an object."""
    metadata = mapping(obj.get("metadata"))
    name = text(metadata.get("name")) or f"{text(metadata.get('generateName'))}*"
    namespace = text(metadata.get("namespace")) or "default"
    return ObjectIdentity(group_of(obj.get("apiVersion")), text(obj.get("kind")), namespace, name)


def is_pod_group(obj: Object) -> bool:
    """Return whether an object is a PodGroup of kube-scheduler."""
    return obj.get("kind") == "PodGroup" and group_of(obj.get("apiVersion")) == "scheduling.k8s.io"


def unread_of(obj: Object, error: WireError, place: tuple[str, int] | None = None) -> Unread:
    """Return the record of an object that cannot be read: its place in a file, and why."""
    name = identity_of(obj)
    where = f"{place[0]}:{place[1]}: " if place else ""
    return Unread(f"{name.kind} {name.namespace}/{name.name}", f"{where}{error}")


def owner_of(obj: Object) -> ObjectIdentity | None:
    """Return the identity of an object's controller, from its owner references."""
    metadata = inside(obj, "metadata")
    namespace = text(metadata.get("namespace")) or "default"
    for reference in items(metadata, "ownerReferences"):
        if reference.get("controller") is True:
            group = group_of(reference.get("apiVersion"))
            return ObjectIdentity(group, text(reference.get("kind")), namespace, text(reference.get("name")))
    return None


def serves_node(obj: Object) -> bool:
    """Return whether all pods of an object are device plugins or drivers: they mount the kubelet's folder and request no device."""
    pods = pods_in(obj)
    for pod in pods:
        spec = inside(pod, "spec")
        if not any(path.startswith(_KUBELET) for path in host_paths(spec)):
            return False
        for container in containers_of(spec):
            resources = inside(container, "resources")
            if any(map(is_extended, (*inside(resources, "limits"), *inside(resources, "requests")))):
                return False
    return bool(pods)


def host_paths(spec: Object) -> list[str]:
    """Return the paths of the node that a pod mounts."""
    return [text(inside(volume, "hostPath").get("path")) for volume in items(spec, "volumes")]


def group_of(version: object) -> str:
    """Return the group of an apiVersion."""
    return text(version).rpartition("/")[0]


def without_bookkeeping(obj: Object, dropped: Collection[str] = _MANAGED) -> Object:
    """Remove these fields of an object's metadata, and kubectl's copy of the object."""
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict):
        return obj
    remaining = {name: value for name, value in metadata.items() if name not in dropped}
    annotations = remaining.get("annotations")
    if isinstance(annotations, dict):
        remaining["annotations"] = {name: value for name, value in annotations.items() if name != _APPLIED}
    return {**obj, "metadata": remaining}


class Trimmer:
    """Trims objects. Equal parts of trimmed objects are one shared value, which must not be modified."""

    def __init__(self) -> None:
        self._known: dict[bytes, Any] = {}

    def trim(self, obj: Object) -> Object:
        """Trim one object."""
        if not inside(obj, "metadata").get("uid"):
            return obj
        trimmed = without_bookkeeping(obj, _BOOKKEEPING)
        metadata = trimmed["metadata"]
        for name in _SHARED:
            if name in metadata:
                metadata[name] = self._share(metadata[name])
        if obj.get("kind") in _WITH_PODS:
            status = mapping(obj.get("status"))
            remaining = {name: value for name, value in status.items() if name in _STATUS}
            if isinstance(remaining.get("conditions"), list):
                remaining["conditions"] = [
                    {name: item[name] for name in _OF_CONDITION if name in item}
                    for item in items(remaining, "conditions")
                ]
            trimmed["status"] = self._share(remaining)
            # Share each field by itself, because two pods of one workload differ in their node and in the name of a volume.
            spec = obj.get("spec")
            if isinstance(spec, dict):
                trimmed["spec"] = {name: self._share(value) for name, value in spec.items()}
            else:
                trimmed["spec"] = spec
        return trimmed

    def _share(self, value: Any) -> Any:
        if not isinstance(value, dict | list):
            return value
        key = blake2b(msgspec.json.encode(value), digest_size=16).digest()
        return self._known.setdefault(key, value)
