"""Ends `translate --in-place` by SIGKILL before its first file system change, then before its second one, and so on.

python -m tests.cli.killed FOLDER STEP prints a line of JSON for each STEP-th change: whether the runs were killed, and the files after the steps that
followed. The last line is about runs that were not killed, because they made fewer changes.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import cli.translated
import cli.undo
from cli.main import main

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.chmod"}


def run(*args, change_number=0):
    """Run a command in a child process, kill it before the change with this number (0: before none), and return its exit code."""
    pid = os.fork()
    if not pid:
        change_count = 0

        def watch(event, values):
            nonlocal change_count
            if event in CHANGES or (event == "open" and values[2] & os.O_CREAT):
                change_count += 1
                if change_count == change_number:
                    os.kill(os.getpid(), signal.SIGKILL)

        if change_number:
            sys.addaudithook(watch)
        sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  the process ends with it
        try:
            main(args, standalone_mode=False)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def files(folder):
    """Return the content of a folder: bytes and modes of files, and targets of links."""
    return {
        path.relative_to(folder).as_posix(): (
            str(path.readlink()) if path.is_symlink() else [path.read_bytes().hex(), path.stat().st_mode]
        )
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def undo_and_repeat(original, change_number):
    """Kill two runs before the same change; undo the first, and repeat and undo the second.

    Return whether the second was killed, and by the steps taken so far (such as "--in-place --undo"): the files.
    """
    outcome = {}
    for steps in (("--undo",), ("--in-place", "--undo")):
        tree = original.with_name("tree")
        for folder in (tree, Path(os.environ["XDG_STATE_HOME"])):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, tree, symlinks=True)
        os.chdir(tree)
        outcome["killed"] = run("translate", "--in-place", ".", change_number=change_number) == -signal.SIGKILL
        for step in steps:
            run("translate", step, ".")
            outcome[" ".join([*steps[: steps.index(step) + 1]])] = files(tree)
    return outcome


if __name__ == "__main__":
    assert cli.translated  # `translate` needs these imports; they are made once, before the forks
    original = Path(sys.argv[1]) / "original"
    os.environ |= {"XDG_STATE_HOME": str(original.with_name("state")), "PATH": ""}
    number, step = 1, int(sys.argv[2])
    is_killed = True
    while is_killed:
        outcome = undo_and_repeat(original, number)
        is_killed = outcome["killed"]
        print(json.dumps(outcome), flush=True)
        number += step
