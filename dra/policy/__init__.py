"""What may be in use beside what, and how much of it by whom."""

from __future__ import annotations

from dra.policy.demand import Demands
from dra.policy.quota import (
    Limit,
    QuotaLine,
    amount_of,
    concerns,
    held_of_quota,
    in_scope,
    is_count,
    limits_of,
    misread,
    quota_lines,
    read_key,
    whose,
    write_amount,
)
from dra.policy.rules import NO_GROUPS, GroupState, Rule, Rules, admits, group_states, in_the_way, own_state

__all__ = [
    "NO_GROUPS",
    "Demands",
    "GroupState",
    "Limit",
    "QuotaLine",
    "Rule",
    "Rules",
    "admits",
    "amount_of",
    "concerns",
    "group_states",
    "held_of_quota",
    "in_scope",
    "in_the_way",
    "is_count",
    "limits_of",
    "misread",
    "own_state",
    "quota_lines",
    "read_key",
    "whose",
    "write_amount",
]
