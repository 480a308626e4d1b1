"""`translate --in-place` ended by SIGKILL before each of its changes of the disk, in its own process.

python -m tests.cli.killed FOLDER prints, for each change, what was in the way of going on.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import analysis.translated
import analysis.undo
from cli.main import main

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.chmod"}


def run(*args, before=0):
    """Run a command in a child; kill it before so many changes were made. Say how it ended."""
    pid = os.fork()
    if not pid:
        seen = 0

        def watch(event, values):
            nonlocal seen
            if event in CHANGES or (event == "open" and values[2] & os.O_CREAT):
                seen += 1
                if seen == before:
                    os.kill(os.getpid(), signal.SIGKILL)

        if before:
            sys.addaudithook(watch)
        sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  the process ends with it
        try:
            main(args, standalone_mode=False)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def files(folder):
    """What a folder holds: bytes and modes of files, and where links lead."""
    return {
        path.relative_to(folder).as_posix(): (
            str(path.readlink()) if path.is_symlink() else [path.read_bytes().hex(), path.stat().st_mode]
        )
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def tried(original, before):
    """Kill a run, then undo it; kill another, then finish it, then undo that. Say what each led to."""
    trees = {}
    for way in (("--undo",), ("--in-place", "--undo")):
        tree = original.with_name("tree")
        for folder in (tree, Path(os.environ["XDG_STATE_HOME"])):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(original, tree, symlinks=True)
        os.chdir(tree)
        trees["killed"] = run("translate", "--in-place", ".", before=before) == -signal.SIGKILL
        for step in way:
            run("translate", step, ".")
            trees[" ".join([*way[: way.index(step) + 1]])] = files(tree)
    return trees


if __name__ == "__main__":
    assert analysis.translated
    original = Path(sys.argv[1]) / "original"
    os.environ |= {"XDG_STATE_HOME": str(original.with_name("state")), "PATH": ""}
    number = 0
    is_killed = True
    while is_killed:
        number += 1
        trees = tried(original, number)
        is_killed = trees["killed"]
        print(json.dumps(trees), flush=True)
