"""Each top folder has a ceiling for its lines of code (`[tool.drawbridge.lines]` in pyproject.toml)."""

import ast
import io
import subprocess
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
WITHOUT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def count_lines(source):
    """Count the lines of a module that have code: without blank lines, comments and docstrings."""
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in WITHOUT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        may_have_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if may_have_docstring and ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            lines.difference_update(range(docstring.lineno, docstring.end_lineno + 1))
    return len(lines)


def excesses(lines, ceilings):
    """Yield a message for each room above its ceiling, and for each room or ceiling without the other."""
    for room in sorted(lines.keys() | ceilings.keys()):
        if room not in ceilings:
            yield f"{room}: {lines[room]} lines without a ceiling: add it to [tool.drawbridge.lines] in pyproject.toml"
        elif room not in lines:
            yield f"{room}: a ceiling without code: remove it from [tool.drawbridge.lines] in pyproject.toml"
        elif lines[room] > ceilings[room]:
            yield (
                f"{room}: {lines[room]} lines, ceiling {ceilings[room]}: shrink it or raise the ceiling with a reason"
            )


def test_no_room_has_more_lines_than_its_ceiling():
    ceilings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["drawbridge"]["lines"]
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = Counter()
    for path in filter(Path.exists, map(ROOT.joinpath, tracked.stdout.split())):
        lines[path.relative_to(ROOT).parts[0]] += count_lines(path.read_text(encoding="utf-8"))
    assert lines
    assert not [*excesses(lines, ceilings)]


MODULE = '''"""A docstring
of two lines."""

# a comment
TEXT = """one

three"""  # three lines of code


class A:
    """A docstring."""

    x = (
        1,  # a comment after code
        # a comment in an expression
    )
'''


def test_blank_lines_comments_and_docstrings_are_no_code():
    assert count_lines(MODULE) == 7


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({"dra": 10, "node": 20}, None),
        ({"dra": 9, "node": 20}, None),
        ({"dra": 11, "node": 20}, "dra: 11 lines, ceiling 10: shrink it or raise the ceiling with a reason"),
        ({"dra": 10, "node": 20, "new": 1}, "new: 1 lines without a ceiling"),
        ({"dra": 10}, "node: a ceiling without code"),
    ],
)
def test_a_room_above_its_ceiling_is_reported(lines, message):
    found = [*excesses(lines, {"dra": 10, "node": 20})]
    assert [text[: len(message)] for text in found] == [message] if message else found == []
