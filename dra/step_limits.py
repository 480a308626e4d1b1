"""The limits of computation: the most steps that each kind of work may take. docs/limits.md lists them.

A step takes about a microsecond. A search for devices counts search steps, which take about eight microseconds each, and also charges
them to the budget of the whole question. Beyond a limit the answer is "undecided" (`dra.budget`).
"""

from __future__ import annotations

from typing import Self


class StepLimit(int):
    """A number of steps, the work that it bounds, and what happens when the steps are spent."""

    bounds: str
    beyond: str

    def __new__(cls, steps: int, bounds: str, beyond: str) -> Self:
        limit = super().__new__(cls, steps)
        limit.bounds, limit.beyond = bounds, beyond
        return limit


_UNDECIDED = "the pod is admitted unchanged or unchecked, with a warning"
_NO_ADVICE = "the message has no advice"
_RETRIED = "the pod waits for the next scheduling attempt"

# The webhook, and the commands that decide as it does.
REVIEW = StepLimit(
    1_000_000, "translating a pod or template, and as many for checking it against the fleet", _UNDECIDED
)
VERDICT = StepLimit(3_000, "checking claims against one kind of node (search steps)", "the claims are not refused")
HINTS = StepLimit(500_000, "advice for refused claims", _NO_ADVICE)
EXPRESSION = StepLimit(
    2_000,
    "evaluating an expression of a rule on one value (20 times as many for compiling the expression)",
    "the key stays on the pod",
)
EXPRESSION_CALL = StepLimit(1_000, "one uninterruptible call in such an expression", "the key stays on the pod")
RULE_SELECTOR = StepLimit(
    80_000, "checking a selector of a rule in a new configuration", "the configuration is refused"
)
CLASS_ON_GROUP = StepLimit(
    200,
    "evaluating the selectors of a class on a group of equal devices",
    "further steps for the group count towards the limit for all groups",
)
CLASS_ON_FLEET = StepLimit(
    200_000, "evaluating the selectors of a class on all groups of devices", "some devices of the class are not counted"
)
MISSED_POD = StepLimit(
    50_000, "checking a pod that was created without the webhook", "the pod is not reported in this pass"
)
TEMPLATES_AHEAD = StepLimit(
    1_000_000,
    "translating a workload, to create its templates before its pods",
    "the templates are created after the pods",
)
# The allocator.
NODE_SEARCH = StepLimit(120_000, "searching one node (search steps), if no other limit applies", _RETRIED)
QUESTION = StepLimit(1_000_000, "one scheduling attempt on all nodes", _RETRIED)
WHOLE_CALL = StepLimit(
    30_000, "one uninterruptible call in a scheduling attempt, such as compiling a pattern", _RETRIED
)
KEPT_NODE = StepLimit(
    20_000, "checking whether a pod fits the node kept for it", "the node is no longer kept for the pod"
)
PREEMPTION = StepLimit(2_000_000, "choosing preemption victims for a pod", "no pod is evicted in this attempt")
PREEMPTION_SEARCH = StepLimit(5_000, "checking one set of victims (search steps)", "the next set of victims is checked")
RULE_PAGE = StepLimit(
    20_000,
    "evaluating a DeviceCompatibility on the devices of a ResourceSlice",
    "the status of the DeviceCompatibility reports the limit",
)
# Commands.
OUTLOOK = StepLimit(
    3_000_000,
    "placing the pods that are ahead of the explained pod",
    "the remaining pods ahead of the explained pod are ignored",
)
BLOCKERS = StepLimit(2_000_000, "finding the claims that block a pod", "no claim is named")
REASONS = StepLimit(
    3_000_000,
    "finding out why pods wait (dashboard page Waiting)",
    "the page shows the scheduler's messages for the remaining pods",
)
SEARCHED_HINTS = StepLimit(3_000_000, "advice for claims that do not fit a node (`simulate --claims`)", _NO_ADVICE)
OTHER_POOLS = StepLimit(
    2_000_000,
    "comparing a device with the other pools of its node (`explain device`)",
    "other pools are not compared",
)
PAIRS = StepLimit(2_000_000, "comparing pairs of devices (dashboard page Together)", "other pools are not compared")
BROKEN_RULES = StepLimit(
    200_000, "finding allocations that violate a DeviceCompatibility (`check`)", "no allocation is named"
)

ALL: dict[str, StepLimit] = {name: value for name, value in list(globals().items()) if isinstance(value, StepLimit)}
