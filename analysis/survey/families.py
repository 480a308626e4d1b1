"""Workloads: the owner at the top, the objects that it made, and its pods. Pure.

A Deployment counts once, not again with its ReplicaSets and pods; so does a custom kind, because pods are followed upwards by their owner
references, also to an owner that could not be read. References are written by their authors: they may lead in a circle, which ends where it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from analysis.loading import Object, ObjectIdentity, identity_of, inside, items, owner_of, serves_node
from webhook.translate import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_Place = tuple[ObjectIdentity, str]  # the top owner, and the file of it where no server has seen it
_HIGHEST = 16  # owners above one another; Kubernetes' own have two
_ENDED = ("Succeeded", "Failed")


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A workload: its top owner, the objects that show the shape of its pods, and the pods that live."""

    top: ObjectIdentity
    # The objects whose pod templates decide what becomes of it: the top, or the highest below it that was read.
    shapes: tuple[Object, ...]
    pods: tuple[Object, ...] = ()
    # The place of the first of the shapes among everything that was read.
    number: int = 0


def families(
    objects: Iterable[Object],
    asks: Callable[[Object], bool] | None = None,
    places: Sequence[tuple[str, int]] = (),
) -> list[Family]:
    """Put everything that has pods, or makes them, together by the top owner. A workload that has ended makes none any more.

    Where there are neither templates nor pods, an object counts that asks for devices in its own fields, as `asks` finds out.
    Namesakes of different files are different objects (overlays of one base), unless a server has seen them.
    """
    every = list(objects)
    files: list[str] = []
    for number, obj in enumerate(every):
        is_stored = not places or inside(obj, "metadata").get("uid")
        files.append("" if is_stored else places[number][0])
    known: dict[ObjectIdentity, dict[str, Object]] = {}
    for obj, file in zip(every, files, strict=True):
        known.setdefault(identity_of(obj), {})[file] = obj
    members: dict[_Place, list[tuple[int, int, Object]]] = {}
    for number, obj in enumerate(every):
        if has_ended(obj) or serves_node(obj):
            continue
        if not paths(obj) and (asks is None or not asks(obj)):
            continue
        # Follow owners to the top, which need not have been read. A static pod is owned by its node.
        top, file = identity_of(obj), files[number]
        chain = {top}
        owner = owner_of(obj)
        while owner and owner not in chain and owner.kind != "Node" and len(chain) < _HIGHEST:
            top = owner
            chain.add(owner)
            namesakes = known.get(owner, {})
            # The one beside it, else any: a pod of a dump may stand in another file than its owner.
            file = file if file in namesakes else next(iter(namesakes), "")
            owner = owner_of(namesakes[file]) if namesakes else None
        members.setdefault((top, file), []).append((len(chain), number, obj))
    result: list[Family] = []
    for (top, _), of_top in members.items():
        pods = [(number, obj) for _, number, obj in of_top if is_pod(obj)]
        makers = [member for member in of_top if not is_pod(member[2])]
        templates = [maker for maker in makers if paths(maker[2])]
        lowest = min((height for height, _, _ in templates), default=0)
        telling = [(number, obj) for height, number, obj in templates if height == lowest]
        telling = telling or pods or [(number, obj) for _, number, obj in makers]
        family = Family(
            top=top,
            shapes=tuple([obj for _, obj in telling]),
            pods=tuple([obj for _, obj in pods]),
            number=telling[0][0],
        )
        result.append(family)
    return result


def is_pod(obj: Object) -> bool:
    """Say whether an object is a pod."""
    return obj.get("kind") == "Pod"


def has_ended(obj: Object) -> bool:
    """Say whether an object is a pod or Job that will run no more."""
    if is_pod(obj):
        return inside(obj, "status").get("phase") in _ENDED
    if obj.get("kind") != "Job":
        return False
    conditions = items(inside(obj, "status"), "conditions")
    return any(
        condition.get("type") in ("Complete", "Failed") and condition.get("status") == "True"
        for condition in conditions
    )
