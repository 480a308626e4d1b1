"""The test suites of `make test`, `test-all`, `e2e`, `bridge`, `lint`, `record` and `long`, and the summary of all suites of a run.

Each suite runs in its own process, so that a crash is counted and does not end the other suites. A suite that crashes, is killed,
or finds no test counts as one failure; the summary names the test that was running. The summary lists skipped tests with their
reasons; except in `make test`, they count as failures. Each suite prints how long it will take, and every 30 seconds what it is
doing. The last line of the output is always `N passed, N failed`.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from e2e import build
from e2e.ground import foreign, packages
from e2e.ground.cache import cache
from tests.runs import (
    ROOT,
    Outcome,
    announce,
    command_suite,
    go_files,
    go_suites,
    modules_of,
    pytest_suite,
    remember,
    wait_for_outcome,
)

OLDEST = min(build.KUBERNETES_VERSIONS)
UNIT_TESTS = "not (live or real or node or long)"
REFEREE_TESTS = "oracle and not (real or node or long)"
CLUSTER_TESTS = "(real or node) and not long"
GATED_TESTS = f"{CLUSTER_TESTS} and gated"
BRIDGED_TESTS = f"{CLUSTER_TESTS} and bridged"
DRIVEN_TESTS = f"{CLUSTER_TESTS} and driven"
OTHER_CLUSTER_TESTS = f"{CLUSTER_TESTS} and not (gated or bridged or driven)"
# Folders with tests on a cluster. Collecting the other folders, too, would take several seconds.
FOLDERS_ON_CLUSTERS = ("tests/cluster", "tests/runtime", "tests/dra/validation", "e2e")
# Folders with tests that use the referees.
FOLDERS_WITH_REFEREES = (
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
# A worker more than a small machine has cores, because many tests wait. A test file stays on one worker, so its fixtures are made once.
WORKERS = ("-n", "3", "--dist", "loadfile")
# Go programs answer, and every recorded answer is compared.
COMPARED_ANSWERS = {"DRAWBRIDGE_REFEREES": "compared"}
# All random cases of a test: `tests.draws`.
ALL_RANDOM_CASES = {"DRAWBRIDGE_DRAWS": "all"}
LIVE_ANSWERS = {"DRAWBRIDGE_REFEREES": "live"} | ALL_RANDOM_CASES
FURTHER_SUITES = """
Further suites, each with its own command (`make help` lists all):
  make test-all   this, and Kubernetes itself: its Go code as referee, our Go code, a real control plane and node (Linux, root, Go 1.26; half an hour the first time)
  make long       the differential and property suites with many more cases (Go; hours)
  make chaos      churn while every process is killed in turn (Linux, root, Go; 10 minutes)
  make soak       a webhook between hostile reviews (10 minutes)
  make fuzz       new texts for the parsers (4 minutes)
  make bench      measured beside other programs (Go; 20 minutes)"""


def main() -> None:
    """Run the chosen suites and end with the summary."""
    parser = argparse.ArgumentParser(prog="python -m tests.suite", description=__doc__)
    parser.add_argument("form", choices=sorted(FORMS))
    os.chdir(ROOT)
    outcomes: list[Outcome] = []
    form = parser.parse_args().form
    try:
        outcomes.extend(FORMS[form]())  # outcomes before an error stay in the list
    except (build.BuildError, foreign.ForeignError) as error:
        outcomes.append(Outcome("set-up", failed=1, notes=[str(error)]))
    except KeyboardInterrupt:
        outcomes.append(Outcome("interrupted", failed=1))
    remember(outcomes)
    sys.exit(summary(outcomes, FURTHER_SUITES if form == "unit" else ""))


def summary(outcomes: Sequence[Outcome], further: str = "") -> int:
    """Print one line per suite, the further commands and the totals; return the exit code."""
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


# The forms of a run


def unit() -> Iterator[Outcome]:
    """Run the tests that need no Go, no root and no cluster."""
    if packages.browser():
        install_browser_driver()
    with running_suite("unit", UNIT_TESTS, *WORKERS, strict=False) as units:
        yield from gates()
        yield units()


def everything() -> Iterator[Outcome]:
    """Run every test, with the real cluster and the Go programs."""
    prepare()
    with (
        running_command("the cluster's programs", [sys.executable, "-m", "e2e.build"]) as built,
        running_command("the referees", [sys.executable, "-m", "tests.oracles"]) as referees,
    ):
        with running_suite("unit", UNIT_TESTS, *WORKERS, extra_environment=ALL_RANDOM_CASES) as units:
            yield from gates()
            yield from go_suites()
            yield command_suite("make site", ["make", "site"])
            yield units()
        # Tests with referees keep one core busy, and tests on a cluster mostly wait.
        yield referees()
        with running_suite(
            "oracle", REFEREE_TESTS, *FOLDERS_WITH_REFEREES, extra_environment=COMPARED_ANSWERS
        ) as oracle:
            yield built()
            with running_command("an older Kubernetes", [sys.executable, "-m", "e2e.build", OLDEST]) as older:
                yield from on_clusters()
                yield older()
            yield oracle()


def cluster() -> Iterator[Outcome]:
    """Run only the tests on the real control plane and node."""
    prepare()
    build.everything()
    yield from on_clusters()


def bridge() -> Iterator[Outcome]:
    """Test the Go code of our scheduler, and build it."""
    packages.require()
    yield from go_suites("bridge")
    build.program("drawbridge-scheduler")


def staticcheck() -> Iterator[Outcome]:
    """Run staticcheck on the Go code. The first run reads all of Kubernetes and takes minutes, later runs take seconds."""
    pinned = ROOT / "tests/staticcheck/go.mod"
    for module in modules_of(go_files()):
        where = module.relative_to(ROOT)
        yield command_suite(
            f"staticcheck {where}", ["go", "tool", f"-modfile={pinned}", "staticcheck", "./..."], module
        )


def long() -> Iterator[Outcome]:
    """Run the tests that are marked `long`."""
    yield pytest_suite("long", "long", strict=True, deadline=3 * 60 * 60, extra_environment=LIVE_ANSWERS)


def record() -> Iterator[Outcome]:
    """Send the questions of `make test` to the referees, and write their answers into tests/oracle/recorded."""
    environment = {"DRAWBRIDGE_REFEREES": "record"}
    yield pytest_suite(
        "record", f"{REFEREE_TESTS} and not live", *FOLDERS_WITH_REFEREES, strict=True, extra_environment=environment
    )


FORMS: dict[str, Callable[[], Iterator[Outcome]]] = {
    "all": everything,
    "bridge": bridge,
    "e2e": cluster,
    "long": long,
    "record": record,
    "staticcheck": staticcheck,
    "unit": unit,
}


# What the suites need


def prepare() -> None:
    """Print what will be built and where; raise an error on a machine where a node cannot or must not run."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise build.BuildError("the real node needs Linux and root; `make test` runs anywhere")
    foreign.refuse()
    packages.require(packages.BROWSER)
    install_browser_driver()
    to_build = build.missing(build.ALL)
    print("This runs a real Kubernetes cluster on this machine, on loopback and in namespaces of its own. It needs:")
    print(f"  programs built from Go modules: {', '.join(to_build) or 'all there'}{' (to build)' * bool(to_build)}")
    print(f"  in {cache()} (set DRAWBRIDGE_CACHE to have it elsewhere); Go modules go to Go's own cache")
    sys.stdout.flush()


def install_browser_driver() -> None:
    """Install the browser driver if it is missing. Callers check for a browser first: the driver is half as large as all other packages."""
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
def running_command(name: str, command: Sequence[str]) -> Iterator[Callable[[], Outcome]]:
    """Run a command with lower priority while suites run; the yielded function waits for the command."""
    announce(name)
    begun = time.monotonic()
    process = subprocess.Popen(["nice", "-n", "10", *command], stdout=subprocess.DEVNULL)
    try:
        yield lambda: wait_for_outcome(name, process, begun, passes=0)
    finally:
        process.terminate()
        process.wait()


@contextmanager
def running_suite(
    name: str, marks: str, *options: str, strict: bool = True, extra_environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], Outcome]]:
    """Run a suite while other suites run; the yielded function waits for the suite and prints its output in one piece."""
    with tempfile.TemporaryFile() as output, ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            pytest_suite, name, marks, *options, strict=strict, output=output, extra_environment=extra_environment
        )

        def wait_and_print() -> Outcome:
            outcome = running.result()
            output.seek(0)
            print(f"\n=== {name}, which ran beside the others\n{output.read().decode(errors='replace')}", flush=True)
            return outcome

        yield wait_and_print


# Suites of several kinds


def on_clusters() -> Iterator[Outcome]:
    """Run the tests on real clusters. Tests of the webhook, bridge and drivers have their own control planes, and run at once: they mostly wait."""
    with (
        running_suite("real cluster, gated", GATED_TESTS, "e2e") as gated,  # only tests in this folder have these marks
        running_suite("real cluster, bridged", BRIDGED_TESTS, "e2e") as bridged,
        running_suite("real cluster, driven", DRIVEN_TESTS, "e2e") as driven,
    ):
        yield pytest_suite("real cluster", OTHER_CLUSTER_TESTS, *FOLDERS_ON_CLUSTERS, strict=True)
        yield gated()
        yield bridged()
        yield driven()


def gates() -> Iterator[Outcome]:
    """Run the checks of the repository, which count as one test each: format and lint, types, imports."""
    for target in ("lint-python", "type", "arch"):
        yield command_suite(f"make {target}", ["make", "--no-print-directory", target])


if __name__ == "__main__":
    main()
