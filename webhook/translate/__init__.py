"""A pod and a state become a patch: whose words these are, what they mean, what is written."""

from __future__ import annotations

from webhook.translate.pod_template import (
    at,
    bodies,
    controller_kind,
    merge,
    name_of,
    namespace_of,
    paths,
    translate_each,
    translate_object,
)
from webhook.translate.pod_view import PLACEHOLDER, PodView, Slot, is_passed_by, is_placeholder, look, mapping
from webhook.translate.record import LARGEST, is_genuine
from webhook.translate.rewrite import Given
from webhook.translate.translate import (
    TOO_LARGE,
    Decision,
    Translation,
    clean,
    given_earlier,
    outside_words,
    replay,
    translate,
)
from webhook.translate.workload_kind import WorkloadKind, group_kind, kind_of, origin_of, scheduler_of

__all__ = [
    "LARGEST",
    "PLACEHOLDER",
    "TOO_LARGE",
    "Decision",
    "Given",
    "PodView",
    "Slot",
    "Translation",
    "WorkloadKind",
    "at",
    "bodies",
    "clean",
    "controller_kind",
    "given_earlier",
    "group_kind",
    "is_genuine",
    "is_passed_by",
    "is_placeholder",
    "kind_of",
    "look",
    "mapping",
    "merge",
    "name_of",
    "namespace_of",
    "origin_of",
    "outside_words",
    "paths",
    "replay",
    "scheduler_of",
    "translate",
    "translate_each",
    "translate_object",
]
