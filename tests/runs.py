"""Runs a suite of tests in a process of its own, counts passed and failed tests, reports progress, and stores how long the suite took."""

import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from e2e.ground.cache import cache, locked

ROOT = Path(__file__).parent.parent
DEADLINE = 45 * 60.0  # includes the wait for the build of an older Kubernetes, which takes 25 minutes on two cores
REPORT_INTERVAL = 30.0
NO_TESTS = 5  # pytest's exit code for "no tests were collected"
# The flags of all our Go builds, so that modules with equal dependencies share compiled packages.
GO_BUILD = {"CGO_ENABLED": "0", "GOFLAGS": "-trimpath -mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}
# Control planes and referees run only for minutes, so their garbage collectors may run rarely and let them use more memory.
RARE_COLLECTIONS = {"GOGC": "400"}
# Seconds that a suite takes on two cores, which are printed until the suite has run on this machine. Builds begin with an empty cache.
USUAL_SECONDS = {
    "unit": 240.0,
    "make type": 40.0,
    "make site": 30.0,
    "the cluster's programs": 900.0,
    "an older Kubernetes": 450.0,
    "the referees": 240.0,
    "oracle": 400.0,
    "real cluster": 400.0,
    "real cluster, gated": 300.0,
    "real cluster, bridged": 300.0,
    "real cluster, driven": 300.0,
    "long": 7200.0,
}


def suite_environment() -> dict[str, str]:
    """Return the environment of a suite's processes.

    Python writes bytecode into the virtual environment even if PYTHONDONTWRITEBYTECODE is set. Otherwise hundreds of processes would each
    compile all imports and rewrite all assertions.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own = {"PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "bytecode")}
    # mypy compares a file's content if its time differs, so that all checkouts of one user can share its cache.
    return inherited | GO_BUILD | RARE_COLLECTIONS | own | {"MYPY_CACHE_DIR": str(cache() / "types")}


@dataclass
class Outcome:
    """The result of one suite."""

    suite: str
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    code: int = 0  # exit code of the process
    notes: list[str] = field(default_factory=list)


def command_suite(name: str, command: Sequence[str], cwd: Path = ROOT) -> Outcome:
    """Run one command that is one test."""
    announce(name)
    begun = time.monotonic()
    return wait_for_outcome(name, subprocess.Popen(command, cwd=cwd, env=suite_environment()), begun)


def wait_for_outcome(
    name: str,
    process: subprocess.Popen[bytes],
    begun: float,
    *,
    passes: int = 1,
    deadline: float = DEADLINE,
    describe: Callable[[], str] | None = None,
    interval: float = REPORT_INTERVAL,
) -> Outcome:
    """Wait for a command, at most until the deadline; return its outcome. A command that succeeds counts as `passes` passed tests, any other as one failure."""
    try:
        work = describe or (lambda: description_of_work(process.pid))
        code = wait_for_exit(name, process, begun, deadline=deadline, describe=work, interval=interval)
        note = f"ended with exit code {code}, which counts as a failure"
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
        note = f"was ended after {deadline / 60:.0f} minutes, which counts as a failure"
    except KeyboardInterrupt:
        process.wait()
        raise
    outcome = Outcome(name, seconds=time.monotonic() - begun, code=code)
    if code:
        outcome.failed, outcome.notes = 1, [note]
    else:
        outcome.passed = passes
    return outcome


def wait_for_exit(
    name: str,
    process: subprocess.Popen[bytes],
    begun: float,
    *,
    deadline: float,
    describe: Callable[[], str],
    interval: float,
) -> int:
    """Wait for a command, and print at intervals what it does; return its exit code."""
    end = time.monotonic() + deadline
    while True:
        seconds_left = end - time.monotonic()
        try:
            return process.wait(min(interval, seconds_left))
        except subprocess.TimeoutExpired:
            if seconds_left <= interval:
                raise
        # pytest's dots leave a line unfinished.
        print(f"\n--- {name}, {time.monotonic() - begun:.0f} s: {describe()}", flush=True)


def description_of_work(pid: int) -> str:
    """Return the command line of the youngest descendant of a process, which does the work."""
    youngest = pid
    while children := children_of(youngest):
        youngest = children[-1]
    try:
        arguments = Path(f"/proc/{youngest}/cmdline").read_text().split("\0")
    except OSError:
        return "at work"
    return " ".join(arguments)[:160].strip() or "at work"


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@dataclass
class Journal:
    """The progress of a run of pytest, as `tests.limits` has written it."""

    done: int = 0
    failed: int = 0
    running: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> "Journal":
        journal = cls()
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            word, _, test = line.partition(" ")
            if word == "begin":
                journal.running.append(test)
            elif word == "failed":
                journal.failed += 1
            elif test in journal.running:
                journal.running.remove(test)
                journal.done += 1
        return journal

    def __str__(self) -> str:
        return f"{self.done} done, {self.failed} failed, at {', '.join(self.running[-2:]) or 'the beginning'}"


def pytest_suite(
    name: str,
    marks: str,
    *options: str,
    strict: bool = False,
    deadline: float = DEADLINE,
    output: IO[bytes] | None = None,
    interval: float = REPORT_INTERVAL,
    extra_environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run pytest on the tests with these marks; return the outcome in its JUnit record. `output` receives the output of pytest."""
    announce(name)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        record, journal = Path(folder) / "record.xml", Path(folder) / "journal"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-rfEs",
            "--continue-on-collection-errors",
            "-p",
            "tests.limits",
            f"--journal={journal}",
            "-m",
            marks,
            f"--junitxml={record}",
            *options,
        ]
        child = subprocess.Popen(
            command,
            env=suite_environment() | (extra_environment or {}),
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
        )
        process = wait_for_outcome(
            name, child, begun, deadline=deadline, describe=lambda: str(Journal.read(journal)), interval=interval
        )
        outcome = count_cases(name, record, strict=strict)
        journal_at_end = Journal.read(journal)
    outcome.seconds = process.seconds
    if process.code == NO_TESTS or (process.code == 0 and not outcome.passed):
        outcome.failed += 1
        outcome.notes.append("no test was found, which counts as a failure")
    elif process.code != 0 and not (process.code == 1 and outcome.failed):
        outcome.failed += 1
        outcome.notes += process.notes
        outcome.notes += [
            f"it was at {test}; {journal_at_end.done} tests had ended before" for test in journal_at_end.running
        ]
    return outcome


def count_cases(name: str, record: Path, *, strict: bool) -> Outcome:
    """Count the cases of a JUnit record. Expected failures are listed in the notes, and not counted; if `strict`, skipped cases count as failures."""
    outcome = Outcome(name)
    if not record.exists():
        return outcome
    for case in ET.parse(record).getroot().iter("testcase"):
        title = f"{case.get('classname')}::{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome.failed += 1
            outcome.notes.append(f"failed: {title}")
        elif skipped is None:
            outcome.passed += 1
        elif skipped.get("type") == "pytest.xfail":
            outcome.notes.append(f"known to fail: {title}")
        else:
            outcome.failed += strict
            outcome.notes.append(f"skipped{', counts as failed' * strict}: {title}: {skipped.get('message')}")
    return outcome


def go_suites(folder: str = ".") -> Iterator[Outcome]:
    """Run gofmt, and go vet and the tests of each Go module that has code of ours."""
    files = go_files(folder)
    if files:
        yield gofmt(files)
    for module in modules_of(files):
        where = module.relative_to(ROOT)
        yield command_suite(f"go vet {where}", ["go", "vet", "./..."], module)
        if any(module.rglob("*_test.go")):
            yield go_tests(f"go test -race {where}", module)


def go_files(folder: str = ".") -> list[str]:
    """Return the Go files with code of ours."""
    listing = ["git", "ls-files", f"{folder}/*.go"]
    tracked = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
    return [file for file in tracked if not file.startswith("e2e/binaries/")]


def modules_of(files: Iterable[str]) -> list[Path]:
    """Return the folders of the Go modules that contain these files."""
    return sorted({module for file in files if (module := module_with_file(ROOT / file))})


def module_with_file(file: Path) -> Path | None:
    return next((folder for folder in file.parents if (folder / "go.mod").exists()), None)


def gofmt(files: Sequence[str]) -> Outcome:
    announce("gofmt")
    result = subprocess.run(["gofmt", "-l", *files], check=False, capture_output=True, text=True)
    unformatted = (result.stdout + result.stderr).split("\n")[:-1]
    return Outcome("gofmt", int(not unformatted), int(bool(unformatted)), notes=unformatted)


def go_tests(name: str, module: Path) -> Outcome:
    """Run the tests of a Go module under the race detector, which needs a C compiler; count the results in go's JSON output."""
    announce(name)
    begun = time.monotonic()
    outcome = Outcome(name)
    output: dict[str, list[str]] = defaultdict(list)  # by test; a passed test prints nothing
    # Only folders with tests: the race detector would compile the program with all of kube-scheduler.
    folders = sorted({f"./{file.parent.relative_to(module)}" for file in module.rglob("*_test.go")})
    command = ["go", "test", "-race", "-json", *folders]
    environment = suite_environment() | {"CGO_ENABLED": "1"}
    with subprocess.Popen(command, cwd=module, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout or ():
            event = json.loads(line) if line.startswith("{") else {"Output": line}
            test = event.get("Test", "")
            if event.get("Action") == "output":
                output[test].append(event["Output"])
            elif event.get("Test") and event.get("Action") in {"pass", "fail", "skip"}:
                is_passed = event["Action"] == "pass"
                outcome.passed += is_passed
                outcome.failed += not is_passed
                if not is_passed:
                    print("".join(output[test]), end="")
                    outcome.notes.append(f"{event['Action']}: {test}")
    print("".join(output[""]), end="")  # output that belongs to no test
    if process.returncode and not outcome.failed:
        outcome.failed += 1
        outcome.notes.append(f"go test ended with exit code {process.returncode}")
    outcome.seconds = time.monotonic() - begun
    return outcome


# How long suites take


def announce(name: str) -> None:
    """Print the name of a suite that begins, and its expected time: the time of the last run on this machine, or the usual time."""
    seconds, source = stored_seconds().get(name), "as the last time here"
    if seconds is None:
        seconds, source = USUAL_SECONDS.get(name), "usually, on two cores"
    expected = f": {seconds:.0f} s, {source}" if seconds is not None else ""
    print(f"\n=== {name}{expected}", flush=True)


def stored_seconds() -> dict[str, float]:
    """Return how long each suite took on this machine when it last succeeded."""
    try:
        return dict(json.loads((cache() / "seconds.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def remember(outcomes: Iterable[Outcome]) -> None:
    """Store how long suites took, except failed suites, which may have ended early."""
    seconds_by_suite = {
        outcome.suite: round(outcome.seconds, 1) for outcome in outcomes if outcome.seconds and not outcome.failed
    }
    with locked("seconds"):
        (cache() / "seconds.json").write_text(json.dumps(stored_seconds() | seconds_by_suite), encoding="utf-8")
