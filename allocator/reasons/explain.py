"""Formats refusals as messages, for one node or for many nodes. The nodes that are nearest to a fit come first.

This module reads finished answers and does not allocate. `allocator.reasons.nearest` finds changes with which claims would fit. The
webhook, the bridge and the commands all use this text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allocator.answer import Cause, NodeAnswer, Rejection, SearchVerdict, Stage
from dra.reason import Reason
from dra.texts import list_first

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dra.objects import DeviceAttribute

_ORDER = {stage: number for number, stage in enumerate(Stage)}
# The words after the number of devices that a stage rejected.
_WORDS = {
    Stage.NODE: "belong to other nodes",
    Stage.POOL: "are in a pool that cannot be used",
    Stage.GATE: "need a feature gate that is off",
    Stage.CLASS: "are not of the class",
    Stage.SELECTOR: "are not what the request selects",
    Stage.TAINT: "have a taint that the request does not tolerate",
    Stage.IN_USE: "are in use",
    Stage.GROUPS: "share hardware with devices in another compatibility group",
    Stage.COMPATIBILITY: "cannot be used beside other devices because of a compatibleOnlyWith rule",
    Stage.COUNTERS: "are on hardware that other devices have used up",
    Stage.CAPACITY: "have too little capacity, or too little left",
    Stage.CONSTRAINT: "do not meet the claim's constraints",
    Stage.SEARCH: "are free, but no combination of them serves every request at once",
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
MAX_EXPLAINED = 4  # maximum number of node groups in a message; nodes that the pod may use come first
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
            yield f"  {count:>9}  {reason.stage:<13}  {reason.text or _WORDS[reason.stage]}".rstrip()
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
    if reason.stage is Stage.IN_USE and reason.examples and not text:  # several claims hold devices
        return f"{count}{_WORDS[reason.stage]}, such as {reason.examples[0]}"
    return f"{count}{_WORDS[reason.stage]}" + (f": {text}" if text else "")


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
    """Format the value of an attribute. A list is formatted as "a list"."""
    for scalar in (value.string, value.version, value.int_):
        if scalar is not None:
            return str(scalar)
    return "a list" if value.bool_ is None else str(value.bool_).lower()


def listed(name: str, values: Sequence[str]) -> str:
    if not values:
        return f"no device publishes {name}"
    return f"published values of {name}: {list_first(values, VALUES)}"


def cannot_serve(answer: NodeAnswer) -> str:
    """Return a reason in kube-scheduler's form: it begins with "node(s)", because the number of nodes precedes it."""
    if answer.verdict is SearchVerdict.UNDECIDED:
        return "node(s) were not checked in time"
    if not (answer.error or answer.reasons):
        return "node(s) cannot serve the claims"
    names_request = not answer.error and any(reason.request for reason in answer.reasons[:1])
    return f"node(s) cannot serve {'' if names_request else 'the claims: '}{sentence(answer)}"


def by_text(texts: Mapping[str, str]) -> tuple[Reason, ...]:
    """Group nodes by reason text; the reason of most nodes comes first."""
    nodes: dict[str, list[str]] = {}
    for name, text in texts.items():
        nodes.setdefault(text, []).append(name)
    reasons = [Reason(text=text, nodes=tuple(names)) for text, names in nodes.items()]
    return tuple(sorted(reasons, key=lambda reason: -len(reason.nodes)))


def summary(reasons: Sequence[Reason], nodes: int, subject: str = "the claims") -> Reason:
    """Return why no node can serve a pod, with the number of nodes before each reason, as kube-scheduler writes it."""
    if not reasons:
        return Reason(text="there are no nodes")
    parts = [f"{len(reason.nodes)} {reason.text}" for reason in reasons[:MAX_EXPLAINED]]
    if remaining_nodes := sum(len(reason.nodes) for reason in reasons[MAX_EXPLAINED:]):
        parts.append(f"{remaining_nodes} node(s) for other reasons")
    return Reason(text=f"0 of {nodes} nodes can serve {subject}: {'; '.join(parts)}")


def _by_request(reasons: Iterable[Rejection]) -> dict[tuple[str, str], list[Rejection]]:
    grouped: dict[tuple[str, str], list[Rejection]] = {}
    for reason in reasons:
        grouped.setdefault((reason.claim, reason.request), []).append(reason)
    return grouped


def _last_losses(reasons: Sequence[Rejection]) -> list[Rejection]:
    """Return, for each request, the stage that rejected its last devices."""
    return [max(group, key=lambda reason: _ORDER[reason.stage]) for group in _by_request(reasons).values()]
