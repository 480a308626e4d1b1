"""Compares the state of a node's devices in the kubelet, the drivers and the cluster, and marks devices that claims must not use."""

from node.audit.condition import CONDITION, condition_of, condition_on, renewed_at
from node.audit.findings import COMPONENT, FINDING_ENDED, FindingAges, FindingKind, NodeFinding, examine
from node.audit.holders import ContainerDevice, holders
from node.audit.marks import MARKED_ON, hash_of, markable, marks_of, plan, seen_at, unmarkable
from node.audit.other_drivers import (
    UnknownForm,
    UnreadableState,
    read_other_driver,
    read_state,
    with_names,
)
from node.audit.reservations import InvalidAnswer, in_both, read_reservations
from node.audit.snapshot import (
    NodePluginDevice,
    NodeReservation,
    NodeReservedDevice,
    NodeSnapshot,
    PreparedDeviceRecord,
    plain,
)
from node.hardware import DeviceId, Hardware

__all__ = [
    "COMPONENT",
    "CONDITION",
    "FINDING_ENDED",
    "MARKED_ON",
    "ContainerDevice",
    "DeviceId",
    "FindingAges",
    "FindingKind",
    "Hardware",
    "InvalidAnswer",
    "NodeFinding",
    "NodePluginDevice",
    "NodeReservation",
    "NodeReservedDevice",
    "NodeSnapshot",
    "PreparedDeviceRecord",
    "UnknownForm",
    "UnreadableState",
    "condition_of",
    "condition_on",
    "examine",
    "hash_of",
    "holders",
    "in_both",
    "markable",
    "marks_of",
    "plain",
    "plan",
    "read_other_driver",
    "read_reservations",
    "read_state",
    "renewed_at",
    "seen_at",
    "unmarkable",
    "with_names",
]
