"""The codes of refusals and their documentation."""

from dra.codes import CODES
from dra.finding import stated
from webhook.refusals import Code


def test_every_code_states_what_would_happen_without_drawbridge():
    assert [code for code in CODES if code.startswith("R")] == list(Code)
    assert all(CODES[code].without for code in Code)


def test_a_refusal_prints_problem_remedy_and_code():
    assert str(stated(Code.TOO_MANY, "nine are asked for", "ask for 4")) == "nine are asked for (ask for 4) [R023]"
    assert str(stated(Code.NEVER, "no node does")) == "no node does [R020]"
