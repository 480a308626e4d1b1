"""SIGTERM ends the process at any time after the first import. A full disk or a closed stream does not cause a traceback.

The process exits with 143, which works in process 1 of a container, too. -15 would mean the kernel's default action for SIGTERM, which
process 1 does not have.
"""

import os
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXIT_CODE_AFTER_SIGTERM = 128 + signal.SIGTERM


def start_python(script, **options):
    return subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("module", ["click", "cli.main"])
def test_sigterm_during_imports_ends_the_process_at_once(module):
    """The import of the module waits for standard input, to which nothing is written."""
    script = (
        "import sys\n"
        "class Stuck:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            print('importing', flush=True)\n"
        "            sys.stdin.read()\n"
        "sys.meta_path.insert(0, Stuck())\n"
        "from cli import begin\n"
        "begin()\n"
    )
    with start_python(script, stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == EXIT_CODE_AFTER_SIGTERM


def test_the_second_signal_ends_a_process_that_stops_slowly():
    script = (
        "import asyncio, signal\n"
        "from cli import end, loop\n"
        "from serving.process import stopping\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "async def main():\n"
        "    stop = stopping()\n"
        "    print('ready', flush=True)\n"
        "    await stop.wait()\n"
        "    print('stopping', flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "loop.run(main())\n"
    )
    with start_python(script) as process:
        for line in ("ready", "stopping"):
            assert process.stdout.readline() == f"{line}\n"
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == EXIT_CODE_AFTER_SIGTERM


def test_the_entry_points_call_begin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == dict.fromkeys(("drawbridge", "kubectl-drawbridge"), "cli:begin")


COMMAND = [sys.executable, "-c", "from cli import begin; begin()"]
FULL_DEVICE = "/dev/full"


def run_in_shell(*arguments, redirection="", **options):
    line = " ".join([*map(shlex.quote, (*COMMAND, *arguments)), redirection])
    return subprocess.run(
        line, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **options
    )


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["--help"], ""), (["check", "--help"], "1"), (["explain", "R023"], ""), (["dialects", "-o", "json"], "1")],
)
@pytest.mark.skipif(sys.platform != "linux", reason="writes to /dev/full")
def test_output_to_a_full_disk_exits_with_3(arguments, unbuffered):
    result = run_in_shell(*arguments, redirection=f"> {FULL_DEVICE}", env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
    assert result.returncode == 3
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("redirection", [">&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_does_not_change_the_exit_code(redirection):
    result = run_in_shell("explain", "R023", redirection=redirection)
    assert (result.returncode, "Traceback" in result.stderr) == (0, False)
    assert run_in_shell("check", "-f", "none.yaml", redirection=redirection).returncode == 2
