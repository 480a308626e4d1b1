"""A pod and a state become a patch: whose keys these are, what they mean, what is written."""

from webhook.translate.known_keys import keys_of, near_key, rows_at
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
from webhook.translate.record import is_genuine
from webhook.translate.report import Decision, decides_outcome, outcome_of, served_by
from webhook.translate.rewrite import Operation, PodClaim, Rewrite
from webhook.translate.translate import (
    clean,
    given_earlier,
    replay,
    translate,
    translate_each,
)
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
    "OWN_GROUP",
    "PLACEHOLDER",
    "RENDERED",
    "STANDALONE",
    "Decision",
    "Operation",
    "PodClaim",
    "PodView",
    "Provenance",
    "Rewrite",
    "Verdict",
    "at",
    "bodies",
    "clean",
    "controller_kind",
    "decides_outcome",
    "find_names",
    "find_placeholder",
    "given_earlier",
    "group_kind",
    "is_genuine",
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
    "translate_each",
    "view_pod",
]
