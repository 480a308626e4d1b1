"""A pod and a state become a patch: whose words these are, what they mean, what is written."""

from __future__ import annotations

from webhook.translate.pod_template import at, name_of, paths, translate_object
from webhook.translate.pod_view import mapping
from webhook.translate.record import CLAIM_PREFIX, TEMPLATES
from webhook.translate.translate import Decision, Translation, replay, translate_in

__all__ = [
    "CLAIM_PREFIX",
    "TEMPLATES",
    "Decision",
    "Translation",
    "at",
    "mapping",
    "name_of",
    "paths",
    "replay",
    "translate_in",
    "translate_object",
]
