"""What the kubelet, drivers and the cluster each say of a node's devices, held against each other; and which devices are to be left alone."""

from __future__ import annotations

from node.audit.condition import CONDITION, condition_of, stood_by_at, worn_by
from node.audit.findings import COMPONENT, OVER, Finding, Kind, Patience, examine
from node.audit.foreign import Foreign, UnknownForm, read_foreign, with_names
from node.audit.holders import ContainerDevice, holders
from node.audit.kubelet_state import UnreadableState, read_state
from node.audit.marks import HELD_BY_PLUGIN, MARKED_ON, markable, marks_of, plan, seen_at, sign_of, unmarkable
from node.audit.names import claim_uid, plain
from node.audit.promised import Unlikely, read_promises, that_stood
from node.audit.sight import DeviceId, HandedOut, PreparedThere, Promise, PromisedDevice, Sight
from node.audit.silicon import Silicon

__all__ = [
    "COMPONENT",
    "CONDITION",
    "HELD_BY_PLUGIN",
    "MARKED_ON",
    "OVER",
    "ContainerDevice",
    "DeviceId",
    "Finding",
    "Foreign",
    "HandedOut",
    "Kind",
    "Patience",
    "PreparedThere",
    "Promise",
    "PromisedDevice",
    "Sight",
    "Silicon",
    "UnknownForm",
    "Unlikely",
    "UnreadableState",
    "claim_uid",
    "condition_of",
    "examine",
    "holders",
    "markable",
    "marks_of",
    "plain",
    "plan",
    "read_foreign",
    "read_promises",
    "read_state",
    "seen_at",
    "sign_of",
    "stood_by_at",
    "that_stood",
    "unmarkable",
    "with_names",
    "worn_by",
]
