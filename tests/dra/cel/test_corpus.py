"""Every expression of the corpus has the verdict and the exact worst-case cost that Go gives it."""

import pytest

from tests.dra.cel.corpus import asked, expressions, recorded
from tests.dra.cel.devices import DEVICES, VIEWS
from tests.dra.cel.judge import ENVIRONMENTS, OVER_BUDGET, ours, spent


def test_the_corpus_is_large_and_every_expression_has_a_recorded_answer():
    texts = expressions()
    assert len(texts) == len(set(texts)) >= 400
    assert set(recorded()) == set(texts)


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_verdicts_and_worst_case_costs_are_those_that_go_gave(name):
    record = recorded()
    wrong = [
        f"{text}\n  Go:   {record[text][name]}\n  ours: {answer}"
        for text in expressions()
        if (answer := ours(text, name, VIEWS)) != record[text][name]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_recorded_answers_have_all_kinds_of_outcomes():
    verdicts = {
        str(verdict) for each in recorded().values() if each["stored"] for verdict in each["stored"]["verdicts"]
    }
    assert verdicts == {"True", "False", "error", OVER_BUDGET}
    assert sum(each["stored"] is None for each in recorded().values()) > 100
    assert sum(each["stored"] is not None and each["new"] is None for each in recorded().values()) > 10


@pytest.mark.oracle
def test_the_recorded_answers_are_those_of_go_today(cel_oracle):
    assert asked(cel_oracle) == recorded()


# Go goes through maps in random order, and what is found early costs less.
ORDER_MATTERS = ("exists(k", "exists(d")


@pytest.mark.oracle
def test_what_evaluating_costs_is_what_go_counts(cel_oracle):
    texts = [text for text in expressions() if not any(part in text for part in ORDER_MATTERS)]
    answers = cel_oracle.ask_all({"expr": text, "devices": DEVICES} for text in texts)
    compared = 0
    for text, answer in zip(texts, answers, strict=True):
        for outcome, view in zip(answer.get("outcomes") or [], VIEWS, strict=False):
            if "cost limit" in outcome.get("error", "") or "internal error" in outcome.get("error", ""):
                continue
            assert spent(text, view) == outcome["cost"], text
            compared += 1
    assert compared > 1_000
