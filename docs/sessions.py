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
SAVED = re.compile(r"# (\S+\.yaml)\n")

# The commands that the picture in the README shows.
SHOWN = (
    "drawbridge translate -f app.yaml -o report",
    "drawbridge check -f big.yaml --inventory fleet.yaml",
    "drawbridge free -f cluster.yaml",
)
NAMED = {
    "app.yaml": "pods/nvidia-training.yaml",
    "big.yaml": "pods/never-too-many.yaml",
    "cluster.yaml": "why/dump.yaml",
    "fleet.yaml": "fleet/*.yaml",
}
# The size of a character in pixels, the characters of a line, and the seconds until a command and each line of its output appear.
WIDE, HIGH, COLUMNS = 8.4, 18, 100
TYPED, ANSWERED = 1.2, 0.06


def played(text: str) -> str:
    """Return a page with the current output of its commands."""
    with workshop() as folder:
        return BLOCK.sub(lambda block: answered(block, folder), text)


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """Change into a temporary folder that has the examples at the same path as a checkout."""
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        shutil.copytree(ROOT / "manifests" / "examples", Path(name) / "manifests" / "examples")
        yield Path(name)


def answered(block: re.Match[str], folder: Path) -> str:
    """Return a block with the current output of its commands. A block without commands stays unchanged; a manifest is saved."""
    body = block["body"]
    if saved := SAVED.match(body):
        (folder / saved[1]).write_text(body, encoding="utf-8")
    if not body.startswith("$ "):
        return block[0]
    lines = [line for line in body.splitlines() if line.startswith("$ ")]
    return f"```{block['kind']}\n" + "".join(f"{line}\n{typed(line[2:])}" for line in lines) + "```"


def typed(line: str) -> str:
    """Run a command, and return its output as a terminal shows it. `> FILE` at the end writes standard output to the file instead."""
    from click.testing import CliRunner

    from cli.main import main

    program, *words = shlex.split(line, comments=True)
    if program != "drawbridge":
        raise ValueError(f"a page has the command {program}: only `drawbridge` is run here")
    file = None
    if ">" in words:
        words, (_, file) = words[:-2], words[-2:]
    done = CliRunner().invoke(main, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    if "this is a bug in drawbridge" in done.output:
        raise RuntimeError(f"`{line}` breaks, so no page is written: {done.output}")
    if file is None:
        return done.output
    Path(file).write_text(done.stdout, encoding="utf-8")
    return done.stderr


def picture() -> str:
    """Return an SVG in which commands and their output appear one after another."""
    with workshop() as folder:
        for name, example in NAMED.items():
            parts = sorted((folder / "manifests/examples").glob(example))
            (folder / name).write_text(
                "---\n".join(part.read_text(encoding="utf-8") for part in parts), encoding="utf-8"
            )
        shown = "".join(f"$ {line}\n{typed(line)}\n" for line in SHOWN)
    rows: list[str] = []
    moment = 0.0
    for line in shown.splitlines():
        moment += TYPED if line.startswith("$ ") else ANSWERED
        for part in textwrap.wrap(line, COLUMNS, subsequent_indent=" " * 6) or [""]:
            place = f'x="12" y="{(len(rows) + 1) * HIGH + 6}" style="animation-delay:{moment:.2f}s"'
            rows.append(f'<text class="{"typed" if line.startswith("$ ") else "told"}" {place}>{escape(part)}</text>')
    width, height = round(COLUMNS * WIDE + 24), (len(rows) + 1) * HIGH
    style = (
        "text{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre;fill:#d0d7de;animation:show .1s backwards}"
        ".typed{fill:#fff;font-weight:bold}"
        "@keyframes show{from{opacity:0}}@media(prefers-reduced-motion:reduce),print{text{animation:none}}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"'
    title = "<title>drawbridge translates a manifest, checks it, and explains a refusal</title>"
    back = '<rect width="100%" height="100%" rx="8" fill="#161b22"/>'
    return f"{head}>{title}<style>{style}</style>{back}\n" + "\n".join(rows) + "\n</svg>\n"
