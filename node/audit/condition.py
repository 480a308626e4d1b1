"""The condition that a node may wear: whether what the kubelet, drivers and claims say of its devices fits together. Pure.

Like a mark it carries the time when an agent last stood by it: an agent that was killed leaves an old one, which readers do not believe.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from node.audit.findings import AuditFinding

CONDITION = "DrawbridgeDevicesConsistent"
RENEWED = timedelta(minutes=10)
Worn = dict[str, Any]


def worn_by(node: Mapping[str, Any]) -> Worn | None:
    """Read the condition from a node, as the API server has it or as it stands in a dump."""
    status = node.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else ()
    told = [one for one in conditions or () if isinstance(one, dict) and one.get("type") == CONDITION]
    return told[0] if told else None


def condition_of(findings: Iterable[AuditFinding], unread: str, before: Worn | None, now: str) -> Worn:
    """Say what the condition is; what was so before keeps its time. It names no pod: every reader of nodes reads it."""
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
    # The heartbeat is renewed now and then, not with each look: many clients watch a node.
    heartbeat, stood = now, stood_by_at(known)
    if stood is not None and timedelta(0) <= datetime.fromisoformat(now) - stood < RENEWED:
        heartbeat = known["lastHeartbeatTime"]
    return {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or now,
        "lastHeartbeatTime": heartbeat,
    }


def stood_by_at(condition: Worn) -> datetime | None:
    """Say when an agent last stood by a condition; None if that cannot be read."""
    try:
        stood = datetime.fromisoformat(condition.get("lastHeartbeatTime") or "")
    except (TypeError, ValueError):
        return None
    return stood if stood.tzinfo is not None else None
