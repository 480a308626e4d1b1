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


def test_a_test_that_no_suite_would_run_is_refused(pytestconfig):
    hook = pytestconfig.pluginmanager.get_plugin(str(ROOT / "conftest.py")).pytest_collection_modifyitems
    item = SimpleNamespace(nodeid="e2e/test_a.py::test_a", get_closest_marker=lambda _: None)
    with pytest.raises(pytest.UsageError, match="move it to tests/e2e"):
        hook(SimpleNamespace(option=SimpleNamespace(markexpr="")), [item])


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
