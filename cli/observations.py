"""What webhooks wrote of their decisions, summed up by namespace. Pure: lines in, values out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LOGGER = b'"drawbridge.decision"'
_LOST = b'"lines were lost"'
FATES = ("translated", "refused", "left")
# What becomes of a pod, or would in mode enforce.
_FATE_OF = {
    "translated": "translated",
    "would translate": "translated",
    "refused": "refused",
    "would refuse": "refused",
    "left": "left",
}


class SeenReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why pods of a namespace are refused or left, and how many."""

    fate: str
    text: str
    pods: int


class SeenNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided of the pods of a namespace in one mode."""

    namespace: str
    mode: str
    translated: int
    refused: int
    left: int
    reasons: tuple[SeenReason, ...]


def summarise(lines: Iterable[bytes], warn: Callable[[str], None]) -> list[SeenNamespace]:
    """Count pods by namespace, mode and what became of them; a review that is asked twice counts once."""
    fates: dict[tuple[str, str], Counter[str]] = {}
    reasons: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    reviews: set[tuple[object, object]] = set()
    for line in lines:
        if _LOST in line:
            warn("lines of the log were lost, so there were more pods")
        record = _record(line)
        object_ = str(record.get("object"))
        fate = _FATE_OF.get(str(record.get("outcome")), "")
        review = record.get("uid"), record.get("path")
        if (
            not fate
            or record.get("dry_run")
            or record.get("dryRun")
            or not object_.startswith("Pod/")
            or review in reviews
        ):
            continue
        if record.get("operation") != "CREATE":
            continue
        place = object_.split("/")[1], str(record.get("mode"))
        here = fates.setdefault(place, Counter())
        if record.get("path") != "mutate":  # the second review: it refuses what the first translated
            if fate != "refused":
                continue
            here["translated"] -= 1
        reviews.add(review)
        here[fate] += 1
        if fate == "translated":
            continue
        # By the keys that were refused or left, else by what the record says as a whole.
        texts: set[str] = set()
        for one in _listed(record, "decisions"):
            if isinstance(one, dict) and one.get("action") == fate:
                code = f" [{one['code']}]" if one.get("code") else ""
                texts.add(f"{one.get('key')}: {one.get('detail')}{code}")
        told = texts or set(map(str, _listed(record, "problems")))
        reasons.setdefault(place, Counter()).update({(fate, text): 1 for text in told})
    return [
        SeenNamespace(
            namespace=namespace,
            mode=mode,
            translated=max(here["translated"], 0),
            refused=here["refused"],
            left=here["left"],
            reasons=tuple(
                SeenReason(fate=fate, text=text, pods=pods)
                for (fate, text), pods in reasons.get((namespace, mode), Counter()).most_common()
            ),
        )
        for (namespace, mode), here in sorted(fates.items())
        if +here
    ]


def _record(line: bytes) -> dict[str, Any]:
    """Read a line of a decision; whatever a collector wrote before it is left out."""
    start = line.find(b"{")
    if _LOGGER not in line or start < 0:
        return {}
    try:
        record = msgspec.json.decode(line[start:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _listed(record: dict[str, Any], name: str) -> list[Any]:
    found = record.get(name)
    return found if isinstance(found, list) else []
