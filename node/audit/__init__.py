"""The state of a node's devices by the kubelet, drivers and the cluster, compared; and the devices that claims must not have."""

from __future__ import annotations

from node.audit.condition import CONDITION, condition_of, stood_by_at, worn_by
from node.audit.findings import COMPONENT, OVER, AuditFinding, FindingAges, FindingKind, claim_uid, examine
from node.audit.hardware_identity import Hardware
from node.audit.holders import ContainerDevice, holders
from node.audit.marks import HELD_BY_PLUGIN, MARKED_ON, markable, marks_of, plan, seen_at, sign_of, unmarkable
from node.audit.other_drivers import (
    BadCheckpoint,
    UnknownForm,
    UnreadableState,
    read_other_driver,
    read_state,
    with_names,
)
from node.audit.reservations import Unlikely, in_both, read_reservations
from node.audit.snapshot import (
    DeviceId,
    HandedOut,
    NodeReservation,
    NodeReservedDevice,
    NodeSnapshot,
    PreparedThere,
    plain,
)

__all__ = [
    "COMPONENT",
    "CONDITION",
    "HELD_BY_PLUGIN",
    "MARKED_ON",
    "OVER",
    "AuditFinding",
    "BadCheckpoint",
    "ContainerDevice",
    "DeviceId",
    "FindingAges",
    "FindingKind",
    "HandedOut",
    "Hardware",
    "NodeReservation",
    "NodeReservedDevice",
    "NodeSnapshot",
    "PreparedThere",
    "UnknownForm",
    "Unlikely",
    "UnreadableState",
    "claim_uid",
    "condition_of",
    "examine",
    "holders",
    "in_both",
    "markable",
    "marks_of",
    "plain",
    "plan",
    "read_other_driver",
    "read_reservations",
    "read_state",
    "seen_at",
    "sign_of",
    "stood_by_at",
    "unmarkable",
    "with_names",
    "worn_by",
]
