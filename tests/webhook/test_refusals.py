"""The codes of refusals, and where a reader finds them."""

import re
from pathlib import Path

from webhook.refusals import PAGES, Code, Denial

PAGE = Path(__file__).parents[2] / "docs" / "translation.md"


def test_every_code_is_explained_in_the_docs_under_its_title_and_none_besides():
    explained = re.findall(r"^- \*\*(R\d{3})\*\*: (.*(?:\n  (?!-).*)*)", PAGE.read_text(), re.MULTILINE)
    assert [code for code, _ in explained] == sorted(Code)
    other = [code for code, said in explained if not " ".join(said.split()).startswith(PAGES[code].title)]
    assert other == []


def test_a_refusal_says_what_it_is_what_helps_and_its_code():
    assert str(Denial(Code.TOO_MANY, "nine are asked for", "ask for 4")) == "nine are asked for (ask for 4) [R023]"
    assert str(Denial(Code.NEVER, "no node does")) == "no node does [R020]"
