"""A recorded referee repeats the answers of its program, and a live referee reports answers that differ from the recorded answers."""

import pytest

from tests import referees
from tests.oracles import OracleError
from tests.referees import Referee, referee


class Program:
    """A referee's program that gives these answers in turn, whatever the question."""

    def __init__(self, *answers):
        self._answers = answers
        self._answer_count = 0

    def ask_all(self, questions):
        return [self._next() for _ in questions]

    def _next(self):
        self._answer_count += 1
        return dict(self._answers[(self._answer_count - 1) % len(self._answers)])

    def close(self):
        pass


@pytest.fixture
def ask_referee(monkeypatch, tmp_path):
    """Return a function that sends questions to a referee in a mode. The referee's program returns the given answers."""
    monkeypatch.setattr(referees, "FOLDER", tmp_path)

    def ask(mode, questions, *answers):
        monkeypatch.setenv("DRAWBRIDGE_REFEREES", mode)
        monkeypatch.setattr(referees, "Oracle", lambda _: Program(*answers))
        with referee("cel") as opened_referee:
            return opened_referee.ask_all(questions)

    return ask


QUESTION, OTHER_QUESTION = {"expr": "1", "b": [{}]}, {"expr": "2"}


def test_a_recorded_question_is_answered_without_the_program(ask_referee):
    ask_referee("record", [QUESTION, OTHER_QUESTION], {"maxCost": 1, "evalNs": 7}, {"maxCost": 2, "evalNs": 8})
    assert ask_referee("recorded", [OTHER_QUESTION, {"b": [{}], "expr": "1"}]) == [{"maxCost": 2}, {"maxCost": 1}]


def test_an_unrecorded_question_is_reported_with_its_text(ask_referee):
    ask_referee("record", [QUESTION], {"maxCost": 1})
    with pytest.raises(OracleError, match=r'(?s)make record.*"expr": "2"'):
        ask_referee("recorded", [OTHER_QUESTION])


def test_a_changed_answer_of_the_program_is_reported(ask_referee):
    ask_referee("record", [QUESTION], {"maxCost": 1, "taint": {"timeAdded": "now"}})
    ask_referee("live", [QUESTION], {"maxCost": 1, "taint": {"timeAdded": "later"}})
    answers_with_errors = [
        {"errors": [{"message": f'Invalid value: "claim-/x{generated_suffix}": may not contain'}]}
        for generated_suffix in ("bt6xh", "fhr6j")
    ]
    ask_referee("record", [OTHER_QUESTION], answers_with_errors[0])
    ask_referee("live", [OTHER_QUESTION], answers_with_errors[1])
    ask_referee("record", [QUESTION], {"maxCost": 1})
    with pytest.raises(OracleError, match="another answer than the recorded one"):
        ask_referee("live", [QUESTION], {"maxCost": 2})


def test_recorded_questions_that_are_no_longer_asked_are_reported(ask_referee):
    ask_referee("record", [QUESTION, OTHER_QUESTION], {"maxCost": 1})
    ask_referee("live", [QUESTION], {"maxCost": 1})
    with pytest.raises(OracleError, match="1 of 2 recorded answers belong to questions that are no longer asked"):
        ask_referee("compared", [QUESTION], {"maxCost": 1})


def test_an_unknown_mode_is_refused(monkeypatch):
    monkeypatch.setenv("DRAWBRIDGE_REFEREES", "lively")
    with pytest.raises(OracleError, match="one of recorded, live"):
        Referee("cel")
