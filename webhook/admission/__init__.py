"""The bytes of a review and a state become the bytes of an answer."""

from webhook.admission import registration, review, template_lifecycle
from webhook.admission.admission_review import ReviewError
from webhook.admission.behind_fence import STRANDED
from webhook.admission.decide import Candidate, decide_pod
from webhook.admission.decide_object import answer_of_api_server, decide_object, given_by_runtime
from webhook.admission.feasibility import Feasibility, judge
from webhook.admission.limit_ranges import out_of_bounds
from webhook.admission.missed_pods import MissedPod, find_missed, find_unknown, find_unserved, why_unknown
from webhook.admission.quota import future_claims_of_pod, review_quota
from webhook.admission.registration import Registration, configurations
from webhook.admission.review import REFUSED, UNDECIDED, Answer, Record, answer_timeout
from webhook.admission.risk import find_broken_rule
from webhook.admission.template_lifecycle import Due, TemplateKey, known_at_admission
from webhook.admission.unanswered_requests import find_unrequested_access
from webhook.admission.unknown_kinds import amounts_in, asks_in_unknown_kind

__all__ = [
    "REFUSED",
    "STRANDED",
    "UNDECIDED",
    "Answer",
    "Candidate",
    "Due",
    "Feasibility",
    "MissedPod",
    "Record",
    "Registration",
    "ReviewError",
    "TemplateKey",
    "amounts_in",
    "answer_of_api_server",
    "answer_timeout",
    "asks_in_unknown_kind",
    "configurations",
    "decide_object",
    "decide_pod",
    "find_broken_rule",
    "find_missed",
    "find_unknown",
    "find_unrequested_access",
    "find_unserved",
    "future_claims_of_pod",
    "given_by_runtime",
    "judge",
    "known_at_admission",
    "out_of_bounds",
    "registration",
    "review",
    "review_quota",
    "template_lifecycle",
    "why_unknown",
]
