"""`drawbridge dialects`, and docs/keys.md, which lists the same keys."""

import json
from pathlib import Path

import pytest

from tests.cli.running import run
from webhook.dialects import VOCABULARIES

PAGE = Path(__file__).parents[3] / "docs" / "keys.md"


def test_every_key_of_every_dialect_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    keys = [row.name for vocabulary in VOCABULARIES for row in vocabulary.table.keys]
    assert keys
    assert [key for key in keys if f"`{key}`" not in page] == []


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["hami"], {"hami"}),
        (["nvidia.com/gpu"], {"nvidia", "hami"}),
        (["nvidia.com/mig-1g.10gb"], {"nvidia"}),
        (["amd.com/gpu", "hami"], {"amd", "hami"}),
    ],
)
def test_a_key_is_listed_with_every_dialect_that_reads_it(names, expected):
    dialects = json.loads(run("dialects", *names, "-o", "json").stdout)["dialects"]
    assert expected <= {dialect["name"] for dialect in dialects}
    for dialect in dialects:
        if dialect["name"] not in names:
            assert {key["name"] for key in dialect["keys"]} <= {*names, "nvidia.com/mig-<profile>"}


@pytest.mark.parametrize(
    ("name", "meant"), [("nvdia", "nvidia"), ("nvidia.com/gpumen", "nvidia.com/gpumem"), ("x" * 10_000, "")]
)
def test_an_unknown_name_is_refused_with_a_suggestion_if_one_is_close(name, meant):
    done = run("dialects", name)
    assert done.exit_code == 2
    assert ("did you mean" in done.stderr) == bool(meant)
    assert f"did you mean {meant}?" in done.stderr or not meant
