"""How dense code is: tokens a line, function by function. Comments and docstrings do not count, nor do lines without a token.

A string is one token, whatever stands in its braces: newer tokenizers take f-strings apart, and the figure must not depend on them.
"""

import ast
import io
import tokenize
from collections import Counter
from typing import NamedTuple

from docs.map import statements

LAYOUT = {
    tokenize.NEWLINE,
    tokenize.NL,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.COMMENT,
    tokenize.ENDMARKER,
}
# Python 3.12 and later; before, an f-string is a string like any other.
BEGINS = getattr(tokenize, "FSTRING_START", None)
ENDS = getattr(tokenize, "FSTRING_END", None)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Measured(NamedTuple):
    """A function: where it begins, how many lines of code it has, and how many tokens a line."""

    name: str
    line: int
    lines: int
    density: float


def functions(source):
    """Measure every function of a module, those in functions and classes included."""
    tree = ast.parse(source)
    tokens = tokens_by_line(source)
    for line in docstring_lines(tree):
        del tokens[line]
    for node in statements(tree):
        if isinstance(node, FUNCTIONS):
            counts = [tokens[line] for line in range(node.lineno, node.end_lineno + 1) if tokens[line]]
            yield Measured(node.name, node.lineno, len(counts), sum(counts) / len(counts))


def tokens_by_line(source):
    counts = Counter()
    depth = 0  # of f-strings
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if depth == 0 and token.type not in LAYOUT:
            counts[token.start[0]] += 1
        depth += token.type == BEGINS
        depth -= token.type == ENDS
    return counts


def docstring_lines(tree):
    lines = set()
    for node in statements(tree):
        if (
            isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Module))
            and ast.get_docstring(node, clean=False) is not None
        ):
            text = node.body[0]
            lines.update(range(text.lineno, text.end_lineno + 1))
    return lines
