"""For every expression of the corpus, drawbridge has the verdicts and the exact worst-case cost of Go."""

import pytest

from tests.dra.cel.corpus import answered, expressions
from tests.dra.cel.devices import DEVICES, VIEWS
from tests.dra.cel.judge import ENVIRONMENTS, OVER_BUDGET, actual_cost, drawbridge_answer

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.timeout(900),
]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_verdicts_and_worst_case_costs_equal_those_of_go(cel_oracle, name):
    answers = list(answered(cel_oracle, name).items())
    differing = [
        f"{text}\n  Go:   {expected}\n  ours: {answer}"
        for text, expected in answers[:: cel_oracle.cases(1, recorded=4)]  # all with a live referee
        if (answer := drawbridge_answer(text, name, VIEWS)) != expected
    ]
    assert not differing, "\n".join(differing)


def test_the_corpus_has_all_kinds_of_outcomes(cel_oracle):
    texts = expressions()
    assert len(texts) == len(set(texts)) >= 400
    stored, new = (answered(cel_oracle, name) for name in ("stored", "new"))
    verdicts = {str(verdict) for answer in stored.values() if answer for verdict in answer["verdicts"]}
    assert verdicts == {"True", "False", "error", OVER_BUDGET}
    assert sum(answer is None for answer in stored.values()) > 100
    assert sum(stored[text] is not None and new[text] is None for text in texts) > 10


# Go iterates over maps in random order, and an early match costs less.
ORDER_MATTERS = ("exists(k", "exists(d")


def test_the_evaluation_cost_equals_the_cost_in_go(cel_oracle):
    texts = [text for text in expressions() if not any(part in text for part in ORDER_MATTERS)]
    answers = cel_oracle.ask_all({"expr": text, "devices": DEVICES} for text in texts)
    compared = 0
    for text, answer in zip(texts, answers, strict=True):
        for outcome, view in zip(answer.get("outcomes") or [], VIEWS, strict=False):
            if "cost limit" in outcome.get("error", "") or "internal error" in outcome.get("error", ""):
                continue
            assert actual_cost(text, view) == outcome["cost"], text
            compared += 1
    assert compared > 1_000
