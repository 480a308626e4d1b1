"""Groups objects into workloads: the top owner, the objects that it created, and its pods.

A Deployment counts once, not again with its ReplicaSets and pods. So does an object of a custom kind, because owner references are followed
upwards from pods, even to an owner that could not be read. Authors write these references, so they may form a cycle; the search then stops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from analysis.loading import Object, ObjectIdentity, identity_of, inside, is_pod, items, owner_of, serves_node
from webhook.translate import namespace_of, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_Place = tuple[ObjectIdentity, str]  # the top owner, and its file if no server has seen it
_HIGHEST = 16  # levels of owners; Kubernetes' own kinds have two
_ENDED = ("Succeeded", "Failed")


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A workload: its top owner, the objects with the shapes of its pods, and its living pods."""

    top: ObjectIdentity
    # The objects whose pod templates are evaluated: the top owner, or the highest owner that was read.
    shapes: tuple[Object, ...]
    pods: tuple[Object, ...] = ()
    # The position of the first shape among all objects that were read.
    number: int = 0

    @property
    def namespace(self) -> str:
        """The namespace of its pods."""
        return namespace_of(self.shapes[0])


def families(
    objects: Iterable[Object],
    asks: Callable[[Object], bool] | None = None,
    places: Sequence[tuple[str, int]] = (),
) -> list[Family]:
    """Group all objects that have or create pods by their top owner. A workload that has ended is left out.

    Without templates and pods, an object counts if `asks` finds device requests in its own fields.
    Objects of the same name in different files are different objects (overlays of one base), unless a server has seen them.
    """
    all_objects = list(objects)
    files: list[str] = []
    for number, obj in enumerate(all_objects):
        is_stored = not places or inside(obj, "metadata").get("uid")
        files.append("" if is_stored else places[number][0])
    known: dict[ObjectIdentity, dict[str, Object]] = {}
    for obj, file in zip(all_objects, files, strict=True):
        known.setdefault(identity_of(obj), {})[file] = obj
    members: dict[_Place, list[tuple[int, int, Object]]] = {}
    for number, obj in enumerate(all_objects):
        if has_ended(obj) or serves_node(obj):
            continue
        if not paths(obj) and (asks is None or not asks(obj)):
            continue
        # Follow owners to the top, even if these were not read. A static pod is owned by its node.
        top, file = identity_of(obj), files[number]
        chain = {top}
        owner = owner_of(obj)
        while owner and owner not in chain and owner.kind != "Node" and len(chain) < _HIGHEST:
            top = owner
            chain.add(owner)
            namesakes = known.get(owner, {})
            # The owner in the same file, else any: in a dump, a pod may be in another file than its owner.
            file = file if file in namesakes else next(iter(namesakes), "")
            owner = owner_of(namesakes[file]) if namesakes else None
        members.setdefault((top, file), []).append((len(chain), number, obj))
    result: list[Family] = []
    for (top, _), of_top in members.items():
        pods = [(number, obj) for _, number, obj in of_top if is_pod(obj)]
        makers = [member for member in of_top if not is_pod(member[2])]
        templates = [maker for maker in makers if paths(maker[2])]
        lowest = min((height for height, _, _ in templates), default=0)
        shapes = [(number, obj) for height, number, obj in templates if height == lowest]
        shapes = shapes or pods or [(number, obj) for _, number, obj in makers]
        family = Family(
            top=top,
            shapes=tuple([obj for _, obj in shapes]),
            pods=tuple([obj for _, obj in pods]),
            number=shapes[0][0],
        )
        result.append(family)
    return result


def has_ended(obj: Object) -> bool:
    """Return whether an object is a pod or Job that will not run any more."""
    if is_pod(obj):
        return inside(obj, "status").get("phase") in _ENDED
    if obj.get("kind") != "Job":
        return False
    conditions = items(inside(obj, "status"), "conditions")
    return any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in conditions
    )
