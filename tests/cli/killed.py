"""Ends `translate --in-place` by SIGKILL before each of its file system changes, in a process of its own.

python -m tests.cli.killed FOLDER prints, for each change, the files after the run was undone, and after it was repeated.
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
    """Run a command in a child, kill it before the change with this number, and return its exit code."""
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
    """The content of a folder: bytes and modes of files, and targets of links."""
    return {
        path.relative_to(folder).as_posix(): (
            str(path.readlink()) if path.is_symlink() else [path.read_bytes().hex(), path.stat().st_mode]
        )
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def tried(original, before):
    """Return the files after a killed run was undone, and after another killed run was repeated and then undone."""
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
