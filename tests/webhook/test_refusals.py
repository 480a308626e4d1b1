"""The codes of refusals, and where a reader finds them."""

from webhook.refusals import PAGES, Code, Denial


def test_every_code_says_what_becomes_of_the_pod_without_us():
    assert list(PAGES) == list(Code)
    assert all(page.without for page in PAGES.values())


def test_a_refusal_says_what_it_is_what_helps_and_its_code():
    assert str(Denial(Code.TOO_MANY, "nine are asked for", "ask for 4")) == "nine are asked for (ask for 4) [R023]"
    assert str(Denial(Code.NEVER, "no node does")) == "no node does [R020]"
