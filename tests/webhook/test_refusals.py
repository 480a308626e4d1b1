"""The codes of refusals, and where a reader finds them."""

import re
from pathlib import Path

from webhook.refusals import Code, Denial

PAGE = Path(__file__).parents[2] / "docs" / "translation.md"


def test_the_page_says_of_every_code_what_becomes_of_the_pod_without_us():
    section = PAGE.read_text(encoding="utf-8").partition("\n## Refusals\n")[2].partition("\n## ")[0]
    said = re.findall(r"R\d{3}", section.replace("R020 to R023", "R020 R021 R022 R023").partition("R003 and R009")[0])
    assert sorted(said) == sorted(Code)


def test_a_refusal_says_what_it_is_what_helps_and_its_code():
    assert str(Denial(Code.TOO_MANY, "nine are asked for", "ask for 4")) == "nine are asked for (ask for 4) [R023]"
    assert str(Denial(Code.NEVER, "no node does")) == "no node does [R020]"
