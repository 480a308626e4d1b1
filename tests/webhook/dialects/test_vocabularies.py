"""What holds for every vocabulary: each row of its table has a case, and a word says what the case says of it.

A new dialect fails here until `test_<name>.py` is there with a `ROWS` that has a case for every row of its table.
"""

import copy
import importlib

import pytest

from tests.webhook.dialects.rows import Row
from tests.webhook.dialects.vocabulary_keys import KEYS
from tests.webhook.pods import became, configured, outcomes
from webhook.dialects import VOCABULARIES
from webhook.dialects.table import Outcome, Position
from webhook.state.schema import File


def rows_of(name: str) -> dict[str, Row]:
    """The cases of a dialect; none where it has no tests."""
    try:
        module = importlib.import_module(f"tests.webhook.dialects.test_{name}")
    except ModuleNotFoundError:
        return {}
    return getattr(module, "ROWS", {})


CASES = {
    f"{one.table.name}: {name}": (name, row) for one in VOCABULARIES for name, row in rows_of(one.table.name).items()
}


@pytest.mark.parametrize("name", [one.table.name for one in VOCABULARIES])
def test_every_row_of_a_dialect_has_a_case(name):
    table = next(one.table for one in VOCABULARIES if one.table.name == name)
    missing = {row.name for row in table.keys} - rows_of(name).keys()
    assert not missing, f"tests/webhook/dialects/test_{name}.py has no case in ROWS for these rows of the table"
    assert not rows_of(name).keys() - {row.name for row in table.keys}


@pytest.mark.parametrize("case", CASES)
def test_a_word_becomes_what_its_case_says(case):
    name, row = CASES[case]
    key = row.key or name
    done = became(row.pod, **row.config)
    assert outcomes(done).get(key, "") == row.becomes
    assert key in repr(row.pod)


@pytest.mark.parametrize("case", [case for case, (_, row) in CASES.items() if not row.becomes])
def test_a_word_that_says_nothing_changes_nothing(case):
    name, row = CASES[case]
    bare = copy.deepcopy(row.pod)
    for place in (*bare["metadata"].values(), bare["spec"].get("nodeSelector"), bare["spec"]["containers"][0]):
        if isinstance(place, dict):
            place.pop(row.key or name, None)
    bare["spec"]["containers"][0].pop("env", None)
    assert became(row.pod, **row.config).templates == became(bare, **row.config).templates


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda one: one.table.name)
def test_a_vocabulary_fits_into_the_configuration_file(vocabulary):
    assert vocabulary.table.name not in File.__struct_fields__, "its options would hide a field of the file"
    assert vocabulary.table.target in configured().targets
    assert not list(vocabulary.options().mistakes()), "the defaults make sense"
    assert set(vocabulary.schedulers) <= set(vocabulary.table.schedulers)


def test_every_row_says_why_it_is_not_plainly_translated():
    for one in VOCABULARIES:
        for row in one.table.keys:
            assert row.meaning, row.name
            assert row.because or row.outcome is Outcome.TRANSLATED, row.name


@pytest.mark.parametrize("one", KEYS, ids=lambda one: f"{one.dialect} {one.name}")
def test_every_key_that_pods_use_in_public_has_one_action(one):
    place = Position(one.place)
    configuration = configured()
    known = configuration.resource(one.name) if place is Position.RESOURCE else configuration.word(place, one.name)
    declared = [str(entry.row.outcome) for entry in known if entry.dialect.name == one.dialect]
    assert declared == [one.outcome]


def test_no_dialect_has_a_key_twice():
    for one in VOCABULARIES:
        names = [(row.place, row.name) for row in one.table.keys]
        assert len(names) == len(set(names)), one.table.name


def test_resource_names_are_qualified():
    for one in VOCABULARIES:
        for row in one.table.keys:
            assert "/" in row.name or row.place is not Position.RESOURCE, row.name


def test_no_name_is_matched_by_its_prefix_alone():
    configuration = configured()
    for name in (
        "nvidia.com/hostdevs",
        "nvidia.com/gpumemory",
        "nvidia.com/mig-",
        "nvidia.com/gpu-gb",
        "koordinator.sh/gpu-shared",
    ):
        assert configuration.resource(name) == (), name
