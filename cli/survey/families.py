"""Who belongs together: a workload at the top, what it made, and the pods at the end. Pure.

A Deployment counts once, not again with its ReplicaSets and pods; so does whatever kind an operator brought, because pods are
followed upwards by their owner references, also to an owner that nobody could read. References are somebody's word: they
may lead in a circle, and a circle ends where it began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cli.survey.gathered import Object, Who, inside, items, owner_of, who
from webhook.translate import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_HIGHEST = 16  # owners above one another; Kubernetes' own have two
_ENDED = ("Succeeded", "Failed")


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A workload: who is at the top, what tells its pods' shape, and the pods that live."""

    top: Who
    # The objects whose pod templates say what becomes of it: the top, or the highest below it that was read.
    shapes: tuple[Object, ...]
    pods: tuple[Object, ...] = ()
    # Where the first of the shapes stands among everything that was read.
    number: int = 0


class _Kin(msgspec.Struct, frozen=True):
    height: int
    number: int
    object: Object


def _never(obj: Object) -> bool:
    del obj
    return False


def families(objects: Iterable[Object], asks: Callable[[Object], bool] = _never) -> list[Family]:
    """Put everything that has pods, or makes them, together by who is at the top. What has ended makes none any more.

    Where neither templates nor pods tell their shape, what `asks` in words of its own does.
    """
    every = list(objects)
    known = {who(one): one for one in every}
    members: dict[Who, list[_Kin]] = {}
    for number, one in enumerate(every):
        if has_ended(one):
            continue
        if not paths(one, unknown=True) and not asks(one):
            continue
        top, height = _climb(one, known)
        kin = _Kin(height, number, one)
        members.setdefault(top, []).append(kin)
    found: list[Family] = []
    for top, of_top in members.items():
        family = _family(top, of_top)
        found.append(family)
    return found


def _climb(obj: Object, known: Mapping[Who, Object]) -> tuple[Who, int]:
    """Follow owners to the top, which need not have been read; say how far below it an object is."""
    top = who(obj)
    seen = {top}
    owner = owner_of(obj)
    # A static pod is owned by its node.
    while owner and owner not in seen and owner.kind != "Node" and len(seen) < _HIGHEST:
        top = owner
        seen.add(owner)
        owner = owner_of(known[owner]) if owner in known else None
    return top, len(seen) - 1


def _family(top: Who, members: list[_Kin]) -> Family:
    pods: list[_Kin] = []
    makers: list[_Kin] = []
    askers: list[_Kin] = []
    for one in members:
        if is_pod(one.object):
            pods.append(one)
        elif paths(one.object, unknown=True):
            makers.append(one)
        else:
            askers.append(one)
    lowest = min([one.height for one in makers], default=0)
    highest = [one for one in makers if one.height == lowest]
    telling = highest or pods or askers
    return Family(
        top=top,
        shapes=tuple([one.object for one in telling]),
        pods=tuple([one.object for one in pods]),
        number=telling[0].number,
    )


def is_pod(obj: Object) -> bool:
    """Say whether an object is a pod."""
    return obj.get("kind") == "Pod"


def has_ended(obj: Object) -> bool:
    """Say whether an object is a pod or Job that will run no more."""
    if is_pod(obj):
        return inside(obj, "status").get("phase") in _ENDED
    if obj.get("kind") != "Job":
        return False
    for condition in items(inside(obj, "status"), "conditions"):
        ends = condition.get("type") in ("Complete", "Failed")
        if ends and condition.get("status") == "True":
            return True
    return False
