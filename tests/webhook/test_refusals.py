"""The codes of refusals, and where a reader finds them."""

from dra.codes import CODES
from dra.finding import stated
from webhook.refusals import Code


def test_every_code_says_what_becomes_of_the_pod_without_us():
    assert [code for code in CODES if code.startswith("R")] == list(Code)
    assert all(CODES[code].without for code in Code)


def test_a_refusal_says_what_it_is_what_helps_and_its_code():
    assert str(stated(Code.TOO_MANY, "nine are asked for", "ask for 4")) == "nine are asked for (ask for 4) [R023]"
    assert str(stated(Code.NEVER, "no node does")) == "no node does [R020]"
