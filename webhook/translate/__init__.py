"""A pod and a state become a patch: whose words these are, what they mean, what is written."""

from __future__ import annotations

from webhook.translate.pod_template import at, controller_kind, name_of, paths, translate_object
from webhook.translate.pod_view import mapping
from webhook.translate.rewrite import Given
from webhook.translate.translate import Decision, Translation, clean, replay, translate

__all__ = [
    "Decision",
    "Given",
    "Translation",
    "at",
    "clean",
    "controller_kind",
    "mapping",
    "name_of",
    "paths",
    "replay",
    "translate",
    "translate_object",
]
