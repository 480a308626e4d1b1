"""For a fleet that migrates node by node from device plugins to drivers: which nodes have migrated, and which nodes serve a pod."""

from webhook.mixed_fleet.choice import Choice, choose
from webhook.mixed_fleet.node_groups import NodesOfName, group_nodes
from webhook.mixed_fleet.preference import Preference, read_preference
from webhook.mixed_fleet.reach import node_constraints, node_index, reach_ignoring_taints, reach_templates

__all__ = [
    "Choice",
    "NodesOfName",
    "Preference",
    "choose",
    "group_nodes",
    "node_constraints",
    "node_index",
    "reach_ignoring_taints",
    "reach_templates",
    "read_preference",
]
