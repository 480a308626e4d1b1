"""A fleet that moves node by node has two sides: which nodes are on which, and for which side a pod is."""

from __future__ import annotations

from webhook.sides.choice import Choice, choose
from webhook.sides.preference import Preference, read_preference
from webhook.sides.standing import Standing, standings

__all__ = ["Choice", "Preference", "Standing", "choose", "read_preference", "standings"]
