"""What is declared and known, as one value: the configuration, the fleet, the modes, the server's features."""

from __future__ import annotations

from webhook.state import configuration
from webhook.state.builder import Seen, StateBuilder
from webhook.state.canary import Workload, covers, workload
from webhook.state.configuration import Configuration, Known, read
from webhook.state.features import ALTERNATIVES, CLAIMS, EXTENDED, SHARES, Features, Need
from webhook.state.inventory import Inventory, Served, Supply, unknown
from webhook.state.mode import Mode, doubts, everywhere, mistake_of, mode_of, why_not
from webhook.state.near import near_key, rows_at
from webhook.state.node_templates import prospects
from webhook.state.schema import Joint, Kubernetes, MixedFleet, NodeTemplate, Placing, PreferredNodes
from webhook.state.state import OF_DEVICES, OF_NAMESPACES, State

__all__ = [
    "ALTERNATIVES",
    "CLAIMS",
    "EXTENDED",
    "OF_DEVICES",
    "OF_NAMESPACES",
    "SHARES",
    "Configuration",
    "Features",
    "Inventory",
    "Joint",
    "Known",
    "Kubernetes",
    "MixedFleet",
    "Mode",
    "Need",
    "NodeTemplate",
    "Placing",
    "PreferredNodes",
    "Seen",
    "Served",
    "State",
    "StateBuilder",
    "Supply",
    "Workload",
    "configuration",
    "covers",
    "doubts",
    "everywhere",
    "mistake_of",
    "mode_of",
    "near_key",
    "prospects",
    "read",
    "rows_at",
    "unknown",
    "why_not",
    "workload",
]
