"""The condition that a node may wear: whether what the kubelet, drivers and claims say of its devices fits together. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from node.audit.findings import Finding

CONDITION = "DrawbridgeDevicesConsistent"
Worn = dict[str, Any]


def worn_by(node: Mapping[str, Any]) -> Worn | None:
    """Read the condition from a node as the API server has it."""
    conditions = node.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == CONDITION), None)


def condition_of(findings: Iterable[Finding], unread: str, before: Worn | None, now: str) -> Worn:
    """Say what the condition is; what was so before keeps its time. It names no pod: whoever may read nodes reads it."""
    numbers = Counter(one.what for one in findings)
    if numbers:
        status, reason = "False", next(iter(numbers)).reason
        kinds = [f"{number} {what.value}" for what, number in numbers.items()]
        message = f"{'; '.join(kinds)}: see the events of the node"
    elif unread:
        status, reason, message = "Unknown", "KubeletAway", "the kubelet does not say which devices containers have"
    else:
        status, reason = "True", "DevicesFit"
        message = "what the kubelet, drivers and claims say of the devices fits together"
    known = before or {}
    since = known.get("lastTransitionTime") if known.get("status") == status else ""
    return {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or now,
    }
