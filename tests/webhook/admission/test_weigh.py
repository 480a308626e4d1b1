"""The mutating review, which translates a pod, also judges the pod's claims."""

import msgspec
import pytest

from tests.webhook.admission.pods_with_claims import (
    BY_TEMPLATE,
    TOO_MANY,
    pod_with_claims,
    review_outcome,
    state_with_template,
)
from tests.webhook.admission.reviews import (
    ENFORCE,
    answer,
    applied,
    gpu_pod,
    mutated,
    review,
    state,
    translated,
    untouched,
    validated,
)
from webhook.admission import decide
from webhook.admission import review as admission
from webhook.state import Configuration
from webhook.state.schema import DEFAULT


def test_an_impossible_pod_is_refused_with_the_message_of_validation():
    outcome = review_outcome(TOO_MANY)
    assert not answer(outcome)["allowed"]
    assert answer(outcome)["status"] == answer(validated(translated(TOO_MANY)))["status"]
    assert "patch" not in answer(outcome)
    assert outcome.record.outcome == "refused"
    assert answer(outcome)["auditAnnotations"] == {"outcome": "refused", "mode": "enforce"}


def test_an_impossible_pod_is_translated_if_impossible_is_warn():
    lenient = msgspec.structs.replace(
        ENFORCE, configuration=Configuration(msgspec.structs.replace(DEFAULT, mode="enforce", impossible="warn"))
    )
    outcome = review_outcome(TOO_MANY, lenient)
    assert applied(TOO_MANY, outcome) == translated(TOO_MANY)
    assert answer(outcome)["warnings"][0].startswith("this can never work: ")
    assert outcome.record.problems
    assert outcome.record.outcome == "translated"


def test_a_pod_that_has_a_valid_signature_is_judged_again():
    """Such a pod is from a manifest that was read from a cluster, or from a reinvocation. No other review judges the pod."""
    translated_pod = translated(TOO_MANY)
    assert not answer(review_outcome(translated_pod))["allowed"]
    possible_pod, _ = mutated(gpu_pod())
    assert untouched(review_outcome(possible_pod))


def test_an_update_is_not_judged():
    item = pod_with_claims(BY_TEMPLATE)
    world = state_with_template(16)
    outcome = admission.decide_review("mutate", review(item, operation="UPDATE", old=item), world)
    assert untouched(outcome)


def test_a_pod_is_allowed_while_the_devices_are_unknown():
    assert answer(review_outcome(TOO_MANY, state(stock=None)))["allowed"]


def test_a_verdict_that_times_out_keeps_the_translation(out_of_time_while_judging):
    outcome = admission.decide_review("mutate", review(TOO_MANY), ENFORCE, is_out_of_time=out_of_time_while_judging)
    assert answer(outcome)["allowed"]
    assert "patch" in answer(outcome)
    assert "could not be decided in time" in answer(outcome)["warnings"][0]


@pytest.fixture
def out_of_time_while_judging(monkeypatch):
    """Return a function `is_out_of_time` that returns True after the keys are translated and before the claims are judged."""
    judging = []
    judge_pod = decide.judge_pod

    def record_and_judge(*arguments):
        judging.append(True)
        return judge_pod(*arguments)

    monkeypatch.setattr(decide, "judge_pod", record_and_judge)
    return lambda: bool(judging)


def test_the_last_warning_counts_all_omitted_warnings(out_of_time_while_judging):
    pod = gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/priority": "1"})
    [container] = pod["spec"]["containers"]
    pod["spec"]["containers"] = [container | {"name": f"c{number}"} for number in range(7)]
    warnings = answer(review_outcome(pod, is_out_of_time=out_of_time_while_judging))["warnings"]
    assert "in time" in warnings[0]
    assert "drawbridge: 4 more" in warnings[-1]
