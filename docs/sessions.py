"""Runs the commands of tutorials, and writes their current output below them.

In a block of code, each line that begins with `$ ` is a command. A block whose first line is `# NAME.yaml` is saved under this name.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# (\S+\.yaml)\n")


def with_outputs(text: str) -> str:
    """Return a page with the current output of its commands."""
    with example_folder() as folder:
        return BLOCK.sub(lambda block: block_with_outputs(block, folder), text)


@contextlib.contextmanager
def example_folder() -> Iterator[Path]:
    """Change into a temporary folder that has the examples at the same path as a checkout."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        shutil.copytree(ROOT / "manifests" / "examples", Path(name) / "manifests" / "examples")
        yield Path(name)


def block_with_outputs(block: re.Match[str], folder: Path) -> str:
    """Return a block with the current output of its commands. A block without commands stays unchanged; a manifest is saved."""
    body = block["body"]
    if file_name := FILE_NAME.match(body):
        (folder / file_name[1]).write_text(body, encoding="utf-8")
    if not body.startswith("$ "):
        return block[0]
    lines = [line for line in body.splitlines() if line.startswith("$ ")]
    return f"```{block['kind']}\n" + "".join(f"{line}\n{output_of(line[2:])}" for line in lines) + "```"


def output_of(line: str) -> str:
    """Run a command, and return its output as a terminal shows it. `> FILE` at the end writes standard output to the file instead."""
    from click.testing import CliRunner

    from cli.main import main

    program, *arguments = shlex.split(line, comments=True)
    if program != "drawbridge":
        raise ValueError(f"a page has the command {program}: only `drawbridge` is run here")
    file = None
    if ">" in arguments:
        arguments, (_, file) = arguments[:-2], arguments[-2:]
    result = CliRunner().invoke(main, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if "this is a bug in drawbridge" in result.output:
        raise RuntimeError(f"`{line}` breaks, so no page is written: {result.output}")
    if file is None:
        return result.output
    Path(file).write_text(result.stdout, encoding="utf-8")
    return result.stderr
