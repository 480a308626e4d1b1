"""The summary of `make test` can be trusted: whatever goes wrong is counted, and the last line says so."""

import subprocess
import time

import pytest

from tests import suite
from tests.test_limits import LIGHT

CASES = {
    "good": ("def test_one(): pass\ndef test_two(): pass", (2, 0)),
    "bad": ("def test_one(): pass\ndef test_two(): assert False", (1, 1)),
    "broken import": ("import nothing_of_this_name", (0, 1)),
    "broken fixture": ("import pytest\n@pytest.fixture\ndef f(): 1 / 0\ndef test_one(f): pass", (0, 1)),
    "none": ("", (0, 1)),
    "crash": ("import os\ndef test_one(): os._exit(0)", (0, 1)),
    "skipped": ("import pytest\ndef test_one(): pass\ndef test_two(): pytest.skip('no reason')", (1, 1)),
    "known": ("import pytest\n@pytest.mark.xfail\ndef test_one(): assert False\ndef test_two(): pass", (1, 0)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_suite_counts_what_happened(case, tmp_path):
    content, (passed, failed) = CASES[case]
    (tmp_path / "test_it.py").write_text(content)
    outcome = suite.pytest_suite(case, "not long", str(tmp_path), *LIGHT, strict=True)
    assert (outcome.passed, outcome.failed) == (passed, failed)


def test_a_suite_that_hangs_is_ended_and_counted(tmp_path):
    (tmp_path / "test_it.py").write_text("import time\ndef test_one(): time.sleep(60)")
    assert suite.pytest_suite("hangs", "not long", str(tmp_path), *LIGHT, deadline=1.0).failed == 1


@pytest.mark.parametrize(
    ("outcomes", "code", "last"),
    [
        ([suite.Outcome("a", 2, 0), suite.Outcome("b", 1, 0)], 0, "3 passed, 0 failed"),
        ([suite.Outcome("a", 2, 0), suite.Outcome("b", 0, 1)], 1, "2 passed, 1 failed"),
        ([], 1, "0 passed, 1 failed"),
    ],
)
def test_the_last_line_has_the_totals(capsys, outcomes, code, last):
    assert suite.summary(outcomes) == code
    assert capsys.readouterr().out.splitlines()[-1] == last


def test_a_suite_says_every_while_what_it_is_at(tmp_path, capfd):
    (tmp_path / "test_it.py").write_text("import time\ndef test_one(): pass\ndef test_slow(): time.sleep(3)")
    suite.pytest_suite("slow", "not long", str(tmp_path), *LIGHT, every=0.2)
    said = capfd.readouterr().out
    assert "1 done, 0 failed, at " in said
    assert "test_slow" in said


def test_a_command_says_every_while_which_of_its_processes_works(capfd):
    begun = time.monotonic()
    process = subprocess.Popen(["sh", "-c", "sleep 1.9; true"])
    suite.ended("waiting", process, begun, every=0.2)
    assert "sleep 1.9" in capfd.readouterr().out
