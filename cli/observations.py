"""Sums up the decision logs of webhooks by namespace. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec

from dra.raw import members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LOGGER = b'"drawbridge.decision"'
_LOST = b'"lines were lost"'
FATES = ("translated", "refused", "left")
# The outcome for a pod; in modes observe and warn, the outcome that enforce would have.
_FATE_OF = {
    "translated": "translated",
    "would translate": "translated",
    "refused": "refused",
    "would refuse": "refused",
    "left": "left",
}


class SeenReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why pods of a namespace are refused or left, and the number of these pods."""

    fate: str
    text: str
    pods: int


class SeenNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions about pods of one namespace in one mode."""

    namespace: str
    mode: str
    translated: int
    refused: int
    left: int
    reasons: tuple[SeenReason, ...]


def summarise(lines: Iterable[bytes], warn: Callable[[str], None]) -> list[SeenNamespace]:
    """Count pods by namespace, mode and outcome; a repeated review counts once."""
    fates: dict[tuple[str, str], Counter[str]] = {}
    reasons: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
    reviews: set[tuple[object, object]] = set()
    for line in lines:
        if _LOST in line:
            warn("the webhook dropped log lines, so the counts are too low")
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
        counts = fates.setdefault(place, Counter())
        if record.get("path") != "mutate":  # the validating review, after the mutating one translated the pod
            if fate != "refused":
                continue
            counts["translated"] -= 1
        reviews.add(review)
        counts[fate] += 1
        if fate == "translated":
            continue
        # The keys that were refused or left, else the problems of the whole pod.
        texts: set[str] = set()
        for one in members(record.get("decisions")):
            if isinstance(one, dict) and one.get("action") == fate:
                code = f" [{one['code']}]" if one.get("code") else ""
                texts.add(f"{one.get('key')}: {one.get('detail')}{code}")
        texts = texts or set(map(str, members(record.get("problems"))))
        reasons.setdefault(place, Counter()).update({(fate, text): 1 for text in texts})
    return [
        SeenNamespace(
            namespace=namespace,
            mode=mode,
            translated=max(counts["translated"], 0),
            refused=counts["refused"],
            left=counts["left"],
            reasons=tuple(
                SeenReason(fate=fate, text=text, pods=pods)
                for (fate, text), pods in reasons.get((namespace, mode), Counter()).most_common()
            ),
        )
        for (namespace, mode), counts in sorted(fates.items())
        if +counts
    ]


def _record(line: bytes) -> dict[str, Any]:
    """Decode the record in a log line, after any prefix of a log collector; {} if it is not a decision."""
    start = line.find(b"{")
    if _LOGGER not in line or start < 0:
        return {}
    try:
        record = msgspec.json.decode(line[start:])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}
