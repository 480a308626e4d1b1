"""A fleet that migrates node by node from device plugins to drivers: which nodes have migrated, and where a pod is served."""

from webhook.mixed_fleet.choice import Choice, choose
from webhook.mixed_fleet.preference import Preference, read_preference
from webhook.mixed_fleet.reach import node_index, place_of, reach_templates, reach_whatever_taints
from webhook.mixed_fleet.standing import NodesOfName, standings

__all__ = [
    "Choice",
    "NodesOfName",
    "Preference",
    "choose",
    "node_index",
    "place_of",
    "reach_templates",
    "reach_whatever_taints",
    "read_preference",
    "standings",
]
