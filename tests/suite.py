"""The test suites behind `make test`, `make test-all`, `make e2e`, `make bridge`, `make lint`, `make record` and `make long`, and their one summary.

Each suite is a command with its own process, so that a crash of one is counted and does not end the others. A suite
that crashes, is killed, or finds no test counts as one failure, by the name of the test that it was at; a skipped test is
named with its reason, and in the full run counts as a failure, because nothing may be left out there. Each suite says how long
it will take, and every 30 seconds what it is doing. The last line of the output is always `N passed, N failed`.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from e2e import build
from e2e.ground import foreign, packages
from e2e.ground.cache import cache, locked

ROOT = Path(__file__).parent.parent
DEADLINE = 45 * 60.0  # some of it is waiting for an older Kubernetes, which takes two cores 25 minutes to build
OLDEST = min(build.KUBERNETES_VERSIONS)
SAY_EVERY = 30.0
NO_TESTS = 5  # pytest's exit code for "no tests were collected"
UNIT = "not (live or real or node or long)"
ORACLE = "oracle and not (real or node or long)"
CLUSTER = "(real or node) and not long"
GATED = f"{CLUSTER} and gated"
BRIDGED = f"{CLUSTER} and bridged"
DRIVEN = f"{CLUSTER} and driven"
THE_REST = f"{CLUSTER} and not (gated or bridged or driven)"
# Where tests on a cluster are: to look for them in all other folders, too, takes several seconds of a process.
ON_CLUSTERS = ("tests/cluster", "tests/runtime", "tests/dra/validation", "e2e")
# Where the referees are asked.
BESIDE_REFEREES = (
    "tests/allocator/search",
    "tests/cluster/manifests",
    "tests/dra",
    "tests/node/cdi",
    "tests/test_oracles.py",
    "tests/webhook/admission",
    "tests/webhook/mixed_fleet",
    "tests/webhook/state",
    "tests/webhook/test_conditions.py",
)
# The flags of every Go build of ours, so that modules with the same dependencies share what is compiled.
GO = {"CGO_ENABLED": "0", "GOFLAGS": "-trimpath -mod=readonly -buildvcs=false", "GOTOOLCHAIN": "local"}
# Control planes and referees live for minutes: memory for time that their collectors would take from the tests.
COLLECTED_SELDOM = {"GOGC": "400"}


# Seconds that a suite takes on two cores, until it has run on this machine: with nothing built, where it builds something.
USUAL = {
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
# One worker more than a small machine has cores, because many tests wait. What a file makes once is made in one of them.
WORKERS = ("-n", "3", "--dist", "loadfile")
# Where Go programs answer, and whatever is recorded of them has to be answered again in the same way.
COMPARED = {"DRAWBRIDGE_REFEREES": "compared"}
# Every random case of a test: `tests.draws`.
DRAWN = {"DRAWBRIDGE_DRAWS": "all"}
LIVE = {"DRAWBRIDGE_REFEREES": "live"} | DRAWN
FURTHER = """
Further suites, each with its own command (`make help` lists all):
  make test-all   this, and Kubernetes itself: its Go code as referee, our Go code, a real control plane and node (Linux, root, Go 1.26; half an hour the first time)
  make long       the differential and property suites with many more cases (Go; hours)
  make chaos      churn while every process is killed in turn (Linux, root, Go; 10 minutes)
  make soak       a webhook between hostile reviews (10 minutes)
  make fuzz       new texts for the parsers (4 minutes)
  make bench      measured beside other programs (Go; 20 minutes)"""


def surroundings() -> dict[str, str]:
    """What a suite's processes find in their environment.

    Their bytecode stays beside the packages, also where the environment wants none in the checkout: they are hundreds, and
    each would compile all that it imports, and rewrite all assertions.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    mine = {"PYTHONPYCACHEPREFIX": str(Path(sys.prefix) / "bytecode")}
    # mypy asks a file's content where its time differs, so that all checkouts of one user can share what it found out.
    return kept | GO | COLLECTED_SELDOM | mine | {"MYPY_CACHE_DIR": str(cache() / "types")}


@dataclass
class Outcome:
    """What one suite came to."""

    suite: str
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    code: int = 0
    notes: list[str] = field(default_factory=list)


def main() -> None:
    """Run the chosen suites and end with the summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("form", choices=sorted(FORMS))
    os.chdir(ROOT)
    outcomes: list[Outcome] = []
    form = parser.parse_args().form
    try:
        outcomes.extend(FORMS[form]())  # what came before an error stays in the list
    except (build.BuildError, foreign.ForeignError) as error:
        outcomes.append(Outcome("set-up", failed=1, notes=[str(error)]))
    except KeyboardInterrupt:
        outcomes.append(Outcome("interrupted", failed=1))
    remember(outcomes)
    sys.exit(summary(outcomes, FURTHER if form == "unit" else ""))


def summary(outcomes: Sequence[Outcome], further: str = "") -> int:
    """Print one line a suite, what is to be run further, and the totals, and return the exit code."""
    print()
    for outcome in outcomes:
        print(f"{outcome.suite:<24} {outcome.passed:>6} passed {outcome.failed:>4} failed {outcome.seconds:>6.0f} s")
        for note in outcome.notes:
            print(f"    {note}")
    passed, failed = (sum(getattr(outcome, key) for outcome in outcomes) for key in ("passed", "failed"))
    if not passed + failed:
        failed = 1
        print("    no test ran at all")
    if further:
        print(further)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0


# The forms


def unit() -> Iterator[Outcome]:
    """What runs anywhere: no Go, no root, no cluster."""
    if packages.browser():
        drive_browser()
    with beside("unit", UNIT, *WORKERS, strict=False) as units:
        yield from gates()
        yield units()


def everything() -> Iterator[Outcome]:
    """Every test, with the real cluster and the Go programs."""
    prepare()
    with (
        background("the cluster's programs", [sys.executable, "-m", "e2e.build"]) as built,
        background("the referees", [sys.executable, "-m", "tests.oracles"]) as referees,
    ):
        with beside("unit", UNIT, *WORKERS, more=DRAWN) as units:
            yield from gates()
            yield from go_suites()
            yield command_suite("make site", ["make", "site"])
            yield units()
        # The referees keep one core busy, and tests on a cluster mostly wait.
        yield referees()
        with beside("oracle", ORACLE, *BESIDE_REFEREES, more=COMPARED) as oracle:
            yield built()
            with background("an older Kubernetes", [sys.executable, "-m", "e2e.build", OLDEST]) as older:
                yield from on_clusters()
                yield older()
            yield oracle()


def cluster() -> Iterator[Outcome]:
    """Only the tests on the real control plane and node."""
    prepare()
    build.everything()
    yield from on_clusters()


def bridge() -> Iterator[Outcome]:
    """Only our scheduler: its Go code, and that it builds."""
    packages.require()
    yield from go_suites("bridge")
    build.program("drawbridge-scheduler")


def staticcheck() -> Iterator[Outcome]:
    """Look at the Go code as `vet` does, more closely: once through all of Kubernetes, which takes minutes, then in seconds."""
    pinned = ROOT / "tests/staticcheck/go.mod"
    for module in modules_of(go_files()):
        where = module.relative_to(ROOT)
        yield command_suite(
            f"staticcheck {where}", ["go", "tool", f"-modfile={pinned}", "staticcheck", "./..."], module
        )


def long() -> Iterator[Outcome]:
    """The long forms of the suites that have one."""
    yield pytest_suite("long", "long", strict=True, deadline=3 * 60 * 60, more=LIVE)


def record() -> Iterator[Outcome]:
    """Ask the referees what `make test` asks, and write their answers into tests/oracle/recorded."""
    record_ = {"DRAWBRIDGE_REFEREES": "record"}
    yield pytest_suite("record", f"{ORACLE} and not live", *BESIDE_REFEREES, strict=True, more=record_)


FORMS: dict[str, Callable[[], Iterator[Outcome]]] = {
    "all": everything,
    "bridge": bridge,
    "e2e": cluster,
    "long": long,
    "record": record,
    "staticcheck": staticcheck,
    "unit": unit,
}


# What they need


def prepare() -> None:
    """Say what will be built and where, and refuse where a node cannot or must not run."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise build.BuildError("the real node needs Linux and root; `make test` runs anywhere")
    foreign.refuse()
    packages.require(packages.BROWSER)
    drive_browser()
    to_build = build.missing(build.ALL)
    print("This runs a real Kubernetes cluster on this machine, on loopback and in namespaces of its own. It needs:")
    print(f"  programs built from Go modules: {', '.join(to_build) or 'all there'}{' (to build)' * bool(to_build)}")
    print(f"  in {cache()} (set DRAWBRIDGE_CACHE to have it elsewhere); Go modules go to Go's own cache")
    sys.stdout.flush()


def drive_browser() -> None:
    """Install what drives a browser: only where there is one, because it is as large as half of all other packages."""
    if importlib.util.find_spec("playwright") is not None:
        return
    print("installing what drives the browser, by tests/browser.lock (50 MB)", flush=True)
    uv, pinned = Path(sys.prefix) / "bin/uv", ["--require-hashes", "-r", "tests/browser.lock"]
    command = (
        [str(uv), "pip", "install", "--python", sys.executable]
        if uv.exists()
        else [sys.executable, "-m", "pip", "install"]
    )
    if subprocess.run([*command, "--quiet", *pinned], check=False).returncode:
        print("it could not be installed: the tests in a browser are left out", flush=True)


@contextmanager
def background(name: str, command: Sequence[str]) -> Iterator[Callable[[], Outcome]]:
    """Run a command beside the suites, with less right to the processor; the yielded function awaits it."""
    announce(name)
    begun = time.monotonic()
    process = subprocess.Popen(["nice", "-n", "10", *command], stdout=subprocess.DEVNULL)
    try:
        yield lambda: ended(name, process, begun, passes=0)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def beside(
    name: str, marks: str, *options: str, strict: bool = True, more: Mapping[str, str] | None = None
) -> Iterator[Callable[[], Outcome]]:
    """Run a suite beside others; the yielded function awaits it and prints what it said, in one piece."""
    with tempfile.TemporaryFile() as said, ThreadPoolExecutor(1) as one:
        running = one.submit(pytest_suite, name, marks, *options, strict=strict, output=said, more=more)

        def awaited_and_shown() -> Outcome:
            outcome = running.result()
            said.seek(0)
            print(f"\n=== {name}, which ran beside the others\n{said.read().decode(errors='replace')}", flush=True)
            return outcome

        yield awaited_and_shown


# The suites


def on_clusters() -> Iterator[Outcome]:
    """The tests on real clusters: those of the webhook, the bridge and the drivers on control planes of their own, because all mostly wait."""
    with (
        beside("real cluster, gated", GATED, "e2e") as gated,  # the marks are given there and nowhere else
        beside("real cluster, bridged", BRIDGED, "e2e") as bridged,
        beside("real cluster, driven", DRIVEN, "e2e") as driven,
    ):
        yield pytest_suite("real cluster", THE_REST, *ON_CLUSTERS, strict=True)
        yield gated()
        yield bridged()
        yield driven()


def gates() -> Iterator[Outcome]:
    """The repository's own checks, one test each: format and lint, types, imports."""
    for target in ("lint-python", "type", "arch"):
        yield command_suite(f"make {target}", ["make", "--no-print-directory", target])


def command_suite(name: str, command: Sequence[str], cwd: Path = ROOT) -> Outcome:
    """Run one command that is one test."""
    announce(name)
    begun = time.monotonic()
    return ended(name, subprocess.Popen(command, cwd=cwd, env=surroundings()), begun)


def ended(
    name: str,
    process: subprocess.Popen[bytes],
    begun: float,
    *,
    passes: int = 1,
    deadline: float = DEADLINE,
    doing: Callable[[], str] | None = None,
    every: float = SAY_EVERY,
) -> Outcome:
    """Wait for a command, at most until the deadline; it counts as one failure if it does not end well."""
    try:
        work = doing or (lambda: at_work(process.pid))
        code = awaited(name, process, begun, deadline=deadline, doing=work, every=every)
        words = f"ended with exit code {code}, which counts as a failure"
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
        words = f"was ended after {deadline / 60:.0f} minutes, which counts as a failure"
    except KeyboardInterrupt:
        process.wait()
        raise
    outcome = Outcome(name, seconds=time.monotonic() - begun, code=code)
    if code:
        outcome.failed, outcome.notes = 1, [words]
    else:
        outcome.passed = passes
    return outcome


def awaited(
    name: str,
    process: subprocess.Popen[bytes],
    begun: float,
    *,
    deadline: float,
    doing: Callable[[], str],
    every: float,
) -> int:
    """Wait for a command and say every while what it is doing."""
    over = time.monotonic() + deadline
    while True:
        left = over - time.monotonic()
        try:
            return process.wait(min(every, left))
        except subprocess.TimeoutExpired:
            if left <= every:
                raise
        # pytest's dots leave a line unfinished.
        print(f"\n--- {name}, {time.monotonic() - begun:.0f} s: {doing()}", flush=True)


def at_work(pid: int) -> str:
    """Name the youngest of a command's processes, which is the one that works."""
    youngest = pid
    while children := children_of(youngest):
        youngest = children[-1]
    try:
        words = Path(f"/proc/{youngest}/cmdline").read_text().split("\0")
    except OSError:
        return "at work"
    return " ".join(words)[:160].strip() or "at work"


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


@dataclass
class Journal:
    """What `tests.limits` wrote about a run of pytest, as far as it has come."""

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
    every: float = SAY_EVERY,
    more: Mapping[str, str] | None = None,
) -> Outcome:
    """Run pytest on the tests with these marks and count from its own record; `output` gets what it prints, `more` joins its environment."""
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
            env=surroundings() | (more or {}),
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
        )
        process = ended(name, child, begun, deadline=deadline, doing=lambda: str(Journal.read(journal)), every=every)
        outcome = counted(name, record, strict=strict)
        seen = Journal.read(journal)
    outcome.seconds = process.seconds
    if process.code == NO_TESTS or (process.code == 0 and not outcome.passed):
        outcome.failed += 1
        outcome.notes.append("no test was found, which counts as a failure")
    elif process.code != 0 and not (process.code == 1 and outcome.failed):
        outcome.failed += 1
        outcome.notes += process.notes
        outcome.notes += [f"it was at {test}; {seen.done} tests had ended before" for test in seen.running]
    return outcome


def counted(name: str, record: Path, *, strict: bool) -> Outcome:
    """Count the cases of a JUnit record; what pytest expects to fail is named and not counted."""
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


def go_suites(below: str = ".") -> Iterator[Outcome]:
    """Formatting, vet and the tests of every Go module of ours that has code."""
    files = go_files(below)
    if files:
        yield gofmt(files)
    for module in modules_of(files):
        where = module.relative_to(ROOT)
        yield command_suite(f"go vet {where}", ["go", "vet", "./..."], module)
        if any(module.rglob("*_test.go")):
            yield go_tests(f"go test -race {where}", module)


def go_files(below: str = ".") -> list[str]:
    """Name the Go files with code of ours."""
    listing = ["git", "ls-files", f"{below}/*.go"]
    tracked = subprocess.run(listing, check=True, capture_output=True, text=True).stdout.split()
    return [file for file in tracked if not file.startswith("e2e/binaries/")]


def modules_of(files: Iterable[str]) -> list[Path]:
    """Name the Go modules of files."""
    return sorted({module for file in files if (module := module_of(ROOT / file))})


def module_of(file: Path) -> Path | None:
    return next((folder for folder in file.parents if (folder / "go.mod").exists()), None)


def gofmt(files: Sequence[str]) -> Outcome:
    announce("gofmt")
    listed = subprocess.run(["gofmt", "-l", *files], check=False, capture_output=True, text=True)
    unformatted = (listed.stdout + listed.stderr).split("\n")[:-1]
    return Outcome("gofmt", int(not unformatted), int(bool(unformatted)), notes=unformatted)


def go_tests(name: str, module: Path) -> Outcome:
    """Run the tests of a Go module under the race detector, which needs a C compiler, and count from go's own record."""
    announce(name)
    begun = time.monotonic()
    outcome = Outcome(name)
    said: dict[str, list[str]] = defaultdict(list)  # by test; a test that passes has nothing to say
    # Only folders with tests: the program itself would be compiled for the race detector with all of kube-scheduler.
    folders = sorted({f"./{file.parent.relative_to(module)}" for file in module.rglob("*_test.go")})
    command = ["go", "test", "-race", "-json", *folders]
    environment = surroundings() | {"CGO_ENABLED": "1"}
    with subprocess.Popen(command, cwd=module, stdout=subprocess.PIPE, text=True, env=environment) as process:
        for line in process.stdout or ():
            event = json.loads(line) if line.startswith("{") else {"Output": line}
            test = event.get("Test", "")
            if event.get("Action") == "output":
                said[test].append(event["Output"])
            elif event.get("Test") and event.get("Action") in {"pass", "fail", "skip"}:
                good = event["Action"] == "pass"
                outcome.passed += good
                outcome.failed += not good
                if not good:
                    print("".join(said[test]), end="")
                    outcome.notes.append(f"{event['Action']}: {test}")
    print("".join(said[""]), end="")  # what is about folders, or about none
    if process.returncode and not outcome.failed:
        outcome.failed += 1
        outcome.notes.append(f"go test ended with exit code {process.returncode}")
    outcome.seconds = time.monotonic() - begun
    return outcome


# How long they take


def announce(name: str) -> None:
    """Say what begins, and how long it takes: as long as it took here the last time, or as it does usually."""
    seconds, source = lasted().get(name), "as the last time here"
    if seconds is None:
        seconds, source = USUAL.get(name), "usually, on two cores"
    expected = f": {seconds:.0f} s, {source}" if seconds is not None else ""
    print(f"\n=== {name}{expected}", flush=True)


def lasted() -> dict[str, float]:
    """How long each suite took on this machine when it last ended well."""
    try:
        return dict(json.loads((cache() / "seconds.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def remember(outcomes: Iterable[Outcome]) -> None:
    """Keep how long suites took; what failed may have ended early."""
    took = {outcome.suite: round(outcome.seconds, 1) for outcome in outcomes if outcome.seconds and not outcome.failed}
    with locked("seconds"):
        (cache() / "seconds.json").write_text(json.dumps(lasted() | took), encoding="utf-8")


if __name__ == "__main__":
    main()
