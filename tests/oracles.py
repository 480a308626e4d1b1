"""The referees: Go programs built from Kubernetes' own packages. A test session starts each program once, and sends questions in JSON lines.

The answers of most programs are recorded (`tests.referees`), so that only `live` tests need the programs. The sources are
`tests/oracle/<name>/main.go`. The first use builds a program into the build cache. Its folder has a hash of the sources in its name, so
that only a changed program is built again. `allocate-34` is the program `allocate` with the newest libraries of Kubernetes 1.34
(`tests/oracle/minors`). `extended-35` is `extended` with all of the Kubernetes 1.35 that e2e/binaries builds. All programs of a minor that is
not released use its file in `tests/oracle/minors`.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dra.server import CURRENT, NEWEST
from e2e.build import BINARIES, toolchain

SOURCES = Path(__file__).parent / "oracle"
# Minor versions of Kubernetes besides the newest release for which programs are built, such as "34".
MINORS = tuple(sorted(path.stem.removeprefix("v") for path in (SOURCES / "minors").glob("v*.mod")))
# The minor versions among these whose scheduler can create claims for extended resources.
MINORS_WITH_CREATED_CLAIMS = tuple(minor for minor in MINORS if minor > "34")
# Minor versions that are not released.
COMING = tuple(map(str, range(CURRENT + 1, NEWEST + 1)))
PROGRAMS = (
    *sorted(path.parent.name for path in SOURCES.glob("*/main.go")),
    *(f"allocate-{minor}" for minor in MINORS),
    *(f"extended-{minor}" for minor in MINORS_WITH_CREATED_CLAIMS),
    *(f"{program}-{minor}" for program in ("cel", "validate") for minor in COMING),
)


class OracleError(Exception):
    """The referee could not be built, or could not read the question."""


def cache_directory() -> Path:
    """Return the folder of build products, which is outside of every checkout."""
    if chosen := os.environ.get("DRAWBRIDGE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drawbridge"


def _fingerprint(name: str) -> str:
    digest = hashlib.sha256()
    program, _, minor = name.partition("-")
    for path in (*_go_mod_and_sum(program, minor), SOURCES / "lines", SOURCES / program):
        files = sorted(path.rglob("*.go")) if path.is_dir() else [path]
        for file in files:
            digest.update(str(file.relative_to(SOURCES.parent.parent)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def build_program(name: str) -> Path:
    """Build a referee's program unless it is in the cache; return its path. Concurrent and killed builds do no harm."""
    if name not in PROGRAMS:
        raise OracleError(f"there is no referee called {name} in {SOURCES}")
    home = cache_directory() / "oracle" / f"{name}-{_fingerprint(name)}"
    program = home / name
    if program.exists():
        return program
    if shutil.which("go") is None:
        raise OracleError(f"the referee {name} is a Go program and `go` is not on PATH: install Go 1.26 or newer")
    home.mkdir(parents=True, exist_ok=True)
    source_name, _, minor = name.partition("-")
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            new_program = home / f"{name}.{os.getpid()}"
            result = subprocess.run(
                [
                    "go",
                    "build",
                    "-trimpath",
                    "-mod=readonly",
                    *_build_options(source_name, minor, home),
                    "-o",
                    str(new_program),
                    f"./{source_name}",
                ],
                cwd=SOURCES,
                # With `-modfile`, Go does not select the toolchain itself.
                env=os.environ | {"GOTOOLCHAIN": toolchain(_go_mod_and_sum(source_name, minor)[0])},
                capture_output=True,
                text=True,
                check=False,
            )
            if result.returncode:
                raise OracleError(f"go build of the referee {name} failed:\n{result.stderr}")
            new_program.rename(program)
    return program


def _go_mod_and_sum(program: str, minor: str) -> tuple[Path, Path]:
    """Return the go.mod and go.sum of a program. A scheduler needs all of its Kubernetes version, an older allocator only a few libraries."""
    if not minor:
        return SOURCES / "go.mod", SOURCES / "go.sum"
    if program == "extended" and minor not in COMING:
        folder = BINARIES / f"kubernetes-1.{minor}"
        return folder / "go.mod", folder / "go.sum"
    return SOURCES / "minors" / f"v{minor}.mod", SOURCES / "minors" / f"v{minor}.sum"


def _build_options(program: str, minor: str, home: Path) -> tuple[str, ...]:
    """Write a go.mod with this module's name and the libraries of another minor version; return the build options that use it."""
    if not minor:
        return ()
    mod_file, sum_file = _go_mod_and_sum(program, minor)
    renamed = re.sub(r"^module .*", "module drawbridge.dev/tests/oracle", mod_file.read_text(), count=1)
    (home / "minor.mod").write_text(renamed)
    shutil.copy(sum_file, home / "minor.sum")
    return "-modfile", str(home / "minor.mod"), "-tags", f"minor{minor}"


def main() -> None:
    """Build all programs."""
    try:
        for name in PROGRAMS:
            build_program(name)
    except OracleError as error:
        sys.exit(str(error))


class Oracle:
    """One running referee. Questions and answers are JSON values; answers come in the order of the questions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([str(build_program(self.name))], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **question: Any) -> dict[str, Any]:
        """Send one question; return its answer."""
        return self.ask_all([question])[0]

    def ask_all(self, questions: Iterable[Any]) -> list[dict[str, Any]]:
        """Send many questions; return their answers. A thread writes the questions while the answers are read, so that no pipe fills up."""
        lines = [json.dumps(question).encode() + b"\n" for question in questions]
        if self._process.poll() is not None:
            self.close()
            self._process = self._start()
        writer = threading.Thread(target=self._write, args=(lines,), daemon=True)
        writer.start()
        try:
            answers = [json.loads(self._process.stdout.readline() or b'{"broken": "the referee ended"}') for _ in lines]
            writer.join()
        except BaseException:
            # After a time limit, the remaining answers must not become those of the next questions. A Go program prints what it was doing.
            self._process.send_signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()  # a shell that starts jobs in the background makes them ignore SIGQUIT
            self._process.wait()
            raise
        for line, answer in zip(lines, answers, strict=True):
            if "broken" in answer:
                raise OracleError(f"{self.name}: {answer['broken']}\nasked: {line[:2000].decode()}")
        return answers

    def _write(self, lines: list[bytes]) -> None:
        with contextlib.suppress(OSError):  # the program ended early; the reader notices and reports it
            self._process.stdin.writelines(lines)
            self._process.stdin.flush()

    def close(self) -> None:
        """End the program."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


if __name__ == "__main__":
    main()
