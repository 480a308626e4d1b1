"""A refusal in one sentence, for where there is no room for a table: admission messages and pod conditions. Pure.

Devices of other classes are not worth a word where others were lost later; of the rest, each stage is named once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allocator.answer import Stage
from allocator.reasons import explain

if TYPE_CHECKING:
    from allocator.answer import Answer, Reason

_OBVIOUS = frozenset((Stage.CLASS, Stage.SELECTOR))


def losses(answer: Answer) -> str:
    """Say per request what its devices were lost to."""
    if answer.error:
        return answer.error
    requests: dict[tuple[str, str], list[Reason]] = {}
    for reason in answer.reasons:
        requests.setdefault((reason.claim, reason.request), []).append(reason)
    told = (f"request {request}: {_stages(reasons)}" for (_, request), reasons in requests.items())
    return "; ".join(dict.fromkeys(told)) or str(answer.verdict)


def _stages(reasons: list[Reason]) -> str:
    telling = [reason for reason in reasons if reason.stage not in _OBVIOUS] or reasons
    return ", ".join(_stage(reason) for reason in telling)


def _stage(reason: Reason) -> str:
    return reason.text if reason.stage is Stage.SEARCH and reason.text else explain.loss(reason)
