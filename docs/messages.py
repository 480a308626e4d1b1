"""Collects what drawbridge says to people, for docs/messages.md: refusals, warnings, findings, events, log lines, helps of metrics.

A message is a text of three words or more that is passed to a call, assigned, yielded, returned, or a part of a table, a list or a
choice; `…` stands for what is filled in. Rows of vocabularies and options of commands have pages and helps of their own, and so have endpoints.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from docs.layout import wrapped
from docs.map import ROOMS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
MARKUP = ("<", "|", ":root{", ".free{", "*{")
ELSEWHERE = {"row", "Dialect", "WorkloadKind", "option", "Flag", "argument", "Endpoint", "compile", "re", "Path"}
HEAD = """# Messages

For writers and reviewers of messages: every text that drawbridge says to people, as it stands in the code, by file. `…`
stands for what is filled in. The sentences of CEL and of the embedded API server, which are Kubernetes' own, are not
here. `make generate` writes this page. How a message is written: [CONTRIBUTING.md](../CONTRIBUTING.md#house-style).
"""


def page() -> str:
    """Write the page."""
    parts = [HEAD]
    room = ""
    for path, found in collected():
        if path.parts[:2] in (("dra", "cel"), ("cluster", "embedded")):
            continue
        if path.parts[0] != room:
            room = path.parts[0]
            parts.append(f"\n## {room}\n")
        parts.append(f"\n`{path}`\n\n")
        parts += [f"{line}\n" for one in found for line in wrapped([f"- {one}"])]
    return "".join(parts)


@cache
def collected(root: Path = ROOT) -> list[tuple[Path, list[str]]]:
    """List the files that say something, with what they say."""
    paths = [path for room in ROOMS for path in sorted((root / room).rglob("*.py"))]
    said = [
        (path.relative_to(root), sorted(set(messages(ast.parse(path.read_text(encoding="utf-8")))))) for path in paths
    ]
    return [(path, found) for path, found in said if found]


def messages(tree: ast.Module) -> Iterator[str]:
    """List the messages of a module."""
    for node in ast.walk(tree):
        for one in said_by(node):
            said = re.sub(r"\s+", " ", text_of(one)).strip()
            if len(said.split()) > 2 and not said.startswith(MARKUP) and re.search(r"[a-z]{2,} [a-z]{2,}", said):
                yield re.sub(r"([*_<>\[\]`|\\])", r"\\\1", said)


def said_by(node: ast.AST) -> list[ast.expr]:
    """List what a node hands on: arguments of a call, members of a table or a list, choices, and what a function answers."""
    match node:
        case ast.Call(func=function, args=arguments, keywords=keywords) if name_of(function) not in ELSEWHERE:
            return [*arguments, *(keyword.value for keyword in keywords)]
        case ast.Dict(values=values):
            return values
        case ast.List(elts=members) | ast.Tuple(elts=members) | ast.Set(elts=members) | ast.BoolOp(values=members):
            return members
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.ListComp(elt=value) | ast.SetComp(elt=value) | ast.GeneratorExp(elt=value) | ast.Lambda(body=value):
            return [value]
        case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
            return [value]
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value) | ast.AugAssign(value=value):
            return [value]
    return []


def name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def text_of(node: ast.expr) -> str:
    """Read a text as it is in the code; "" of anything else."""
    match node:
        case ast.Constant(value=str(said)):
            return said
        case ast.JoinedStr(values=values):
            return "".join(text_of(value) if isinstance(value, ast.Constant) else "…" for value in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return text_of(left) + text_of(right)
        case ast.IfExp(body=body, orelse=orelse):
            return text_of(body) or text_of(orelse)
    return ""
