"""The node condition that reports whether the kubelet, drivers and claims agree about the node's devices.

Like a mark, the condition has the time of its last renewal, so that readers can ignore the old condition of an agent that was killed.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dra.codes import CODES
from dra.texts import count_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from node.audit.findings import NodeFinding

CONDITION = "DrawbridgeDevicesConsistent"
RENEWAL_INTERVAL = timedelta(minutes=10)
NodeCondition = dict[str, Any]


def condition_on(node: Mapping[str, Any]) -> NodeCondition | None:
    """Return this condition of a node, which was read from the API server or from a dump."""
    status = node.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else ()
    matching = [
        condition
        for condition in conditions or ()
        if isinstance(condition, dict) and condition.get("type") == CONDITION
    ]
    return matching[0] if matching else None


def condition_of(findings: Iterable[NodeFinding], unread: str, before: NodeCondition | None, now: str) -> NodeCondition:
    """Return the condition for these findings. `unread` is why the kubelet could not be read; `before` is the node's current condition.

    The condition names no pod, because every account that can read nodes can read it.
    """
    counts = Counter(finding.kind for finding in findings)
    if counts:
        status, reason = "False", next(iter(counts)).reason
        kinds = [
            f"{count_of(number, 'finding')} {kind.code} ({CODES[kind.code].title})" for kind, number in counts.items()
        ]
        message = f"{'; '.join(kinds)}: see the events of the node"
    elif unread:
        status, reason, message = "Unknown", "KubeletAway", "the kubelet does not say which devices containers have"
    else:
        status, reason = "True", "DevicesFit"
        message = "the kubelet, drivers and claims agree about the devices"
    last_condition = before or {}
    since = last_condition.get("lastTransitionTime") if last_condition.get("status") == status else ""
    # The heartbeat is not renewed in every round, because many clients watch nodes.
    heartbeat, renewed = now, renewed_at(last_condition)
    if renewed is not None and timedelta(0) <= datetime.fromisoformat(now) - renewed < RENEWAL_INTERVAL:
        heartbeat = last_condition["lastHeartbeatTime"]
    return {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since or now,
        "lastHeartbeatTime": heartbeat,
    }


def renewed_at(condition: NodeCondition) -> datetime | None:
    """Return when an agent last renewed a condition; None if its time is invalid."""
    try:
        renewed = datetime.fromisoformat(condition.get("lastHeartbeatTime") or "")
    except (TypeError, ValueError):
        return None
    return renewed if renewed.tzinfo is not None else None
