"""Device plugins as they are: their lists become devices, and their answers become CDI files."""

from __future__ import annotations

from node.plugins.answers import PluginFault, answer_of, read_answer, spec_of
from node.plugins.classes import class_of
from node.plugins.offered import Facts, Lore, Plugged, facts_of, identify, machine_of
from node.plugins.preference import Preference
from node.plugins.registration import VERSION, refusal

__all__ = [
    "VERSION",
    "Facts",
    "Lore",
    "Plugged",
    "PluginFault",
    "Preference",
    "answer_of",
    "class_of",
    "facts_of",
    "identify",
    "machine_of",
    "read_answer",
    "refusal",
    "spec_of",
]
