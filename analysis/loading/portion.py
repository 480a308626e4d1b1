"""Limits the memory for a collection that tenants may fill: objects of usual size are kept whole, larger ones as an outline."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from analysis.loading.objects import Unread, without_bookkeeping
from cluster.outlines import outline_of_pod
from cluster.resources import key
from dra.footprint import footprint
from dra.objects import Pod, ResourceClaim, template_site
from dra.pointer import split
from dra.raw import Object, inside, items, mapping, text
from dra.texts import list_first
from dra.wire import WireError, builtins, convert
from webhook.dialects import Position, pattern_of_any
from webhook.state import Configuration
from webhook.translate import pods_in, resolve_pointer

if TYPE_CHECKING:
    from cluster.resources import Resource

# In bytes of memory. A claim of 32 devices with a status for each takes 100 KiB.
LARGEST_OBJECT = 256 << 10
# For an object that is kept unchanged: a ConfigMap may have a MiB of text.
LARGEST_TEXT = 2 << 20
# An object up to this size counts with a third of its size, because usual objects are many and small.
SMALL_OBJECT = 64 << 10
# For the objects of one kind in one namespace.
MIN_ROOM = 32 << 20
_NAMED = 3
_UNREAD_IN_CONTAINERS = frozenset(
    ("args", "command", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
)
_SHORT = range(1, 64)
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


class Portion:
    """Limits the memory of the objects of one collection, decoded or not, and counts those that are not kept whole.

    With `whole`, an object is kept unchanged or left out, without an outline.
    """

    def __init__(self, resource: Resource[Any], *, whole: bool = False) -> None:
        self._resource = resource
        self._whole = whole
        self._largest = LARGEST_TEXT if whole else LARGEST_OBJECT
        self._room = max(MIN_ROOM, resource.room)
        self._used: Counter[str] = Counter()
        self._cut: Counter[str] = Counter()

    def keep(self, obj: Any) -> Any:
        """Return the object, or its outline, or None if it is left out."""
        reduced = without_bookkeeping(obj) if isinstance(obj, dict) else obj
        namespace, _ = key(obj)
        if not namespace:
            return reduced  # an object that only administrators write
        size = footprint(reduced)
        if size > LARGEST_OBJECT and not self._whole:
            reduced = _without_unread(reduced) if isinstance(reduced, dict) else reduced
            size = footprint(reduced)
        if size <= self._largest and self._has_room(namespace, size, self._room):
            return reduced
        self._cut[namespace] += 1
        outline = None if self._whole else self._outline(reduced)
        if outline is None:
            return None
        # Claims with devices are always kept: there are no more of them than devices.
        is_holder = self._resource.kind == "ResourceClaim" and _is_allocated(outline)
        return outline if is_holder or self._has_room(namespace, footprint(outline), 2 * self._room) else None

    def cut(self) -> tuple[Unread, ...]:
        """Return how many objects are not kept whole, and in which namespaces."""
        if not self._cut:
            return ()
        number = self._cut.total()
        kinds = self._resource.plural if number > 1 else self._resource.kind
        limits = f"over {self._largest >> 10} KiB of memory each, or {self._room >> 20} MiB together"
        where = list_first(sorted(self._cut), _NAMED)
        return (Unread(f"{number} {kinds} in {where}", f"too large to be kept whole: {limits}"),)

    def _has_room(self, namespace: str, size: int, room: int) -> bool:
        size = size if size > SMALL_OBJECT else size // 3
        if self._used[namespace] + size > room:
            return False
        self._used[namespace] += size
        return True

    def _outline(self, obj: Any) -> Any:
        """Return an outline of an object: its identity, its devices, and the requests of a pod."""
        outline = self._resource.outline
        try:
            if outline is not None and isinstance(obj, dict):
                return self._resource.plain(outline(convert(obj, self._resource.type)))
            if outline is not None:
                return outline(obj)
            return _outline_of_workload(obj) if isinstance(obj, dict) else None
        except WireError:
            return None


def _outline_of_workload(obj: Object) -> Object | None:
    """Return the identity of a workload, its numbers and short texts, and the requests of its pods."""
    site = template_site(obj)
    if site is None or not site.path:
        return None
    outline: Object = builtins(outline_of_pod(convert(mapping(resolve_pointer(obj, site.path)), Pod)))
    outline["spec"].pop("schedulingGates", None)
    path = split(site.path)
    for depth in reversed(range(len(path))):
        enclosing = mapping(resolve_pointer(obj, "".join(f"/{name}" for name in path[:depth])))
        short = {
            name: value for name, value in enclosing.items() if isinstance(value, int) or len(text(value)) in _SHORT
        }
        outline = {**short, path[depth]: outline}
    named = convert({"metadata": mapping(obj.get("metadata"))}, Pod)
    return {**outline, "metadata": builtins(outline_of_pod(named))["metadata"]}


def _is_allocated(claim: Any) -> bool:
    if isinstance(claim, dict):
        return bool(inside(claim, "status", "allocation"))
    return isinstance(claim, ResourceClaim) and claim.status.allocation is not None


def _without_unread(obj: Object) -> Object:
    """Remove the texts of containers that no report reads. The object is changed in place, because it has no other reader."""
    is_read = _variables()
    for pod in pods_in(obj):
        for part in _CONTAINERS:
            for container in items(inside(pod, "spec"), part):
                for name in _UNREAD_IN_CONTAINERS & container.keys():
                    del container[name]
                for variable in items(container, "env"):
                    if not is_read(str(variable.get("name"))):
                        variable.pop("value", None)
    return obj


@cache
def _variables() -> Any:
    rows = (row for dialect in Configuration().dialects for row in dialect.keys)
    return pattern_of_any(row.name for row in rows if row.place is Position.ENV)
