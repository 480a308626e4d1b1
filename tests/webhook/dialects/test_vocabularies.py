"""Properties of every dialect (the table of one system's keys): each row has a case, and each key has the outcome of its case.

The case of a resource, and of a key that is not translated, is made from its row. `ROWS` in `test_<name>.py` has the cases that need other pods or a
configuration.
"""

import copy
import importlib
from typing import NamedTuple

from docs.dialects import PUBLISHED
from tests.loops import every
from tests.webhook.dialects.rows import Row, default_rows
from tests.webhook.pods import configured, outcomes, untouched, verdict_of
from webhook.dialects import VOCABULARIES
from webhook.dialects.table import Dialect, Outcome, Position, Role
from webhook.state.schema import File


def cases_of(table: Dialect) -> dict[str, Row]:
    try:
        module = importlib.import_module(f"tests.webhook.dialects.test_{table.name}")
    except ModuleNotFoundError:
        return default_rows(table)
    return default_rows(table) | getattr(module, "ROWS", {})


CASES = {
    f"{dialect.table.name}: {name}": (name, row)
    for dialect in VOCABULARIES
    for name, row in cases_of(dialect.table).items()
}


class Key(NamedTuple):
    """A key in the documentation or the sources of a system, and its outcome."""

    dialect: str
    place: str
    outcome: str
    name: str


KEYS = [
    Key(dialect, place, outcome, name)
    for dialect, published in PUBLISHED.items()
    for place, outcome, *names in map(str.split, published["keys"].splitlines())
    for name in names
]

# Keys that leave a pod its scheduler, not its requests.
SCHEDULED = {row.name for dialect in VOCABULARIES for row in dialect.table.keys if row.role is Role.SCHEDULED}


@every("table", [dialect.table for dialect in VOCABULARIES])
def test_every_row_of_a_dialect_has_a_case(table):
    cases, rows = cases_of(table).keys(), {row.name for row in table.keys}
    assert not rows - cases, f"ROWS in tests/webhook/dialects/test_{table.name}.py lacks cases for rows of the table"
    assert not cases - rows, "a case is for no row of the table"
    assert any(key.dialect == table.name for key in KEYS), "published.yaml has no key of the dialect"


@every("case", CASES)
def test_each_key_has_the_outcome_of_its_case(case):
    name, row = CASES[case]
    key = row.key or name
    verdict = verdict_of(row.pod, **row.config)
    assert outcomes(verdict).get(key, "") == row.outcome
    assert key in repr(row.pod), "the pod of the case does not have the key"
    assert row.outcome != "left" or name in SCHEDULED or untouched(verdict)


@every("case", [case for case, (_, row) in CASES.items() if not row.outcome])
def test_a_key_without_effect_changes_nothing(case):
    name, row = CASES[case]
    bare = copy.deepcopy(row.pod)
    for fields in (*bare["metadata"].values(), bare["spec"].get("nodeSelector"), bare["spec"]["containers"][0]):
        if isinstance(fields, dict):
            fields.pop(row.key or name, None)
    bare["spec"]["containers"][0].pop("env", None)
    assert verdict_of(row.pod, **row.config).templates == verdict_of(bare, **row.config).templates


@every("vocabulary", VOCABULARIES)
def test_every_dialect_fits_into_the_configuration_file(vocabulary):
    assert vocabulary.table.name not in File.__struct_fields__, "the dialect has the name of a field of the file"
    assert vocabulary.table.target in configured().targets
    assert not list(vocabulary.options().mistakes()), "the default options are invalid"
    assert set(vocabulary.schedulers) <= set(vocabulary.table.schedulers)


def test_every_row_without_plain_translation_gives_a_reason():
    for dialect in VOCABULARIES:
        for row in dialect.table.keys:
            assert row.meaning, row.name
            assert row.because or row.outcome is Outcome.TRANSLATED, row.name


@every("key", KEYS)
def test_every_published_key_has_the_listed_outcome(key):
    position = Position(key.place)
    configuration = configured()
    entries = (
        configuration.resource(key.name) if position is Position.RESOURCE else configuration.word(position, key.name)
    )
    declared = [str(entry.row.outcome) for entry in entries if entry.dialect.name == key.dialect]
    assert declared == [key.outcome]


def test_no_dialect_has_a_key_twice():
    for dialect in VOCABULARIES:
        names = [(row.place, row.name) for row in dialect.table.keys]
        assert len(names) == len(set(names)), dialect.table.name


def test_resource_names_are_qualified():
    for dialect in VOCABULARIES:
        for row in dialect.table.keys:
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
