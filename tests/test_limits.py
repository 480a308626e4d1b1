"""A test that hangs is ended and named, and a test whose event loop does not turn fails."""

import ast
import re
import subprocess
import sys

import pytest

from tests import runs
from tests.limits import PATIENCE

# Options for runs of pytest without plugins that take most of its start.
WITHOUT_SLOW_PLUGINS = ("-p", "no:aiohttp", "-p", "no:hypothesispytest")
SLEEPING_TEST = "import time\ndef test_it(): time.sleep(60)"
BUSY_TEST = """
async def test_it():
    while True:
        pass
"""
RETRYING_TEST = """
import asyncio
async def bind(): raise OSError
async def spin():
    while True:
        try:
            await bind()
        except Exception:
            continue
async def test_it():
    async with asyncio.TaskGroup() as group:
        group.create_task(spin(), name='spinner')
        await asyncio.Event().wait()
"""
WAITING_TEST = """
import asyncio
async def wait_for_godot(): await asyncio.Event().wait()
async def test_it(): await asyncio.create_task(wait_for_godot(), name='godot')
"""
TEST_WITH_SLOW_SETUP = """
import pytest, time
@pytest.fixture
def slow(): time.sleep(60)
def test_it(slow): pass
"""
TEST_WITH_SLOW_TEARDOWN = """
import pytest, time
@pytest.fixture
def slow():
    yield
    time.sleep(60)
def test_it(slow): pass
"""
TEST_WITHIN_A_C_CALL = "def test_it(): collections.deque(itertools.repeat(None), maxlen=0)"
HANGING_TESTS = {
    "sleeps": SLEEPING_TEST,
    "busy": BUSY_TEST,
    "retries": RETRYING_TEST,
    "waits": WAITING_TEST,
    "setup": TEST_WITH_SLOW_SETUP,
    "teardown": TEST_WITH_SLOW_TEARDOWN,
}
ONE_SECOND_LIMIT = "@pytest.mark.time_limit(1, 'to see the limit strike')"
PASSING_TEST = "\ndef test_after(): pass\n"


def run_pytest(tmp_path, files, *options):
    """Run pytest on these files with a limit of one second for every `test_it`; return the output of pytest."""
    for name, content in files.items():
        source = re.sub(r"(async )?def test_it", rf"{ONE_SECOND_LIMIT}\n\g<0>", content)
        (tmp_path / f"test_{name}.py").write_text("import pytest\n" + source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "tests.limits",
        "-p",
        "no:cacheprovider",
        "-o",
        "asyncio_mode=auto",
        *WITHOUT_SLOW_PLUGINS,
    ]
    result = subprocess.run(
        [*command, *options, str(tmp_path)], capture_output=True, text=True, check=False, cwd=runs.ROOT
    )
    return result.stdout + result.stderr


def test_hanging_tests_fail_by_name_and_other_tests_run(tmp_path):
    output = run_pytest(tmp_path, {name: content + PASSING_TEST for name, content in HANGING_TESTS.items()})
    for name in HANGING_TESTS:
        assert f"test_{name}.py::test_it took more than 1 s" in output
        assert f"test_{name}.py::test_after PASSED" in output
    assert "godot: wait_for_godot at test_waits.py:4" in output, "the output does not say what a task waited for"


def test_a_call_that_never_returns_fails_its_test_by_name(tmp_path, capfd):
    """The process ends: a call outside of Python cannot be interrupted."""
    (tmp_path / "test_file.py").write_text(
        f"import collections, itertools, pytest\ndef test_before(): pass\n{ONE_SECOND_LIMIT}\n{TEST_WITHIN_A_C_CALL}{PASSING_TEST}"
    )
    outcome = runs.pytest_suite("hangs in C", "not long", str(tmp_path), "--grace=1", *WITHOUT_SLOW_PLUGINS)
    assert outcome.failed == 1
    assert [note for note in outcome.notes if "test_file.py::test_it" in note and "1 tests had ended" in note]
    assert "Timeout" in capfd.readouterr().err, "the output has no stacks"


def test_a_hanging_test_in_a_worker_fails_alone(tmp_path):
    (tmp_path / "test_file.py").write_text(
        f"import collections, itertools, pytest\n{ONE_SECOND_LIMIT}\n{TEST_WITHIN_A_C_CALL}"
        + "".join(f"\ndef test_{number}(): pass\n" for number in range(8))
    )
    outcome = runs.pytest_suite("hangs in C", "not long", str(tmp_path), "--grace=1", "-n", "2", *WITHOUT_SLOW_PLUGINS)
    assert (outcome.passed, outcome.failed) == (8, 1)
    assert [note for note in outcome.notes if note.startswith("failed: ") and "test_it" in note]


BUSY_TURN_TEST = """
import asyncio, time
def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
async def test_one():
    await asyncio.sleep(0)
    work({})
    await asyncio.sleep(0)
"""


# One call holds the GIL for about a second, so that no other thread can notice the long turn.
LOCKED_TURN_TEST = """
import asyncio, collections, itertools, time
def hold(turns):
    begun = time.thread_time()
    collections.deque(itertools.repeat(None, turns), maxlen=0)
    return time.thread_time() - begun
async def test_one():
    turns, quick = 10_000_000, 1.0
    await asyncio.sleep(0)
    for _ in range(3):
        quick = min(quick, hold(turns))
        await asyncio.sleep(0)
    hold(int(turns / quick))
    await asyncio.sleep(0)
"""
# Many short turns of a loop are not one long turn, even if no `call_later` runs between them.
SHORT_TURNS_TEST = """
import asyncio, time, pytest
@pytest.mark.slow_turn(0.02, "to see many shorter turns")
async def test_one():
    begun = time.thread_time()
    while time.thread_time() < begun + 0.4:
        await asyncio.sleep(0)
"""


@pytest.mark.linux("asks for the processor time of a thread")
def test_a_blocked_event_loop_fails_its_test_with_the_stack(tmp_path):
    files = {
        "busy": BUSY_TURN_TEST.format(1.0),
        "held": LOCKED_TURN_TEST,
        "quick": BUSY_TURN_TEST.format(0.1),
        "short": SHORT_TURNS_TEST,
    }
    output = run_pytest(tmp_path, files)
    for name in ("busy", "held"):
        assert f"test_{name}.py::test_one FAILED" in output, output
    for name in ("quick", "short"):
        assert f"test_{name}.py::test_one PASSED" in output, output
    assert "without turning" in output
    assert "in work" in output


POSITIONS_OF_SECONDS = {"timeout": 0, "settimeout": 0, "wait_for": 1}
METHODS_WITH_TIMEOUT = {"wait", "wait_for", "communicate"}  # if they have the keyword `timeout`


def test_no_test_waits_less_than_patience_for_an_event():
    """A number in a test guesses how fast the machine is; use PATIENCE instead."""
    for path in sorted((runs.ROOT / "tests").rglob("*.py")):
        for node in calls(path, *POSITIONS_OF_SECONDS, *METHODS_WITH_TIMEOUT):
            assert waited_at_most(node) >= PATIENCE, f"{path.relative_to(runs.ROOT)}:{node.lineno}"


def calls(path, *names):
    """Yield the calls of methods with these names; a file without the names is not parsed."""
    text = path.read_text(encoding="utf-8")
    if any(name in text for name in names):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in names:
                yield node


def waited_at_most(call):
    """Return the number of seconds in a call that waits; infinity if the call has no number."""
    name = getattr(call.func, "attr", "")
    position = POSITIONS_OF_SECONDS.get(name, len(call.args))
    keyword_values = [
        keyword.value for keyword in call.keywords if keyword.arg == "timeout" and name in METHODS_WITH_TIMEOUT
    ]
    for value in (*call.args[position : position + 1], *keyword_values):
        if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
            return value.value
    return float("inf")
