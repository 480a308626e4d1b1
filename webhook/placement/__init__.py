"""Where a pod can be served: the webhook's judgement of requests by the fleet, and of pods of a fleet that migrates node by node."""

from webhook.placement.behind_fence import STRANDED, add_stranded
from webhook.placement.choice import ServingChoice
from webhook.placement.feasibility import can_any_node_serve
from webhook.placement.impossible import Feasibility
from webhook.placement.judge import (
    Requested,
    can_plugin_serve,
    choose_nodes,
    constraints_in,
    describe_plugin_alternative,
    inspect_claim,
    judge_requests,
    judge_unchanged,
    text_of,
    why_cpus_unserved,
)
from webhook.placement.node_groups import NodesOfName, group_nodes
from webhook.placement.plugin_requests import plugin_request
from webhook.placement.pod_claims import DEFAULT_SCHEDULER, all_claims, extended_claims, find_claim, own_claims
from webhook.placement.preference import Preference, read_preference
from webhook.placement.problems import NO_PROBLEMS, Problems, deny_or_warn
from webhook.placement.quota_check import judge_quotas
from webhook.placement.risk import find_broken_rule

__all__ = [
    "DEFAULT_SCHEDULER",
    "NO_PROBLEMS",
    "STRANDED",
    "Feasibility",
    "NodesOfName",
    "Preference",
    "Problems",
    "Requested",
    "ServingChoice",
    "add_stranded",
    "all_claims",
    "can_any_node_serve",
    "can_plugin_serve",
    "choose_nodes",
    "constraints_in",
    "deny_or_warn",
    "describe_plugin_alternative",
    "extended_claims",
    "find_broken_rule",
    "find_claim",
    "group_nodes",
    "inspect_claim",
    "judge_quotas",
    "judge_requests",
    "judge_unchanged",
    "own_claims",
    "plugin_request",
    "read_preference",
    "text_of",
    "why_cpus_unserved",
]
