"""What may be in use beside what."""

from __future__ import annotations

from dra.policy.rules import NO_GROUPS, GroupState, Rule, Rules, admits, group_states, in_the_way, own_state

__all__ = ["NO_GROUPS", "GroupState", "Rule", "Rules", "admits", "group_states", "in_the_way", "own_state"]
