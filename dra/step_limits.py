"""How much work each question may cost, in one table. docs/limits.md is generated from it.

A step is about a microsecond. A search for devices counts its own steps, of about eight microseconds each, and charges them
to the budget of the whole question. Beyond a limit the answer is "undecided" (`dra.budget`).
"""

from __future__ import annotations

from typing import Self


class StepLimit(int):
    """A number of steps, the work that it bounds, and what follows when they are spent."""

    bounds: str
    beyond: str

    def __new__(cls, steps: int, bounds: str, beyond: str) -> Self:
        limit = super().__new__(cls, steps)
        limit.bounds, limit.beyond = bounds, beyond
        return limit


_UNDECIDED = "the pod is left untranslated or unjudged, with a warning"
_NO_ADVICE = "the reason is given without this advice"
_ASKED_AGAIN = "the pod waits, and is asked about again"

# The webhook, and the commands that decide as it does.
REVIEW = StepLimit(
    1_000_000, "the translation of one pod or template, and again its judgement on the fleet", _UNDECIDED
)
VERDICT = StepLimit(
    3_000, "the search (steps of search) on one kind of node for a verdict about claims", "no claim is refused for it"
)
HINTS = StepLimit(500_000, "the words about what would fit instead of a refused claim", _NO_ADVICE)
EXPRESSION = StepLimit(
    2_000, "one expression of a rule, on one value (twenty times as many to compile it)", "the key stays"
)
EXPRESSION_CALL = StepLimit(1_000, "one call in such an expression that cannot be interrupted", "the key stays")
RULE_SELECTOR = StepLimit(80_000, "a selector of a rule, when a configuration is read", "the configuration is refused")
CLASS_ON_GROUP = StepLimit(200, "the selectors of a class on one group of like devices", "the next limit is drawn on")
CLASS_ON_FLEET = StepLimit(
    200_000, "the selectors of a class on all groups, beyond the last limit", "its devices are not all counted"
)
MISSED_POD = StepLimit(
    50_000, "one waiting pod that no webhook has decided", "nothing is reported about it in this round"
)
TEMPLATES_AHEAD = StepLimit(1_000_000, "the templates of one workload, before its pods come", "its pods bring them")
# The allocator.
NODE_SEARCH = StepLimit(120_000, "the search (steps of search) on one node, where nothing else bounds it", _ASKED_AGAIN)
QUESTION = StepLimit(1_000_000, "a scheduler's question to all nodes", _ASKED_AGAIN)
WHOLE_CALL = StepLimit(30_000, "one call in it that cannot be interrupted, as compiling a pattern", _ASKED_AGAIN)
KEPT_NODE = StepLimit(20_000, "whether a pod would fit a node that is kept for it", "the node is not kept")
PREEMPTION = StepLimit(2_000_000, "the choice of pods to evict for one pod", "no pod is evicted for it now")
PREEMPTION_SEARCH = StepLimit(5_000, "one search (steps of search) for that choice", "another choice is tried")
QUOTA_PIECE = StepLimit(
    8_000, "the count of a claim for a quota, before other reviews have their turn", "it goes on later"
)
COUNTED_CLAIM = StepLimit(500_000, "the scan of devices that one claim may hold", "what was scanned so far counts")
ADVICE = StepLimit(500_000, "the advice to a pod that fits nowhere", _NO_ADVICE)
RULE_PAGE = StepLimit(20_000, "the expressions of one DeviceCompatibility on one page of devices", "its status says so")
# Commands.
OUTLOOK = StepLimit(3_000_000, "the placing of pods that wait before the one asked about", "the rest is placed alone")
BLOCKERS = StepLimit(2_000_000, "which pods are in the way of one", "no blocker is named")
SEARCHED_HINTS = StepLimit(3_000_000, "the changes with which claims would fit a node", _NO_ADVICE)
TRIAL = StepLimit(3_000_000, "claims of a file, on all kinds of nodes", "the command says that it is undecided")
REPLACEMENT = StepLimit(1_000_000, "a claim of another size on its node", "the command says that it is undecided")
OTHER_POOLS = StepLimit(2_000_000, "the devices of a node's other pools in `explain device`", "they are not compared")
PAIRS = StepLimit(
    2_000_000, "the pairs of devices on the dashboard page Together", "the remaining pairs are not judged"
)
BROKEN_RULES = StepLimit(200_000, "allocations that would break a DeviceCompatibility, in `check`", "none is named")

ALL: dict[str, StepLimit] = {name: value for name, value in list(globals().items()) if isinstance(value, StepLimit)}
