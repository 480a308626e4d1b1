"""What no dialect answers: unknown kinds of workloads, keys that nothing serves, and pods that the webhook missed."""

from webhook.unknown.missed_pods import find_missed, find_unknown, find_unserved, why_unknown
from webhook.unknown.unanswered_requests import (
    NO_NODE_HAS_KEY,
    adds_devices,
    container_requests,
    find_unmatched_selectors,
    find_unrequested_access,
    find_unrequested_files,
    unanswered_requests,
    unknown_resources,
)
from webhook.unknown.unknown_kinds import amounts_in, asks_in_unknown_kind, counts_keys, decide_unknown_kind

__all__ = [
    "NO_NODE_HAS_KEY",
    "adds_devices",
    "amounts_in",
    "asks_in_unknown_kind",
    "container_requests",
    "counts_keys",
    "decide_unknown_kind",
    "find_missed",
    "find_unknown",
    "find_unmatched_selectors",
    "find_unrequested_access",
    "find_unrequested_files",
    "find_unserved",
    "unanswered_requests",
    "unknown_resources",
    "why_unknown",
]
