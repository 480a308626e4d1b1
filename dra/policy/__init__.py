"""What may be in use beside what."""

from __future__ import annotations

from dra.policy.rules import NO_GROUPS, Rule, Rules, State, admits, group_states, in_the_way, own_state

__all__ = ["NO_GROUPS", "Rule", "Rules", "State", "admits", "group_states", "in_the_way", "own_state"]
