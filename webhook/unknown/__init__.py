"""What no dialect answers: unknown kinds of workloads, keys that nothing serves, and pods that the webhook missed."""

from webhook.unknown.missed_pods import find_missed, find_unknown, find_unserved, why_unknown
from webhook.unknown.unanswered_requests import (
    NO_NODE_HAS_KEY,
    container_requests,
    find_unmatched_selectors,
    unanswered_requests,
    unknown_resources,
)
from webhook.unknown.unknown_kinds import decide_unknown_kind
from webhook.unknown.uses import accesses, counts_keys, located, requests_outside
from webhook.unknown.words import amounts_in, gives_devices, is_accelerator

__all__ = [
    "NO_NODE_HAS_KEY",
    "accesses",
    "amounts_in",
    "container_requests",
    "counts_keys",
    "decide_unknown_kind",
    "find_missed",
    "find_unknown",
    "find_unmatched_selectors",
    "find_unserved",
    "gives_devices",
    "is_accelerator",
    "located",
    "requests_outside",
    "unanswered_requests",
    "unknown_resources",
    "why_unknown",
]
