"""A pod that the API server accepts has bounded cost and always gets a decision."""

import pytest

from tests.corpus.hostile_pods import PODS
from tests.loops import every
from tests.webhook.pods import GPU_MODELS, configured, example_fleet, untouched
from webhook.state import State
from webhook.translate import find_placeholder
from webhook.translate.translate import translate

CONFIGURATION = configured(meanings={"nvidia.com/gpu": "whole"}, **GPU_MODELS)
# States by what shows the meaning of a key: the configuration, or the fleet that the webhook sees.
STATES = {
    "declared": State(configuration=CONFIGURATION, keys=(b"k",)),
    "seen": State(configuration=configured(), fleet=example_fleet(), keys=(b"k",)),
}
MAX_LETTERS = 600  # of a refusal, a warning or a detail


@every("state", STATES)
@every("name", PODS)
def test_a_hostile_pod_gets_a_short_answer(name, state):
    verdict = translate(PODS[name](), state=STATES[state], namespace="n", sign=True)
    assert verdict.decisions or untouched(verdict)
    for text in (*map(str, verdict.refusals), *verdict.warnings, *(decision.detail for decision in verdict.decisions)):
        assert len(text) < MAX_LETTERS


@pytest.mark.parametrize(
    "name",
    [
        "five_thousand_init_containers",
        "eight_thousand_mig_keys",
        "a_long_list_of_models_on_a_thousand_containers",
        "a_number_of_200000_zeros",
        "a_list_of_commas",
        "deep_selectors_in_a_hint",
    ],
)
def test_a_pod_beyond_a_limit_is_left_with_a_reason(name):
    verdict = translate(PODS[name](), STATES["declared"], namespace="n")
    assert untouched(verdict)
    assert [str(decision.outcome) for decision in verdict.decisions] == ["left"]
    assert verdict.decisions[0].detail
    assert len(verdict.warnings) == 1


@pytest.mark.parametrize("part", ["{", "<a", "${", "{{ ", "$", "$(", "$a"])
def test_finding_a_placeholder_takes_linear_time(part):
    """In quadratic time, 16,000 braces and a line break take two seconds, and this test would reach its time limit."""
    find_placeholder(part * 300_000 + "\n!")
