"""A pytest plug-in that ends and names each test that runs too long, and each test that blocks its event loop.

**Time.** Every test has a limit on the clock: `UNIT` seconds, `WORLD` if it needs a Go program or a real cluster, `LONG` if it is marked
`long`, or the seconds of its own `@pytest.mark.time_limit(seconds, reason)`. Set-up and call share the limit; tear-down has a limit of the
same length. First, SIGALRM raises an exception in the test, so that the test fails with the waiting tasks in the message. If the interpreter
does not handle the signal, because it is in a call that does not return, `faulthandler` prints every stack from a thread that needs no
interpreter, and ends the process. Then xdist reports the test, or `tests.runs` reads the name of the test in the journal.

**Turns.** An event loop that works for `TURN` seconds in one turn blocks all its other tasks. Then the test fails with the stack of the
loop. Only the CPU time of the loop's thread counts, so that load on the machine makes no test fail.
`@pytest.mark.slow_turn(seconds, reason)` changes the limit for one test.

pytest-timeout does not suffice: its signal cannot end a call in C, and its thread method ends the run without naming the test.
"""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import os
import signal
import tempfile
import threading
import time
from asyncio.base_events import BaseEventLoop
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from types import FrameType

# UNIT, WORLD, LONG and PATIENCE suffice on a machine with ten other busy processes, so a test that exceeds them hangs.
UNIT = 180.0
WORLD = 300.0
LONG = 3600.0
# How long a test may clean up after its limit, before the process is ended.
GRACE = 30.0
# Seconds until the exception is raised again, because the test may have caught it.
SECONDS_TO_REPETITION = 10.0
TURN = 0.5
# Seconds between two checks of all running loops.
CHECK_INTERVAL = 0.1
# Objects allocated between two garbage collections. With the default of 700, the collections take an eighth of the time.
YOUNG_OBJECTS = 10_000
# How long a test waits for something that should happen at once.
PATIENCE = 60.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--journal", metavar="FILE", help="Write here which test begins and ends, as it happens.")
    parser.addoption(
        "--grace", type=float, default=GRACE, help="Seconds from a test's limit to the end of its process."
    )


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        "time_limit(seconds, reason): another time limit than the usual one",
        "slow_turn(seconds, reason): the event loop may stand still for longer than usual",
    ):
        config.addinivalue_line("markers", line)
    # Capturing is suspended now, so this is the real standard error.
    config.stash[STANDARD_ERROR] = os.dup(2)
    journal = config.getoption("--journal")
    # xdist's workers report to the main process, which writes the journal.
    if journal and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Journal(Path(journal)))
    TURNS.install()
    gc.disable()  # imports leave too little garbage for a collection


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze all imported objects, so that no later garbage collection traverses them during a test."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    gc.enable()


def pytest_unconfigure(config: pytest.Config) -> None:
    TURNS.remove()
    os.close(config.stash[STANDARD_ERROR])


STANDARD_ERROR = pytest.StashKey[int]()
DEADLINE = pytest.StashKey[float]()


# Time


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[DEADLINE] = time.monotonic() + seconds_for(item)
    with time_limit(item, item.stash[DEADLINE]), TURNS.watching(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    with time_limit(item, item.stash[DEADLINE]), TURNS.watching(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    with time_limit(item, time.monotonic() + seconds_for(item)), TURNS.watching(item):
        return (yield)


def seconds_for(item: pytest.Item) -> float:
    """Return the time limit of a test."""
    if seconds := marked_seconds(item, "time_limit"):
        return seconds
    if item.get_closest_marker("long"):
        return LONG
    return WORLD if any(item.get_closest_marker(mark) for mark in ("real", "node", "oracle")) else UNIT


def marked_seconds(item: pytest.Item, mark: str) -> float | None:
    """Return the seconds of a test's mark, or None. The mark must have a reason."""
    if (marker := item.get_closest_marker(mark)) is None:
        return None
    try:
        seconds, reason = marker.args
    except ValueError:
        raise pytest.UsageError(f"{item.nodeid}: {mark} takes seconds and a reason") from None
    if not reason:
        raise pytest.UsageError(f"{item.nodeid}: {mark} without a reason")
    return float(seconds)


@contextmanager
def time_limit(item: pytest.Item, deadline: float) -> Iterator[None]:
    """Run the block until the deadline at most."""
    seconds = max(0.01, deadline - time.monotonic())

    def fail_test(number: int, frame: FrameType | None) -> None:
        # pytest.fail does not raise an Exception, which the tested code may catch.
        pytest.fail(f"{item.nodeid} took more than {seconds_for(item):g} s{description_of_tasks()}")

    previous_handler = signal.signal(signal.SIGALRM, fail_test)
    faulthandler.dump_traceback_later(
        seconds + item.config.getoption("--grace"), exit=True, file=item.config.stash[STANDARD_ERROR]
    )
    signal.setitimer(signal.ITIMER_REAL, seconds, SECONDS_TO_REPETITION)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, previous_handler)


def description_of_tasks() -> str:
    """Describe what the tasks of the running loop wait for."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return ""
    lines = ["; its tasks:"]
    for task in tasks:
        stack = [f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" for frame in task.get_stack()]
        lines.append(f"  {task.get_name()}: {task.get_coro().__qualname__} at {' '.join(stack)}")
    return "\n".join(lines)


# Turns


class RunningLoop:
    """A running loop: the CPU time of its thread when the current turn began, and whether this turn was reported."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.clock = time.pthread_getcpuclockid(self.thread)
        self.cpu_time_at_begin = time.thread_time()
        self.is_reported = False

    def begin_turn(self) -> None:
        """Begin a new turn. Report the last turn if it was too long and the watcher did not notice."""
        now = time.thread_time()
        if not self.is_reported:  # the turn ended between two checks of the watcher, or was a call that keeps the GIL
            TURNS.current_watch.report_if_long(
                now - self.cpu_time_at_begin, "just before this moment, between two checks"
            )
        self.cpu_time_at_begin, self.is_reported = now, False

    def check(self) -> None:
        """Report the current turn if it is too long. The watcher's thread calls this method.

        Between any two of these lines, the thread of the tests may start the next test.
        """
        if self.is_reported:
            return
        watch = TURNS.current_watch
        seconds = time.clock_gettime(self.clock) - self.cpu_time_at_begin
        if (
            self not in TURNS.running_loops.values()
        ):  # the loop has ended, and its thread may have done other work since then
            return
        if seconds > watch.limit:
            self.is_reported = watch.report_if_long(seconds, stack_of_thread(self.thread))


def stack_of_thread(thread: int) -> str:
    """Return the stack of another thread.

    One call that keeps the GIL writes all stacks. If Python code read the frames instead, the other thread could run meanwhile.
    """
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        stacks = file.read().split("\n\n")
    stack_of_this_thread = next(
        (stack for stack in stacks if f"Thread 0x{thread:016x}" in stack), "  its thread has just ended"
    )
    return "\n".join(stack_of_this_thread.splitlines()[:9])


class Watch(NamedTuple):
    """A phase of a test: how long one turn of a loop may take, and the reports of longer turns."""

    limit: float
    reports: list[str]

    def report_if_long(self, seconds: float, where: str) -> bool:
        """Record a turn if its CPU seconds exceed the limit; return whether they do."""
        if seconds <= self.limit:
            return False
        self.reports.append(f"an event loop worked for {seconds:.2f} s without turning:\n{where}")
        return True


class Turns:
    """Watches every event loop of this process."""

    def __init__(self) -> None:
        self.current_watch = Watch(TURN, [])
        self.running_loops: dict[BaseEventLoop, RunningLoop] = {}
        self.has_ended = threading.Event()
        self.original_run_forever = BaseEventLoop.run_forever
        # It runs one turn. A callback of `call_later` would count many short turns as one turn.
        self.original_run_once = BaseEventLoop._run_once

    def install(self) -> None:
        """Watch every loop while it runs, except loops of uvloop, which no test uses."""
        if not hasattr(time, "pthread_getcpuclockid"):  # macOS has no CPU clock of a thread
            return
        original_run_forever, original_run_once = self.original_run_forever, self.original_run_once

        def run_forever(loop: BaseEventLoop) -> None:
            self.running_loops[loop] = RunningLoop()
            try:
                original_run_forever(loop)
            finally:
                del self.running_loops[loop]

        def run_once(loop: BaseEventLoop) -> None:
            original_run_once(loop)
            self.running_loops[loop].begin_turn()

        BaseEventLoop.run_forever = run_forever  # type: ignore[method-assign]
        BaseEventLoop._run_once = run_once  # type: ignore[attr-defined]
        threading.Thread(target=self.watch, name="turns", daemon=True).start()

    def remove(self) -> None:
        self.has_ended.set()
        BaseEventLoop.run_forever = self.original_run_forever  # type: ignore[method-assign]
        BaseEventLoop._run_once = self.original_run_once  # type: ignore[attr-defined]

    def watch(self) -> None:
        while not self.has_ended.wait(CHECK_INTERVAL):
            for running_loop in tuple(self.running_loops.values()):
                with suppress(OSError):  # its thread has just ended
                    running_loop.check()

    @contextmanager
    def watching(self, item: pytest.Item) -> Iterator[None]:
        """Fail if a turn of a loop takes too long while the block runs."""
        seconds = marked_seconds(item, "slow_turn")
        if seconds is not None and seconds < TURN:  # so that no turn of this test collects garbage of other tests
            gc.collect()
        watch = self.current_watch = Watch(seconds or TURN, [])
        try:
            yield
        except BaseException as error:
            for note in watch.reports:
                error.add_note(note)
            raise
        if watch.reports:
            pytest.fail("\n".join(watch.reports), pytrace=False)


TURNS = Turns()


# The journal


class Journal:
    """Writes a line when a test begins, fails or ends. Other processes read the file."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8", buffering=1)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.file.write(f"begin {nodeid}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.file.write(f"failed {report.nodeid}\n")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.file.write(f"end {nodeid}\n")
