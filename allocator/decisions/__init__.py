"""Decisions for a scheduler: what a pod waits for, which nodes can serve its claims, and what it gets on one of them.

Pure: a pod and a stock come in, values go out. Nothing is held or written here; that is `allocator.reservations` and
`allocator.service`. Besides devices nothing is looked at: cpu, taints and affinity are the scheduler's own business.
"""

from __future__ import annotations

from allocator.decisions.advice import advice
from allocator.decisions.decider import Decider, Hindrance, Outlook, Outlooks, Serving, Unserved, shape_of
from allocator.decisions.discretion import discreet, names_for
from allocator.decisions.others import reaches_shared_pool, with_pods
from allocator.decisions.placement import (
    STRATEGY,
    Placement,
    PlacementRules,
    UnknownStrategy,
    full_nodes,
    placement_of,
    read_placement,
)
from allocator.decisions.readiness import devices_ready, latest_binding, unusable
from allocator.decisions.replacement import Unreplaceable, plan_replacement
from allocator.decisions.rest import Census, Rest, census_of, rest_of
from allocator.decisions.trial import NodeGroup, claims_for, try_out
from allocator.decisions.wants import wants_of

__all__ = [
    "STRATEGY",
    "Census",
    "Decider",
    "Hindrance",
    "NodeGroup",
    "Outlook",
    "Outlooks",
    "Placement",
    "PlacementRules",
    "Rest",
    "Serving",
    "UnknownStrategy",
    "Unreplaceable",
    "Unserved",
    "advice",
    "census_of",
    "claims_for",
    "devices_ready",
    "discreet",
    "full_nodes",
    "latest_binding",
    "names_for",
    "placement_of",
    "plan_replacement",
    "reaches_shared_pool",
    "read_placement",
    "rest_of",
    "shape_of",
    "try_out",
    "unusable",
    "wants_of",
    "with_pods",
]
