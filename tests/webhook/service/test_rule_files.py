"""A file with rules of an administrator that is rejected is reported with line and column, in bounded time. The old rules stay in force."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster import manifests
from tests.limits import PATIENCE
from tests.webhook.dialects.test_rules import FILES
from tests.webhook.pods import EXAMPLES
from tests.webhook.service.processes import replace
from tests.webhook.state.configurations import HEAD
from webhook.service.configuration_file import ConfigurationError, Source, load_configuration
from webhook.state.configuration import read_configuration

BEGIN = "apiVersion: drawbridge.dev/v1alpha1\nkind: DrawbridgeConfiguration\n"
ROW = "  - {name: our.org/gpu, meaning: GPUs, role: count}\n"
TABLE = BEGIN + "dialects:\n- name: ours\n  title: Ours\n  keys:\n" + ROW
COSTLY_PATTERN = "((a{1,100}){1,100}){1,100}"


def file_with_row(**members):
    return TABLE + "  - " + "\n    ".join(f"{key}: {value}" for key, value in members.items()) + "\n"


ANNOTATION_ROW = {"name": "our.org/a", "meaning": "m", "place": "annotation", "role": "cores"}
# The content of a file, and the line that the error names; None if it may name any line.
HOSTILE = {
    "nested flows": (TABLE + "joint: " + "[" * 5_000 + "]" * 5_000, 8),
    "nested mappings": (TABLE + "meanings: " + "{a: " * 5_000 + "b" + "}" * 5_000, 8),
    "aliases": (TABLE + "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)), None),
    "rows": (TABLE + "".join(f"  - {{name: our.org/x{i}, meaning: m, role: count}}\n" for i in range(5_000)), 3),
    "tables": (BEGIN + "dialects:\n" + "".join(f"- {{name: t{i}, title: t, keys: []}}\n" for i in range(5_000)), 3),
    "fields": (TABLE + "".join(f"f{i}: 1\n" for i in range(5_000)), 8),
    "a long name": (file_with_row(**ANNOTATION_ROW | {"name": "our.org/" + "x" * 500_000}), 8),
    "a long expression": (file_with_row(**ANNOTATION_ROW, expression="1" + "+1" * 500_000), 12),
    "a deep expression": (file_with_row(**ANNOTATION_ROW, expression="(" * 500 + "1" + ")" * 500), 12),
    "a costly pattern": (file_with_row(**ANNOTATION_ROW, expression=f"value.matches('{COSTLY_PATTERN}') ? 1 : 2"), 12),
    "loops in loops": (file_with_row(**ANNOTATION_ROW, expression="value.split('').map(a, value.split('').map(b, a + b)).size()"), 12),
    "a long number": (file_with_row(**ANNOTATION_ROW, most="9" * 100_000), 12),
    "binary": ("\x00\x01\x02", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_rejected_and_the_old_rules_stay(name, tmp_path):
    content, line = HOSTILE[name]
    file = tmp_path / "rules.yaml"
    file.write_text(TABLE)
    source = Source(str(file))
    accepted = source.current
    file.write_text(content)
    assert not source.look()
    assert not source.look()
    assert source.current is accepted
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(str(file))
    first_problem = caught.value.problems[0]
    assert line in (None, first_problem.line)
    assert first_problem.line
    assert first_problem.message
    assert len(source.notes()["configuration"]) < 500


def file_with_mistakes(number):
    return BEGIN + "meanings:\n" + "".join(f"  our.org/{i}: x\n" for i in range(number))


def test_only_the_first_of_many_mistakes_are_reported(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(TABLE)
    source = Source(str(file))
    file.write_text(file_with_mistakes(5_000))
    assert not source.look()
    assert not source.look()
    *_, last = source.problem.splitlines()
    assert last == "and 9900 more"  # each has an unknown key and an unknown meaning
    assert len(source.problem) < 100_000


async def test_reviews_go_on_while_a_large_file_is_read(tmp_path):
    """Reading this file takes more CPU time than one iteration of the loop may."""
    file = tmp_path / "rules.yaml"
    file.write_text(TABLE)
    source = Source(str(file), every=0.0)
    configurations = []
    following = asyncio.create_task(source.follow(configurations.append))
    replace(file, file_with_mistakes(10_000))
    async with asyncio.timeout(PATIENCE):
        while not source.problem:  # noqa: ASYNC110  a thread sets it
            await asyncio.sleep(0.01)
        replace(file, TABLE + "mode: warn\n")
        while not configurations:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    following.cancel()
    assert configurations[0].file.mode == "warn"
    assert source.current is configurations[0]


def test_a_file_with_the_maximum_number_of_rows_is_read(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(TABLE + "".join(f"  - {{name: our.org/x{i}, meaning: m}}\n" for i in range(511)))
    assert len(load_configuration(str(file)).resource("our.org/x510")) == 1


@given(FILES)
def test_any_file_is_accepted_or_rejected_with_positions(tmp_path, file):
    complete_file = {**HEAD, **file}
    path = tmp_path / "rules.yaml"
    path.write_text(manifests.dump([complete_file]))
    _, findings = read_configuration(complete_file)
    problems = problems_of(path)
    assert {problem.pointer for problem in problems} == {finding.path for finding in findings}
    lines = path.read_text().splitlines()
    for problem in problems:
        assert problem.remedy
        assert 0 < problem.column <= len(lines[problem.line - 1]) + 1


def problems_of(path):
    """Return why a file is rejected; () if it is accepted."""
    try:
        load_configuration(str(path))
    except ConfigurationError as error:
        assert error.problems  # noqa: PT017  the file may also be accepted
        return error.problems
    return ()


RULES = [path.read_text() for path in sorted((EXAMPLES / "rules").glob("*/rules.yaml"))]


@given(st.sampled_from(RULES), st.data())
def test_a_typo_is_accepted_or_reported_with_its_line(tmp_path, text, data):
    position = data.draw(st.integers(0, len(text) - 1))
    inserted = data.draw(st.sampled_from(["", " ", "x", ":", "'", "-", "\t", "{", "\n", "0", "#", "&", "*", "é"]))
    path = tmp_path / "rules.yaml"
    path.write_text(text[:position] + inserted + text[position + data.draw(st.integers(0, 2)) :])
    # A file with no object or with two is rejected as a whole, without a line.
    problems = [problem for problem in problems_of(path) if "this one holds" not in problem.message]
    assert all(problem.message and problem.line for problem in problems)
