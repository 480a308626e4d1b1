"""Sums up the decision logs of webhooks by namespace."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from dra.raw import members
from webhook.dialects import REPLACED, Outcome
from webhook.translate import Decision, outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_LOGGER = b'"drawbridge.decision"'
_LOST = b'"lines were lost"'
# The outcome in mode `enforce`, by the logged outcome of a review. Reviews with other outcomes are not counted.
_DECIDED = {
    "translated": Outcome.TRANSLATED,
    "would translate": Outcome.TRANSLATED,
    "refused": Outcome.REFUSED,
    "would refuse": Outcome.REFUSED,
    "left": Outcome.LEFT,
}


class SeenReason(msgspec.Struct, frozen=True, kw_only=True):
    """A reason why pods of a namespace have another outcome than `translated`, and the number of these pods."""

    outcome: Outcome
    text: str
    pods: int


class SeenNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions about pods of one namespace in one mode."""

    namespace: str
    mode: str
    # The number of pods by outcome.
    outcomes: dict[Outcome, int]
    reasons: tuple[SeenReason, ...]


def summarise(lines: Iterable[bytes], warn: Callable[[str], None]) -> list[SeenNamespace]:
    """Count pods by namespace, mode and outcome; a repeated review counts once."""
    outcomes: dict[tuple[str, str], Counter[Outcome]] = {}
    reasons: dict[tuple[str, str], Counter[tuple[Outcome, str]]] = {}
    reviews: set[tuple[object, object]] = set()
    for line in lines:
        if _LOST in line:
            warn("the webhook dropped log lines, so the counts are too low")
        record = _record(line)
        object_ = str(record.get("object"))
        decided = _DECIDED.get(str(record.get("outcome")))
        review = record.get("uid"), record.get("path")
        if decided is None or record.get("dryRun") or not object_.startswith("Pod/") or review in reviews:
            continue
        if record.get("operation") != "CREATE":
            continue
        key = object_.split("/")[1], str(record.get("mode"))
        counts = outcomes.setdefault(key, Counter())
        if (
            record.get("path") != "mutate"
        ):  # a refusal by the validating review replaces the outcome of the mutating review
            if decided is not Outcome.REFUSED:
                continue
            counts[Outcome.TRANSLATED if counts[Outcome.TRANSLATED] else Outcome.APPROXIMATED] -= 1
        reviews.add(review)
        decisions = list(_decisions(record))
        outcome = decided if decided is Outcome.REFUSED else outcome_of(decisions) or decided
        counts[outcome] += 1
        if outcome is Outcome.TRANSLATED:
            continue
        # A reason for each key with this outcome (for `partly`: for each key that stays); without such keys, the problems of the whole pod.
        texts: set[str] = set()
        for decision in decisions:
            if decision.outcome is outcome or (outcome is Outcome.PARTLY and decision.outcome not in REPLACED):
                code = f" [{decision.code}]" if decision.code else ""
                texts.add(f"{decision.key}: {decision.detail}{code}")
        texts = texts or set(map(str, members(record.get("problems"))))
        reasons.setdefault(key, Counter()).update({(outcome, text): 1 for text in texts})
    return [
        SeenNamespace(
            namespace=namespace,
            mode=mode,
            outcomes={outcome: counts[outcome] for outcome in Outcome if counts[outcome] > 0},
            reasons=tuple(
                SeenReason(outcome=outcome, text=text, pods=pods)
                for (outcome, text), pods in reasons.get((namespace, mode), Counter()).most_common()
            ),
        )
        for (namespace, mode), counts in sorted(outcomes.items())
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


def _decisions(record: dict[str, Any]) -> Iterator[Decision]:
    """Yield the decisions of a record, without invalid ones."""
    for member in members(record.get("decisions")):
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(member, Decision)
