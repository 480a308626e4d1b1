"""`drawbridge dialects`: the tables as the page of the documents has them."""

from pathlib import Path

from tests.cli.running import run
from webhook.dialects import VOCABULARIES

PAGE = Path(__file__).parents[3] / "docs" / "vocabularies.md"


def test_the_page_of_vocabularies_is_fresh():
    printed = run("dialects", "-o", "markdown").stdout
    assert PAGE.read_text(encoding="utf-8").endswith("\n" + printed), (
        "put `drawbridge dialects -o markdown` below its head"
    )


def test_every_key_of_every_dialect_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    keys = [row.name for vocabulary in VOCABULARIES for row in vocabulary.table.keys]
    assert keys
    assert [key for key in keys if f"| `{key}` |" not in page] == []
