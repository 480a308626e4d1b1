"""Decisions for a scheduler: which objects a pod waits for, which nodes can serve its claims, and which devices it gets on one node.

These are functions of a pod and a stock (an immutable snapshot of devices and claims). Others reserve devices (`allocator.reservations`)
and write to the API server (`allocator.service`). Only devices are considered; the scheduler checks cpu, taints and affinity.
"""

from allocator.decisions.compact_answer import CompactAnswers, KnownNodes, known_nodes, other_nodes
from allocator.decisions.decider import (
    BY_DEFAULT,
    Decider,
    FleetOutlook,
    Outlook,
    Serving,
    demand_key,
)
from allocator.decisions.place import Placed, place
from allocator.decisions.placement import STRATEGY, PlacementRules, full_nodes, placement_of
from allocator.decisions.pod_claims import PodClaims, find_claims, node_obstacle, plugin_nodes
from allocator.decisions.readiness import latest_binding, unusable, why_unready
from allocator.decisions.redaction import name_pods, redact
from allocator.decisions.trial import NodeGroup, by_answer

__all__ = [
    "BY_DEFAULT",
    "STRATEGY",
    "CompactAnswers",
    "Decider",
    "FleetOutlook",
    "KnownNodes",
    "NodeGroup",
    "Outlook",
    "Placed",
    "PlacementRules",
    "PodClaims",
    "Serving",
    "by_answer",
    "demand_key",
    "find_claims",
    "full_nodes",
    "known_nodes",
    "latest_binding",
    "name_pods",
    "node_obstacle",
    "other_nodes",
    "place",
    "placement_of",
    "plugin_nodes",
    "redact",
    "unusable",
    "why_unready",
]
