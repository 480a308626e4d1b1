"""Explains refusals as text, for one node or for many nodes. The nodes that are nearest to a fit come first.

This module reads finished answers and does not allocate. `allocator.reasons.nearest` finds changes with which claims would fit. The
webhook, the bridge and the commands all use this text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.answer import Cause, NodeAnswer, Rejection, SearchVerdict, Stage
from dra.texts import list_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dra.objects import DeviceAttribute

_ORDER = {stage: number for number, stage in enumerate(Stage)}
# The text for devices that a stage rejected, in two forms: after a number of devices, and after a number of nodes, as kube-scheduler writes
# its reasons.
_WORDS = {
    Stage.NODE: ("belong to other nodes", "node(s) had no devices"),
    Stage.POOL: ("are in a pool that cannot be used", "node(s) had a pool that cannot be used"),
    Stage.GATE: ("need a feature gate that is off", "node(s) had devices whose feature gate is off"),
    Stage.CLASS: ("are not of the class", "node(s) had no device of the class"),
    Stage.SELECTOR: ("are not what the request selects", "node(s) had no device that matches the selectors"),
    Stage.TAINT: ("have a taint that the request does not tolerate", "node(s) had tainted devices"),
    Stage.IN_USE: ("are in use", "node(s) had all suitable devices in use"),
    Stage.GROUPS: (
        "share hardware with devices in another compatibility group",
        "node(s) had devices excluded by compatibility groups",
    ),
    Stage.COMPATIBILITY: (
        "cannot be used beside other devices because of a compatibleOnlyWith rule",
        "node(s) had devices excluded by compatibleOnlyWith",
    ),
    Stage.COUNTERS: ("are on hardware that other devices have used up", "node(s) had no hardware left for the devices"),
    Stage.CAPACITY: ("have too little capacity, or too little left", "node(s) had devices with too little capacity"),
    Stage.CONSTRAINT: ("do not meet the claim's constraints", "node(s) had no devices that meet the constraints"),
    Stage.SEARCH: (
        "are free, but no combination of them serves every request at once",
        "node(s) had too few devices that can be used together",
    ),
}

_REMEDIES = {
    Cause.MISSING_KEY: "let the selector check that the attribute exists, or read it as .?name.orValue(...)",
    Cause.MISSING_OBJECT: "add the object, or name another one",
    Cause.INVALID_POOL: "the driver must publish this pool again without the contradiction",
    Cause.INCOMPLETE_POOL: "wait until the driver has published the whole pool, or ask for a number of devices",
    Cause.GATE_OFF: "enable the feature gate in the API server and the scheduler, or do not use its fields",
    Cause.TOO_MANY_DEVICES: "ask for fewer devices in one claim, or split it into several",
}

_NEARNESS = (SearchVerdict.FEASIBLE, SearchVerdict.UNDECIDED, SearchVerdict.INFEASIBLE, SearchVerdict.ERROR)
VALUES = 12  # the maximum of an attribute's values in a list
_OBVIOUS = frozenset((Stage.CLASS, Stage.SELECTOR))


class EqualAnswers(msgspec.Struct, frozen=True):
    """Nodes with equal answers; `answer` is the answer of the first node."""

    nodes: tuple[str, ...]
    answer: NodeAnswer


def equal_answers(answers: Mapping[str, NodeAnswer]) -> list[EqualAnswers]:
    """Return the nodes grouped by equal answers: feasible nodes first, then refusals, nearest to a fit first."""
    groups: dict[object, list[str]] = {}
    for node, answer in answers.items():
        reasons = () if answer.feasible else answer.reasons
        key_parts = [(reason.stage, reason.claim, reason.request, reason.rejected, reason.total) for reason in reasons]
        key = answer.verdict, answer.error, tuple(key_parts)
        groups.setdefault(key, []).append(node)
    result: list[EqualAnswers] = []
    for nodes in groups.values():
        answer = answers[nodes[0]]
        result.append(EqualAnswers(tuple(nodes), answer))
    result.sort(key=lambda group: (*distance(group.answer), -len(group.nodes)))
    return result


def distance(answer: NodeAnswer) -> tuple[int, int, int, int]:
    """Return a sort key for how near an answer is to a fit.

    It compares the verdict, the number of failed requests, and the stage and number of the devices that were rejected last.
    """
    last_losses = _last_losses(answer.reasons)
    latest_stage = min((_ORDER[reason.stage] for reason in last_losses), default=0)
    return (
        _NEARNESS.index(answer.verdict),
        len(last_losses),
        -latest_stage,
        -sum(reason.rejected for reason in last_losses),
    )


def lines(answer: NodeAnswer) -> Iterator[str]:
    """Yield the lines that explain a refusal: for each request, the number of devices that each stage rejected, with examples."""
    if answer.error:
        yield f"error: {answer.error}"
        if answer.cause is not None:
            yield f"  fix: {_REMEDIES[answer.cause]}"
    for (claim, request), reasons in _by_request(answer.reasons).items():
        if claim:
            yield f"claim {claim}" + (f", request {request}" if request else "") + ":"
        for reason in reasons:
            count = f"{reason.rejected} of {reason.total}" if reason.total else ""
            yield f"  {count:>9}  {reason.stage:<13}  {reason.text or _WORDS[reason.stage][0]}".rstrip()
            margin = " " * 28
            if reason.examples and reason.text:  # all examples have the same cause, which `text` states
                rest = (
                    f" and {reason.rejected - len(reason.examples)} more"
                    if reason.rejected > len(reason.examples)
                    else ""
                )
                yield f"{margin}{', '.join(reason.examples)}{rest}"
            else:
                yield from (f"{margin}{example}" for example in reason.examples)


def loss(reason: Rejection) -> str:
    """Describe the devices that one stage rejected, for the author of the claim."""
    count = f"{reason.rejected} of {reason.total} devices " if reason.total else ""
    text = reason.short or reason.text
    return f"{count}{_WORDS[reason.stage][0]}" + (f": {text}" if text else "")


def sentence(answer: NodeAnswer) -> str:
    """Return one sentence about why the devices of each request do not fit, for admission messages and pod conditions.

    Devices rejected by class or selector are not mentioned if another stage also rejected some. Equal texts are given once.
    """
    if answer.error:
        return answer.error
    requests: list[str] = []
    for (_, request), reasons in _by_request(answer.reasons).items():
        specific = [reason for reason in reasons if reason.stage not in _OBVIOUS] or reasons
        loss_texts = [
            reason.text if reason.stage is Stage.SEARCH and reason.text else loss(reason) for reason in specific
        ]
        text = ", ".join(loss_texts)
        requests.append(f"request {request}: {text}" if request else text)
    default_text = (
        "no devices serve all requests at once" if answer.verdict is SearchVerdict.INFEASIBLE else str(answer.verdict)
    )
    return "; ".join(dict.fromkeys(requests)) or default_text


def attribute_text(value: DeviceAttribute) -> str:
    """Return the value of an attribute as text. For a list this is "a list"."""
    for scalar in (value.string, value.version, value.int_):
        if scalar is not None:
            return str(scalar)
    return "a list" if value.bool_ is None else str(value.bool_).lower()


def listed(name: str, values: Sequence[str]) -> str:
    if not values:
        return f"no device publishes {name}"
    return f"published values of {name}: {list_first(values, VALUES)}"


def summary(answers: Mapping[str, NodeAnswer]) -> str:
    """Return one line about why the nodes cannot serve claims, in kube-scheduler's form."""
    fits = sum(answer.feasible for answer in answers.values())
    if fits:
        return f"{fits} of {len(answers)} nodes can serve this"
    return f"0 of {len(answers)} nodes can serve this: {tally(answers)}"


def tally(answers: Mapping[str, NodeAnswer]) -> str:
    """Return text with the number of nodes for each reason, the most frequent reason first."""
    counts: dict[str, int] = {}
    for answer in answers.values():
        last_losses = _last_losses(answer.reasons)
        text = _WORDS[last_losses[-1].stage][1] if last_losses else "node(s) had no suitable devices"
        if answer.verdict is SearchVerdict.ERROR:
            text = f"node(s) had an error: {answer.error}"
        elif answer.verdict is SearchVerdict.UNDECIDED:
            text = "node(s) were not decided within the step limit"
        counts[text] = counts.get(text, 0) + 1
    most_frequent = sorted(counts, key=lambda text: (-counts[text], text))
    return ", ".join(f"{counts[text]} {text}" for text in most_frequent)


def _by_request(reasons: Iterable[Rejection]) -> dict[tuple[str, str], list[Rejection]]:
    grouped: dict[tuple[str, str], list[Rejection]] = {}
    for reason in reasons:
        grouped.setdefault((reason.claim, reason.request), []).append(reason)
    return grouped


def _last_losses(reasons: Sequence[Rejection]) -> list[Rejection]:
    """Return, for each request, the stage that rejected its last devices."""
    return [max(group, key=lambda reason: _ORDER[reason.stage]) for group in _by_request(reasons).values()]
