"""What the harness of the tests does itself: counts results, skips tests, and lists what a machine lacks for a real cluster."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import oracles

ROOT = Path(__file__).parent.parent
OUTCOMES = {
    "good": "def test_one(): pass\ndef test_two(): pass",
    "bad": "def test_one(): pass\ndef test_two(): assert False",
    "broken_import": "import nothing_of_this_name",
    "broken_fixture": "import pytest\n@pytest.fixture\ndef f(): 1 / 0\ndef test_one(f): pass",
    "skipped": "import pytest\ndef test_one(): pass\ndef test_two(): pytest.skip('no reason')",
    "known": "import pytest\n@pytest.mark.xfail\ndef test_one(): assert False\ndef test_two(): pass",
}


@pytest.mark.whole
@pytest.mark.parametrize(("files", "numbers"), [(OUTCOMES, "5 4"), ({"empty": ""}, "0 1")], ids=["mixed", "no tests"])
def test_a_run_writes_how_many_tests_passed_and_failed(files, numbers, tmp_path):
    for name, content in files.items():
        (tmp_path / f"test_{name}.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", f"--confcutdir={tmp_path}", f"--rootdir={ROOT}"]
    options = ["--no-skips", "--continue-on-collection-errors", f"--results={tmp_path}/numbers"]
    subprocess.run([*command, *options, str(tmp_path)], cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
    assert (tmp_path / "numbers").read_text() == f"{numbers}\n"


@pytest.fixture
def chosen_of(pytestconfig):
    """A function from an expression of marks and the marks of tests to the tests that the hook of conftest.py leaves."""
    hook = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py")).pytest_collection_modifyitems

    def chosen_of(expression, *tests, folder="tests"):
        items = [
            SimpleNamespace(
                nodeid=f"{folder}/test_a.py::test_a",
                marks=test.split(),
                get_closest_marker=set(test.split()).__contains__,
            )
            for test in tests
        ]
        deselected = []
        report = SimpleNamespace(pytest_deselected=lambda *, items: deselected.extend(items))
        hook(SimpleNamespace(option=SimpleNamespace(markexpr=expression), hook=report), items)
        assert len(items) + len(deselected) == len(tests)
        return [" ".join(item.marks) for item in items]

    return chosen_of


def test_a_test_that_no_suite_would_run_is_refused(chosen_of):
    with pytest.raises(pytest.UsageError, match="move it to tests/e2e"):
        chosen_of("", "", folder="e2e")


@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("", ["", "oracle", "whole"]),
        ("oracle", ["", "oracle", "whole"]),  # pytest itself compares the tests with the expression
        ("not long", ["", "oracle", "whole", "real long", "oracle live long", "long"]),
        ("real", ["", "oracle", "whole", "real", "real node"]),
        ("node", ["", "oracle", "whole", "real node", "node"]),
        ("oracle or live", ["", "oracle", "whole", "oracle live"]),
        ("longest", ["", "oracle", "whole"]),
    ],
)
def test_tests_that_need_programs_or_hours_run_only_if_their_mark_is_named(chosen_of, expression, chosen):
    tests = ["", "oracle", "whole", "oracle live", "real", "real node", "node", "real long", "oracle live long", "long"]
    assert chosen_of(expression, *tests) == chosen


def test_an_interrupted_referee_answers_the_next_questions_itself(tmp_path, monkeypatch):
    """The first answer is not JSON, so the first call ends before it has read the second answer."""
    program = tmp_path / "referee"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nfor line in sys.stdin:\n    print(line.strip().replace('7', 'x'), flush=True)\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(oracles, "build_program", lambda _: program)
    referee = oracles.Oracle("a program")
    try:
        with pytest.raises(json.JSONDecodeError):
            referee.ask_all([{"asked": 7}, {"asked": 1}])
        assert referee.ask_all([{"asked": 2}]) == [{"asked": 2}]
    finally:
        referee.close()
