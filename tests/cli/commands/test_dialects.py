"""`drawbridge dialects`, and docs/keys.md, which lists the same keys. A dialect is the table of the keys of one system."""

import json
from pathlib import Path

import pytest

from cluster import manifests
from tests.cli.running import run
from tests.webhook.pods import configured, pod, verdict_of
from webhook.dialects import VOCABULARIES

KEYS_PAGE = Path(__file__).parents[3] / "docs" / "keys.md"


def test_every_key_of_every_dialect_is_on_the_page():
    page = KEYS_PAGE.read_text(encoding="utf-8")
    keys = [row.name for vocabulary in VOCABULARIES for row in vocabulary.table.keys]
    assert keys
    assert [key for key in keys if f"`{key}`" not in page] == []


@pytest.mark.parametrize(
    ("names", "expected_dialects"),
    [
        (["hami"], {"hami"}),
        (["nvidia.com/gpu"], {"nvidia", "hami"}),
        (["nvidia.com/mig-1g.10gb"], {"nvidia"}),
        (["amd.com/gpu", "hami"], {"amd", "hami"}),
    ],
)
def test_named_dialects_and_all_dialects_of_named_keys_are_listed(names, expected_dialects):
    dialects = json.loads(run("dialects", *names, "-o", "json").stdout)["dialects"]
    assert expected_dialects <= {dialect["name"] for dialect in dialects}
    for dialect in dialects:
        if dialect["name"] not in names:
            assert {key["name"] for key in dialect["keys"]} <= {*names, "nvidia.com/mig-<profile>"}


@pytest.mark.parametrize(
    ("name", "suggestion"), [("nvdia", "nvidia"), ("nvidia.com/gpumen", "nvidia.com/gpumem"), ("x" * 10_000, "")]
)
def test_an_unknown_name_is_refused_with_the_nearest_suggestion(name, suggestion):
    result = run("dialects", name)
    assert result.exit_code == 2
    assert ("did you mean" in result.stderr) == bool(suggestion)
    assert f"did you mean {suggestion}?" in result.stderr or not suggestion


def test_every_key_of_every_dialect_is_listed():
    answer = json.loads(run("dialects", "-o", "json").stdout)
    assert [dialect["name"] for dialect in answer["dialects"]] == [dialect.name for dialect in configured().dialects]
    output = run("dialects").stdout
    for dialect in answer["dialects"]:
        for row in dialect["keys"]:
            assert {"name", "meaning", "unit", "outcome", "place"} <= set(row)
            assert row["name"] in output


def test_a_single_dialect_can_be_listed():
    assert "koordinator" not in run("dialects", "hami").stdout
    assert run("dialects", "klingon").exit_code == 2


def test_a_listed_dialect_is_valid_in_a_configuration():
    (document,) = manifests.parse(run("dialects", "hami", "-o", "yaml").stdout)
    (table,) = document.object["dialects"]
    keys = [row for row in table["keys"] if row["name"] == "nvidia.com/gpumem"]
    copied_dialect = {
        "name": "copy",
        "title": "t",
        "target": table["target"],
        "keys": [{**row, "name": "our.org/mem"} for row in keys],
    }
    assert verdict_of(pod({"our.org/mem": 5}), dialects=[copied_dialect]).changed
