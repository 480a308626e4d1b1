"""The input of every decision, as one value: the configuration, the fleet, the modes of namespaces, and the server's features."""

from webhook.state import configuration
from webhook.state.autoscalers import CLUSTER_AUTOSCALER, STATUS
from webhook.state.builder import Seen, StateBuilder
from webhook.state.configuration import Configuration, read_configuration
from webhook.state.custom_kind import CustomKind, custom_kinds
from webhook.state.device_plugins import Replicated, config_maps_of, shared_by_labels
from webhook.state.features import Features
from webhook.state.installed import IN_CONFIG_MAPS, installed, is_component
from webhook.state.installed import NONE as NOTHING_INSTALLED
from webhook.state.inventory import Inventory
from webhook.state.mode import (
    Mode,
    PodOwner,
    mistake_of,
    mode_in,
    mode_of,
    why_not,
    why_rules_unknown,
    with_mode,
    workload,
)
from webhook.state.network_pools import NetworkPool
from webhook.state.node_templates import prospects
from webhook.state.outline import outline
from webhook.state.reach import NodeIndex, node_constraints, node_index, reach_ignoring_taints, reach_templates
from webhook.state.schema import (
    BridgeSettings,
    CPUClaims,
    Joint,
    KubernetesSettings,
    MixedFleet,
    NodeTemplate,
    Placing,
    PreferredNodes,
)
from webhook.state.state import OF_DEVICES, OF_NAMESPACES, State

__all__ = [
    "CLUSTER_AUTOSCALER",
    "IN_CONFIG_MAPS",
    "NOTHING_INSTALLED",
    "OF_DEVICES",
    "OF_NAMESPACES",
    "STATUS",
    "BridgeSettings",
    "CPUClaims",
    "Configuration",
    "CustomKind",
    "Features",
    "Inventory",
    "Joint",
    "KubernetesSettings",
    "MixedFleet",
    "Mode",
    "NetworkPool",
    "NodeIndex",
    "NodeTemplate",
    "Placing",
    "PodOwner",
    "PreferredNodes",
    "Replicated",
    "Seen",
    "State",
    "StateBuilder",
    "config_maps_of",
    "configuration",
    "custom_kinds",
    "installed",
    "is_component",
    "mistake_of",
    "mode_in",
    "mode_of",
    "node_constraints",
    "node_index",
    "outline",
    "prospects",
    "reach_ignoring_taints",
    "reach_templates",
    "read_configuration",
    "shared_by_labels",
    "why_not",
    "why_rules_unknown",
    "with_mode",
    "workload",
]
