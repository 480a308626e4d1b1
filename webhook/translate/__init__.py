"""Translates a pod: finds the dialect of each key and its meaning, and writes a patch with claims."""

from webhook.translate.checks import HABANA, served_by
from webhook.translate.json_patch import apply_own
from webhook.translate.known_keys import keys_of, near_key, rows_at
from webhook.translate.pod_report import Decision, decides_outcome, outcome_of
from webhook.translate.pod_template import (
    COPIES,
    OWN_GROUP,
    bodies,
    controller_kind,
    is_unknown_kind,
    name_of,
    namespace_of,
    paths,
    pods_by_template,
    pods_in,
    resolve_pointer,
)
from webhook.translate.pod_view import (
    MIRROR,
    PLACEHOLDER,
    PodView,
    find_names,
    find_placeholder,
    is_skipped,
    requests,
    view_pod,
)
from webhook.translate.record import verified_record
from webhook.translate.rewrite import Operation, PodClaim
from webhook.translate.translate import claims_added_earlier, clean, replay, translate, translate_template
from webhook.translate.verdict import NOTHING, PodVerdict, merge
from webhook.translate.workload_kind import (
    QUEUE,
    READ_BY_OTHERS,
    RENDERED,
    STANDALONE,
    Provenance,
    group_kind,
    kind_of,
    labels_of_pods,
    origin_of,
    right_kind,
    scheduler_of,
)

__all__ = [
    "COPIES",
    "HABANA",
    "MIRROR",
    "NOTHING",
    "OWN_GROUP",
    "PLACEHOLDER",
    "QUEUE",
    "READ_BY_OTHERS",
    "RENDERED",
    "STANDALONE",
    "Decision",
    "Operation",
    "PodClaim",
    "PodVerdict",
    "PodView",
    "Provenance",
    "apply_own",
    "bodies",
    "claims_added_earlier",
    "clean",
    "controller_kind",
    "decides_outcome",
    "find_names",
    "find_placeholder",
    "group_kind",
    "is_skipped",
    "is_unknown_kind",
    "keys_of",
    "kind_of",
    "labels_of_pods",
    "merge",
    "name_of",
    "namespace_of",
    "near_key",
    "origin_of",
    "outcome_of",
    "paths",
    "pods_by_template",
    "pods_in",
    "replay",
    "requests",
    "resolve_pointer",
    "right_kind",
    "rows_at",
    "scheduler_of",
    "served_by",
    "translate",
    "translate_template",
    "verified_record",
    "view_pod",
]
