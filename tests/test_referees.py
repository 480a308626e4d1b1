"""A recorded referee repeats the answers of its program, and a live referee reports answers that differ from the recorded answers."""

import pytest

from tests import referees
from tests.oracles import OracleError
from tests.referees import Referee, referee


class Program:
    """A referee's program that gives these answers in turn, whatever the question."""

    def __init__(self, *answers):
        self._answers = answers
        self._at = 0

    def ask_all(self, questions):
        return [self._next() for _ in questions]

    def _next(self):
        self._at += 1
        return dict(self._answers[(self._at - 1) % len(self._answers)])

    def close(self):
        pass


@pytest.fixture
def asking(monkeypatch, tmp_path):
    """Return a function that sends questions to a referee in a mode. The referee's program returns the given answers."""
    monkeypatch.setattr(referees, "FOLDER", tmp_path)

    def ask(mode, questions, *answers):
        monkeypatch.setenv("DRAWBRIDGE_REFEREES", mode)
        monkeypatch.setattr(referees, "Oracle", lambda _: Program(*answers))
        with referee("cel") as program:
            return program.ask_all(questions)

    return ask


ONE, TWO = {"expr": "1", "b": [{}]}, {"expr": "2"}


def test_a_recorded_question_is_answered_without_the_program(asking):
    asking("record", [ONE, TWO], {"maxCost": 1, "evalNs": 7}, {"maxCost": 2, "evalNs": 8})
    assert asking("recorded", [TWO, {"b": [{}], "expr": "1"}]) == [{"maxCost": 2}, {"maxCost": 1}]


def test_varying_recorded_answers_are_replayed_in_turn(asking):
    asking("record", [ONE] * 4, {"maxCost": 1}, {"maxCost": 2})
    assert asking("recorded", [ONE] * 3) == [{"maxCost": 1}, {"maxCost": 2}, {"maxCost": 1}]
    asking("compared", [ONE], {"maxCost": 2})


def test_an_unrecorded_question_is_reported_with_its_text(asking):
    asking("record", [ONE], {"maxCost": 1})
    with pytest.raises(OracleError, match=r'(?s)make record.*"expr": "2"'):
        asking("recorded", [TWO])


def test_a_changed_answer_of_the_program_is_reported(asking):
    asking("record", [ONE], {"maxCost": 1, "taint": {"timeAdded": "now"}})
    asking("live", [ONE], {"maxCost": 1, "taint": {"timeAdded": "later"}})
    refused = [
        {"errors": [{"message": f'Invalid value: "claim-/x{word}": may not contain'}]} for word in ("bt6xh", "fhr6j")
    ]
    asking("record", [TWO], refused[0])
    asking("live", [TWO], refused[1])
    asking("record", [ONE], {"maxCost": 1})
    with pytest.raises(OracleError, match="another answer than the recorded one"):
        asking("live", [ONE], {"maxCost": 2})


def test_an_answer_that_varies_between_runs_is_not_reported(asking):
    asking("record", [ONE], {"maxCost": 1})
    asking("compared", [ONE], *[{"maxCost": 2}] * 9, {"maxCost": 1})


def test_recorded_answers_without_a_question_are_reported(asking):
    asking("record", [ONE, TWO], {"maxCost": 1})
    asking("live", [ONE], {"maxCost": 1})
    with pytest.raises(OracleError, match="1 of 2 recorded answers belong to questions that are no longer asked"):
        asking("compared", [ONE], {"maxCost": 1})


def test_an_unknown_mode_is_refused(monkeypatch):
    monkeypatch.setenv("DRAWBRIDGE_REFEREES", "lively")
    with pytest.raises(OracleError, match="one of recorded, live"):
        Referee("cel")


def test_only_costs_that_vary_are_excluded_from_the_comparison(asking):
    def cost(number, result=True):
        return {"maxCost": 9, "outcomes": [{"result": result, "cost": number}]}

    asking("record", [ONE], cost(1))
    asking("live", [ONE], cost(2), cost(3))
    for others in ([cost(2)], [cost(2, result=False), cost(3, result=False)]):
        with pytest.raises(OracleError, match="another answer than the recorded one"):
            asking("live", [ONE], *others)
