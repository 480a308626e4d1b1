"""Building is safe against kills and concurrent builds."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e import build

pytestmark = pytest.mark.real
BUILD = "from e2e.build import program; print(program('sample-device-plugin'))"


@pytest.fixture
def empty_cache(tmp_path):
    return os.environ | {"DRAWBRIDGE_CACHE": str(tmp_path)}


def start(environment):
    return subprocess.Popen(
        [sys.executable, "-c", BUILD], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_after_a_killed_build_the_next_build_finishes(empty_cache, tmp_path):
    with start(empty_cache) as first:
        while not list(tmp_path.glob("bin/*/.sample-device-plugin-*")):
            assert first.poll() is None
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
    assert not list(tmp_path.glob("bin/*/sample-device-plugin"))
    with start(empty_cache) as second:
        built = Path(second.stdout.read().strip())
    assert os.access(built, os.X_OK)
    assert list(built.parent.iterdir()) == [built]


def test_concurrent_builds_build_once_and_both_get_the_program(empty_cache):
    with start(empty_cache) as first, start(empty_cache) as second:
        answers = [process.communicate() for process in (first, second)]
    assert answers[0][0] == answers[1][0] != ""
    assert sum("sample-device-plugin done" in output for _, output in answers) == 1


def test_without_go_the_message_says_what_is_missing(empty_cache):
    with start(empty_cache | {"PATH": "/nowhere"}) as process:
        _, output = process.communicate()
    assert "go is not on PATH" in output
    assert process.returncode == 1


def test_a_long_build_shows_progress_and_compiler_errors(capsys):
    def lines():
        yield "k8s.io/api/core/v1\n"
        while "1 packages compiled, the last one k8s.io/api/core/v1" not in progress():
            time.sleep(0.01)
        yield "main.go:3:2: undefined: x\n"

    def progress():
        output.append(capsys.readouterr().err)
        return "".join(output)

    output = []
    build.follow("kubelet", lines(), time.monotonic(), every=0.01)
    assert "main.go:3:2: undefined: x" in progress()
