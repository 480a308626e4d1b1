"""A pod whose claims are all ours is judged in the review in which it is given them: with the words that validation has."""

import json

import msgspec
import pytest

from tests.webhook.admission.test_decide import (
    ENFORCE,
    answer,
    mutated,
    pod,
    review,
    state,
    untouched,
    validated,
)
from webhook.admission import decide as admission
from webhook.state import Configuration
from webhook.state.schema import DEFAULT

TOO_MANY = pod(limits={"nvidia.com/gpu": "16"})
WAYS = {"more than any node has": "5", "many": "16"}


def given(obj, world=ENFORCE, **kwargs):
    """What a pod's author gets to hear in the end."""
    return admission.weigh(admission.mutate(review(obj), world), world, **kwargs)


def test_a_pod_that_can_be_served_is_answered_as_if_nobody_had_asked():
    assert given(pod()) == admission.mutate(review(pod()), ENFORCE)


@pytest.mark.parametrize("count", WAYS.values(), ids=WAYS)
def test_what_can_never_work_is_refused_in_the_words_of_validation(count):
    asked = pod(limits={"nvidia.com/gpu": count})
    outcome = given(asked)
    after, _ = mutated(asked)
    assert not answer(outcome)["allowed"]
    assert answer(outcome)["status"] == answer(validated(after))["status"]
    assert "patch" not in answer(outcome)
    assert outcome.record.outcome == "refused"
    assert answer(outcome)["auditAnnotations"] == {"outcome": "refused", "mode": "enforce"}


def test_two_containers_that_ask_alike_are_judged_together():
    asked = pod(limits={"nvidia.com/gpu": "3"})
    [main] = asked["spec"]["containers"]
    asked["spec"]["containers"].append(main | {"name": "other"})
    assert not answer(given(asked))["allowed"], "each alone could be served"


def test_what_is_busy_is_told_and_done_all_the_same():
    lenient = msgspec.structs.replace(
        ENFORCE, configuration=Configuration(msgspec.structs.replace(DEFAULT, mode="enforce", impossible="warn"))
    )
    outcome = given(TOO_MANY, lenient)
    plain = admission.mutate(review(TOO_MANY), lenient)
    assert answer(outcome)["patch"] == answer(plain)["patch"]
    assert answer(outcome)["warnings"][0].startswith("this can never work: ")
    assert outcome.record.problems
    assert outcome.record.outcome == "translated"


def test_a_pod_that_comes_with_our_seal_is_judged_again():
    """A manifest that was read from a cluster, or the second round after a neighbour: nobody else asks about it."""
    after, _ = mutated(TOO_MANY)
    assert not answer(given(after))["allowed"]
    fine, _ = mutated(pod())
    assert untouched(given(fine))


def test_a_pod_with_a_claim_of_its_own_is_left_to_validation():
    asked = pod(limits={"nvidia.com/gpu": "16"})
    asked["spec"]["resourceClaims"] = [{"name": "own", "resourceClaimName": "c"}]
    outcome = admission.mutate(review(asked), ENFORCE)
    assert outcome.record.outcome == "translated"
    assert not outcome.given, "claims are judged together or not at all"
    after, _ = mutated(asked)
    assert not answer(validated(after))["allowed"]


@pytest.mark.parametrize("name", ["drawbridge-0123456789abcdef0123456789abcdef", "spec", "own"])
def test_an_entry_that_only_looks_like_ours_is_none_of_ours(name):
    after, _ = mutated(pod())
    after["spec"]["resourceClaims"].append({"name": "drawbridge-more", "resourceClaimTemplateName": name})
    assert not admission.mutate(review(after), ENFORCE).given


def test_a_forged_seal_is_not_judged_and_does_not_stay():
    after, _ = mutated(TOO_MANY)
    notes = after["metadata"]["annotations"]
    notes["drawbridge.dev/templates"] = notes["drawbridge.dev/templates"].replace('"count":16', '"count":1')
    outcome = admission.mutate(review(after), ENFORCE)
    assert not outcome.given
    cleaned, _ = mutated(after)
    assert "drawbridge.dev/templates" not in cleaned["metadata"].get("annotations", {})


@pytest.mark.parametrize("mode", ["warn", "observe"])
def test_where_nothing_is_done_nothing_is_weighed(mode):
    file = msgspec.structs.replace(DEFAULT, mode=mode)
    assert not admission.mutate(
        review(TOO_MANY), msgspec.structs.replace(ENFORCE, configuration=Configuration(file))
    ).given


def test_a_stock_that_is_not_known_turns_nobody_back():
    assert answer(given(TOO_MANY, state(stock=None)))["allowed"]


def test_a_verdict_that_takes_too_long_leaves_the_translation_and_says_so():
    outcome = admission.weigh(admission.mutate(review(TOO_MANY), ENFORCE), ENFORCE, impatient=lambda: True)
    assert answer(outcome)["allowed"]
    assert "patch" in answer(outcome)
    assert "could not be decided in time" in answer(outcome)["warnings"][0]


def test_a_worker_hands_over_what_is_to_be_judged():
    outcome = admission.mutate(review(TOO_MANY), ENFORCE)
    assert outcome.given
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=admission.Outcome) == outcome
    assert json.loads(outcome.body)["response"]["allowed"]
