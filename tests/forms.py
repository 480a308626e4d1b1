"""Other forms of a scene (`tests/agreement.py`) that mean the same for Kubernetes, so each command has to give the same answer about them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dra.errors import QuantityError
from dra.quantity import from_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.agreement import Answer, Scene

# Texts and JSON numbers that the API server stores as the same number.
SPELLINGS: Sequence[Callable[[int], Any]] = (
    lambda number: f"{number}000m",
    lambda number: f"{number}.0",
    lambda number: f"{number}e0",
    lambda number: f"{number // 1000}.{number % 1000:03}k",
    lambda number: f"+0{number}",
    int,
    float,
)
# Kinds of apps/v1 whose objects have the same pods.
SIBLINGS = {"Deployment": "ReplicaSet", "ReplicaSet": "Deployment", "StatefulSet": "Deployment"}

OF_SIBLINGS = ("replicas", "selector", "template")


def forms(scene: Scene) -> Iterator[tuple[str, Scene]]:
    """Yield the scene in other forms, each with its name: amounts in every spelling, a sibling kind, the files in the opposite order."""
    for spell in SPELLINGS:
        respelled = respell(scene.object, spell)
        if json.dumps(respelled) != json.dumps(scene.object):
            yield f"spelled {spell(1)!r}", scene._replace(object=respelled)
    if (kind := scene.object["kind"]) in SIBLINGS and scene.object["apiVersion"] == "apps/v1":
        spec = {name: value for name, value in scene.object["spec"].items() if name in OF_SIBLINGS}
        yield SIBLINGS[kind], scene._replace(object=scene.object | {"kind": SIBLINGS[kind], "spec": spec})
    if len(scene.fleet) > 1:
        yield "reversed", scene._replace(fleet=scene.fleet[::-1], surroundings=scene.surroundings[::-1])


def respell(part: Any, spell: Callable[[int], Any], *, of_resources: bool = False) -> Any:
    """Return a part of an object in which the whole amounts of extended resources are written in another way."""
    if isinstance(part, list):
        return [respell(entry, spell) for entry in part]
    if not isinstance(part, dict):
        return part
    copy = {}
    for name, value in part.items():
        number = whole(value) if of_resources and "/" in name else None
        copy[name] = spell(number) if number else respell(value, spell, of_resources=name in ("limits", "requests"))
    return copy


def whole(amount: Any) -> int | None:
    try:
        return from_json(amount).whole()
    except QuantityError:
        return None


COMPARED = ("outcome", "keys", "refused", "codes", "fits", "mode", "moved", "devices")


def differing_forms(answers: Mapping[str, Answer], of_form: Mapping[str, Answer]) -> list[str]:
    """Compare each command's answer about an object with its answer about another form of this object."""
    return [
        f"{name}: {field} {getattr(of_form[name], field)} instead of {getattr(answer, field)}"
        for name, answer in answers.items()
        for field in COMPARED
        if name in of_form and getattr(answer, field) != getattr(of_form[name], field)
    ]
