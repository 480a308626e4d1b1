"""Expressions of which the acceptance, the cost or the value depends on the server's minor."""

import pytest

from dra import cel
from dra.errors import SelectorError, SelectorRunError
from dra.server import server_of
from tests.dra.cel.corpus import expressions
from tests.dra.cel.devices import DEVICES, VIEWS
from tests.dra.cel.generator import Generator
from tests.dra.cel.judge import ENVIRONMENTS, drawbridge_answer, go_answer, question
from tests.referees import referee

MODEL = 'device.attributes["gpu.example.com"].model'


def is_accepted(text, minor):
    """Return whether a server with its default gates accepts an expression in a new object."""
    try:
        selector = cel.compile(text, cel.NEW, gates=server_of(minor).gates, minor=minor)
    except SelectorError:
        return False
    return selector.max_cost <= cel.MAX_COST


@pytest.mark.parametrize(
    ("text", "since"),
    [
        (f'{MODEL}.includes("H100")', 38),
        (f"type({MODEL}) == string", 38),
        (f'url({MODEL}).getHost().matches("a.*")', 38),
        (f'url({MODEL}).getEscapedPath().matches("a.*")', 38),
        (f'{MODEL} == "H100"', 34),
    ],
)
def test_the_first_server_that_accepts_an_expression(text, since):
    assert [minor for minor in range(34, 39) if is_accepted(text, minor)] == list(range(since, 39))


def test_stored_expressions_can_use_includes_since_1_36():
    text = f'{MODEL}.includes("H100")'
    with pytest.raises(SelectorError, match="includes"):
        cel.compile(text, minor=35)
    assert cel.compile(text, minor=36).matches(VIEWS[0])


def test_since_1_38_another_condition_can_hide_an_argument_that_is_missing():
    text = 'device.attributes["gpu.example.com"].nope.distinct().size() == 0 || true'
    with pytest.raises(SelectorRunError, match="internal error"):
        cel.compile(text).matches(VIEWS[0])
    assert cel.compile(text, minor=38).matches(VIEWS[0])


def _verdicts(answer):
    return answer and answer["verdicts"]


def _is_too_costly(answer):
    return answer is not None and answer["maxCost"] > cel.MAX_COST


def is_explained(text):
    """Return whether docs/versions.md explains a difference in the verdicts on an expression."""
    explained = ("0.0 / 0.0", "flatten(", "optional.ofNonZeroValue(optional.none())", "922337203685477580")
    return any(part in text for part in explained)


@pytest.mark.live
@pytest.mark.oracle
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_1_38_gives_the_same_answers(name):
    """The expressions are the corpus and random ones."""
    generator = Generator(38)
    texts = [*expressions(), *(generator.expression() for _ in range(2_000))]
    with referee("cel-38") as program:
        answers = program.ask_all(question(text, name, DEVICES) for text in texts)
    wrong, costly_in_ours = [], []
    for text, answer in zip(texts, map(go_answer, answers), strict=True):
        our_answer = drawbridge_answer(text, name, VIEWS, 38)
        too_costly = _is_too_costly(answer), _is_too_costly(our_answer)
        is_same = _verdicts(our_answer) == _verdicts(answer) or is_explained(text)
        if not is_same or too_costly == (True, False):
            wrong.append((text, answer, our_answer))
        elif too_costly == (False, True):
            costly_in_ours.append(text)  # 1.38 bounds the size of more texts
    assert not wrong, wrong[:5]
    assert len(costly_in_ours) < len(texts) / 200, costly_in_ours
