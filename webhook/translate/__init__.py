"""Translates a pod: finds the dialect of each key and its meaning, and writes a patch with claims."""

from webhook.translate.json_patch import apply_own
from webhook.translate.known_keys import keys_of
from webhook.translate.missed_pods import MissedPod, find_missed, find_unknown, find_unserved, why_unknown
from webhook.translate.pod_template import (
    controller_kind,
    is_unknown_kind,
    name_of,
    namespace_of,
    paths,
    pods_in,
    resolve_pointer,
)
from webhook.translate.pod_view import (
    MIRROR,
    find_names,
    find_placeholder,
    is_skipped,
    view_pod,
)
from webhook.translate.record import verified_record
from webhook.translate.report import Decision, decides_outcome, outcome_of
from webhook.translate.rewrite import Operation, PodClaim
from webhook.translate.translate import (
    claims_added_earlier,
    clean,
    replay,
    translate,
    translate_template,
)
from webhook.translate.unanswered_requests import NO_NODE_HAS_KEY, find_unrequested_access, unanswered_requests
from webhook.translate.unknown_kinds import amounts_in, asks_in_unknown_kind, counts_keys, decide_unknown_kind
from webhook.translate.verdict import NOTHING, Verdict, merge
from webhook.translate.workload_kind import (
    STANDALONE,
    Provenance,
    group_kind,
    kind_of,
    labels_of_pods,
    origin_of,
    scheduler_of,
)

__all__ = [
    "MIRROR",
    "NOTHING",
    "NO_NODE_HAS_KEY",
    "STANDALONE",
    "Decision",
    "MissedPod",
    "Operation",
    "PodClaim",
    "Provenance",
    "Verdict",
    "amounts_in",
    "apply_own",
    "asks_in_unknown_kind",
    "claims_added_earlier",
    "clean",
    "controller_kind",
    "counts_keys",
    "decide_unknown_kind",
    "decides_outcome",
    "find_missed",
    "find_names",
    "find_placeholder",
    "find_unknown",
    "find_unrequested_access",
    "find_unserved",
    "group_kind",
    "is_skipped",
    "is_unknown_kind",
    "keys_of",
    "kind_of",
    "labels_of_pods",
    "merge",
    "name_of",
    "namespace_of",
    "origin_of",
    "outcome_of",
    "paths",
    "pods_in",
    "replay",
    "resolve_pointer",
    "scheduler_of",
    "translate",
    "translate_template",
    "unanswered_requests",
    "verified_record",
    "view_pod",
    "why_unknown",
]
