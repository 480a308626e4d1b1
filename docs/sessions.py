"""Runs the commands of tutorials and of the README's picture, and writes their current output below them.

In a block of code, each line that begins with `$ ` is a command. A block whose first line is `# NAME.yaml` is saved under this name.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
import textwrap
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE_NAME = re.compile(r"# (\S+\.yaml)\n")

# The commands that the picture in the README shows.
README_COMMANDS = (
    "drawbridge translate -f app.yaml -o report",
    "drawbridge check -f big.yaml --inventory fleet.yaml",
    "drawbridge free -f cluster.yaml",
)
README_FILES = {
    "app.yaml": "pods/nvidia-training.yaml",
    "big.yaml": "pods/never-too-many.yaml",
    "cluster.yaml": "why/dump.yaml",
    "fleet.yaml": "fleet/*.yaml",
}
# The size of a character in pixels, the characters of a line, and the seconds until a command and each line of its output appear.
CHARACTER_WIDTH, LINE_HEIGHT, COLUMNS = 8.4, 18, 100
COMMAND_SECONDS, OUTPUT_SECONDS = 1.2, 0.06


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


def picture() -> str:
    """Return an SVG in which commands and their output appear one after another."""
    with example_folder() as folder:
        for name, example in README_FILES.items():
            parts = sorted((folder / "manifests/examples").glob(example))
            (folder / name).write_text(
                "---\n".join(part.read_text(encoding="utf-8") for part in parts), encoding="utf-8"
            )
        transcript = "".join(f"$ {line}\n{output_of(line)}\n" for line in README_COMMANDS)
    rows: list[str] = []
    seconds = 0.0
    for line in transcript.splitlines():
        seconds += COMMAND_SECONDS if line.startswith("$ ") else OUTPUT_SECONDS
        for part in textwrap.wrap(line, COLUMNS, subsequent_indent=" " * 6) or [""]:
            position = f'x="12" y="{(len(rows) + 1) * LINE_HEIGHT + 6}" style="animation-delay:{seconds:.2f}s"'
            rows.append(
                f'<text class="{"typed" if line.startswith("$ ") else "told"}" {position}>{escape(part)}</text>'
            )
    width, height = round(COLUMNS * CHARACTER_WIDTH + 24), (len(rows) + 1) * LINE_HEIGHT
    style = (
        "text{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre;fill:#d0d7de;animation:show .1s backwards}"
        ".typed{fill:#fff;font-weight:bold}"
        "@keyframes show{from{opacity:0}}@media(prefers-reduced-motion:reduce),print{text{animation:none}}"
    )
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
    title = "<title>drawbridge translates a manifest, checks it, and explains a refusal</title>"
    background = '<rect width="100%" height="100%" rx="8" fill="#161b22"/>'
    return f"{opening}>{title}<style>{style}</style>{background}\n" + "\n".join(rows) + "\n</svg>\n"
