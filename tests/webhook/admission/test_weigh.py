"""Claims of a pod are judged in the review that translates it."""

import json

import msgspec
import pytest

from tests.webhook.admission.pods_with_claims import BY_TEMPLATE, TOO_MANY, bringing, given, with_template
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

WAYS = {"more than any node has": "5", "many": "16"}


def test_the_feasibility_check_ignores_pods_that_fit():
    assert given(gpu_pod()) == admission.decide_review("mutate", review(gpu_pod()), ENFORCE)


@pytest.mark.parametrize("count", WAYS.values(), ids=WAYS)
def test_an_impossible_pod_is_refused_with_the_message_of_validation(count):
    pod = gpu_pod(limits={"nvidia.com/gpu": count})
    outcome = given(pod)
    after = translated(pod)
    assert not answer(outcome)["allowed"]
    assert answer(outcome)["status"] == answer(validated(after))["status"]
    assert "patch" not in answer(outcome)
    assert outcome.record.outcome == "refused"
    assert answer(outcome)["auditAnnotations"] == {"outcome": "refused", "mode": "enforce"}


def test_two_containers_with_equal_requests_are_judged_together():
    pod = gpu_pod(limits={"nvidia.com/gpu": "3"})
    [main] = pod["spec"]["containers"]
    pod["spec"]["containers"].append(main | {"name": "other"})
    assert not answer(given(pod))["allowed"], "each alone could be served"


def test_an_impossible_pod_is_translated_if_impossible_is_warn():
    lenient = msgspec.structs.replace(
        ENFORCE, configuration=Configuration(msgspec.structs.replace(DEFAULT, mode="enforce", impossible="warn"))
    )
    outcome = given(TOO_MANY, lenient)
    assert applied(TOO_MANY, outcome) == translated(TOO_MANY)
    assert answer(outcome)["warnings"][0].startswith("this can never work: ")
    assert outcome.record.problems
    assert outcome.record.outcome == "translated"


def test_a_pod_that_comes_with_our_signature_is_judged_again():
    """The pod comes from a manifest that was read from a cluster, or from a reinvocation. Only this review judges it."""
    after = translated(TOO_MANY)
    assert not answer(given(after))["allowed"]
    fine, _ = mutated(gpu_pod())
    assert untouched(given(fine))


def test_an_update_is_not_judged():
    item = bringing(BY_TEMPLATE)
    world = with_template(16)
    outcome = admission.decide_review("mutate", review(item, operation="UPDATE", old=item), world)
    assert untouched(outcome)


def test_a_pod_is_allowed_while_the_stock_is_unknown():
    assert answer(given(TOO_MANY, state(stock=None)))["allowed"]


def test_a_verdict_that_times_out_keeps_the_translation(late):
    outcome = admission.decide_review("mutate", review(TOO_MANY), ENFORCE, is_out_of_time=late)
    assert answer(outcome)["allowed"]
    assert "patch" in answer(outcome)
    assert "could not be decided in time" in answer(outcome)["warnings"][0]


@pytest.fixture
def late(monkeypatch):
    """Return an `is_out_of_time` that returns True once the keys are translated, before the claims are judged."""
    judging = []
    judge_pod = decide.judge_pod

    def judged(*arguments):
        judging.append(True)
        return judge_pod(*arguments)

    monkeypatch.setattr(decide, "judge_pod", judged)
    return lambda: bool(judging)


def test_omitted_warnings_are_counted_with_the_warnings_that_follow(late):
    pod = gpu_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/priority": "1"})
    [container] = pod["spec"]["containers"]
    pod["spec"]["containers"] = [container | {"name": f"c{number}"} for number in range(7)]
    warnings = answer(given(pod, is_out_of_time=late))["warnings"]
    assert "could not be decided in time" in warnings[0]
    assert "drawbridge: 4 more" in warnings[-1]


def test_an_outcome_survives_the_encoding_used_between_worker_and_webhook():
    outcome = admission.decide_review("mutate", review(TOO_MANY), ENFORCE)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=admission.Answer) == outcome
    assert not json.loads(outcome.body)["response"]["allowed"]
