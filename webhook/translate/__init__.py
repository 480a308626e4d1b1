"""A pod and a state become a patch: whose keys these are, what they mean, what is written."""

from webhook.translate.known_keys import keys_of, near_key, rows_at
from webhook.translate.missed_pods import MissedPod, find_missed, find_unknown, find_unserved, why_unknown
from webhook.translate.pod_template import (
    OWN_GROUP,
    at,
    bodies,
    controller_kind,
    is_unknown_kind,
    name_of,
    namespace_of,
    paths,
    pods_in,
)
from webhook.translate.pod_view import (
    MIRROR,
    PLACEHOLDER,
    PodView,
    find_names,
    find_placeholder,
    is_passed_by,
    view_pod,
)
from webhook.translate.record import unseal_record
from webhook.translate.report import Decision, decides_outcome, outcome_of, served_by
from webhook.translate.rewrite import Operation, PodClaim
from webhook.translate.translate import (
    clean,
    given_earlier,
    replay,
    translate,
    translate_template,
)
from webhook.translate.unanswered_requests import NO_NODE, find_unrequested_access, unanswered_requests
from webhook.translate.unknown_kinds import amounts_in, asks_in_unknown_kind, decide_unknown_kind
from webhook.translate.verdict import NOTHING, Verdict, merge
from webhook.translate.workload_kind import (
    RENDERED,
    STANDALONE,
    Provenance,
    group_kind,
    kind_of,
    marks_of,
    origin_of,
    right_kind,
    scheduler_of,
)

__all__ = [
    "MIRROR",
    "NOTHING",
    "NO_NODE",
    "OWN_GROUP",
    "PLACEHOLDER",
    "RENDERED",
    "STANDALONE",
    "Decision",
    "MissedPod",
    "Operation",
    "PodClaim",
    "PodView",
    "Provenance",
    "Verdict",
    "amounts_in",
    "asks_in_unknown_kind",
    "at",
    "bodies",
    "clean",
    "controller_kind",
    "decide_unknown_kind",
    "decides_outcome",
    "find_missed",
    "find_names",
    "find_placeholder",
    "find_unknown",
    "find_unrequested_access",
    "find_unserved",
    "given_earlier",
    "group_kind",
    "is_passed_by",
    "is_unknown_kind",
    "keys_of",
    "kind_of",
    "marks_of",
    "merge",
    "name_of",
    "namespace_of",
    "near_key",
    "origin_of",
    "outcome_of",
    "paths",
    "pods_in",
    "replay",
    "right_kind",
    "rows_at",
    "scheduler_of",
    "served_by",
    "translate",
    "translate_template",
    "unanswered_requests",
    "unseal_record",
    "view_pod",
    "why_unknown",
]
