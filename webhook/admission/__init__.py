"""Decides admission reviews: `decide_review` takes the bytes of an AdmissionReview and a `State`, and returns the answer."""

from webhook.admission.admission_review import ReviewError
from webhook.admission.decide import ReviewedPod, decide_pod
from webhook.admission.decide_object import answer_of_api_server, changes_by_runtime_class, decide_object
from webhook.admission.limit_ranges import out_of_bounds
from webhook.admission.replicas import Replicas
from webhook.admission.review import REFUSED, UNDECIDED, Record, ReviewAnswer, answer_timeout, decide_review

__all__ = [
    "REFUSED",
    "UNDECIDED",
    "Record",
    "Replicas",
    "ReviewAnswer",
    "ReviewError",
    "ReviewedPod",
    "answer_of_api_server",
    "answer_timeout",
    "changes_by_runtime_class",
    "decide_object",
    "decide_pod",
    "decide_review",
    "out_of_bounds",
]
