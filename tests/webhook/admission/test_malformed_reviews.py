"""Malformed reviews, amounts beyond 64 bits, and a review that takes too long."""

import pytest

from tests.webhook.admission.reviews import (
    ENFORCE,
    answer,
    claim_request,
    gpu_claim,
    gpu_pod,
    mutated,
    review,
    translated,
    validated,
)
from webhook.admission import admission_review as reviews
from webhook.admission import review as admission


@pytest.mark.parametrize(
    ("amount", "is_accepted"),
    [("9e19", True), ("9" * 64, True), ("9" * 310, True), ("10000000000000000000", False), ("1" * 64, False)],
)
def test_amounts_beyond_64_bits_are_refused_as_by_kubernetes(amount, is_accepted):
    """The API server checks thousandths, which overflow for some larger amounts (`tests/dra/validation/test_pods.py`)."""
    _, outcome = mutated(gpu_pod(limits={"nvidia.com/gpu": amount}))
    assert answer(outcome)["allowed"] is is_accepted
    assert [decision.outcome for decision in outcome.record.decisions] == ["left" if is_accepted else "refused"]


def test_an_object_without_timely_review_is_admitted_with_warning():
    pod = translated(gpu_pod(limits={"nvidia.com/gpu": "16"}))
    outcome = admission.decide_review("validate", review(pod), ENFORCE, is_out_of_time=lambda: True)
    assert answer(outcome)["allowed"]
    assert "in time" in answer(outcome)["warnings"][0]
    assert outcome.record.outcome == "undecided"


# Hostile input


@pytest.mark.parametrize("obj", [None, [], "x", 7, True])
@pytest.mark.parametrize("path", ["mutate", "validate"])
def test_a_review_without_a_json_object_is_refused(path, obj):
    response = answer(admission.decide_review(path, review(obj), ENFORCE))
    assert response["allowed"] is False
    assert response["status"]["code"] == 400


def test_a_claim_that_cannot_be_decoded_is_admitted():
    strange = gpu_claim()
    strange["spec"]["devices"]["requests"][0]["exactly"]["count"] = "from the future"
    response = answer(validated(strange, **claim_request()))
    assert response["allowed"]
    assert "so it is not checked" in response["warnings"][0]


def test_a_deeply_nested_review_is_a_bad_request():
    deep = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE","object":{"spec":' + b"[" * 500_000  # fmt: skip
    with pytest.raises(reviews.ReviewError):
        admission.decide_review("mutate", deep + b"]" * 500_000 + b"}}}", ENFORCE)
