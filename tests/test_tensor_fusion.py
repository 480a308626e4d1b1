"""docs/tensor-fusion.md: every behaviour has a test that exists, and none of the 43 is left out."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs/tensor-fusion.md").read_text(encoding="utf-8")
# The behaviour, and what does the same here, with its tests.
ROWS = [re.split(r"\n +- ", item) for item in re.findall(r"^\d+\. .*\n(?: +.*\n)+", TEXT, re.MULTILINE)]


def named(text):
    return re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)


def test_each_of_the_43_behaviours_has_a_row():
    assert [int(row[0].partition(".")[0]) for row in ROWS] == list(range(1, 44))


def test_each_row_says_what_does_the_same_and_names_a_test():
    assert [row[0] for row in ROWS if len(row) != 2 or not named(row[1])] == []


def test_each_test_that_is_named_exists():
    missing = []
    for path, name in named(TEXT):
        file = ROOT / path
        code = file.read_text(encoding="utf-8") if file.is_file() else ""
        if not code or (name and not re.search(rf"^(?:async )?def {name}\(", code, flags=re.MULTILINE)):
            missing.append(f"{path}::{name}")
    assert missing == []


def test_a_behaviour_that_is_not_offered_says_why():
    assert [row[0] for row in ROWS if "not offered" in row[1] and "because" not in row[1]] == []
