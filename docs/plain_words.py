"""Sentences that read as if translated, as regular expressions, and where they are not allowed: tests/test_house.py looks for them.

A sentence names its subject (a pod, the caller, the API server, another scheduler), and uses Kubernetes' words or those of docs/glossary.md.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

from docs.map import ROOMS

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent

# Nowhere in comments, docstrings, messages and pages.
NOWHERE = re.compile(
    r"three in the morning|what it is like here|the ringing|strangers are a crowd|told to do soon|who is nobody"
    r"|no claim can say it|two counts that do not pair|pass drawbridge by|than is looked at|which is none: "
    r"|the fence has not heard|not said of whom|looks? on and on|end who listens|is what is promised|what is to be said"
    r"|it is us who|the one that was meant|are no permissions|show who it is|the bytes are none|nobody's tenant"
    r"|had come to nothing|are shown expires|by new files of TLS|could not be called back|known to lead who"
)
# Nowhere in code, docs and pages. "there is no …" and "is no longer …" are English.
CONSTRUCTIONS = re.compile(
    r"\b((?:no|some|any|every)body|(?:some|any|every)one|no one|whoever|whom|strangers?)\b|\b(onlook\w+|nudge\w*|purse|gist|upkeep)\b"
    r"|\b(he|him|his)\b|(?<!there )\b(is|are) none\b|(?<!there )\bis no (?!longer\b|more\b)|\b(to|can|could) be had\b"
    r"|(?:^|[.;:] |, )who (?!is |are |holds|has|may)|\b(to|than|by|for|beside|at|before|after|behind|under) who\b"
    r"|\bit is (not )?said\b|\bis said (of|by|that)\b|\bnothing is said\b"
    # to fix, to learn of, to follow or use, forever, for nothing, to keep doing
    r"|\bmend(s|ed|ing)?\b|\bhears? of\b|\bgoes by\b|\bfor ever\b|\b(in vain|thereof)\b|\b(goes|go|went) on \w+ing\b",
    re.IGNORECASE,
)
TESTS = ("tests", "e2e", "bench")  # here the names of functions and the texts of checks and cases, too
AREAS = (*TESTS, "docs", *ROOMS)
SELF = (Path(__file__), ROOT / "tests" / "test_house.py")
OTHERS = (".go", ".yaml", ".yml")
GENERATED = ("kinds.md", "messages.md", "vocabularies.md", "findings.md", "metrics.md")


def found() -> Iterator[str]:
    """Name each line that has one of them."""
    for area in AREAS:
        for path in sorted((ROOT / area).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            rough = source.replace("_", " ")
            if path not in SELF and (CONSTRUCTIONS.search(rough) or NOWHERE.search(rough)):
                for number, line in prose(source, tests=area in TESTS):
                    if CONSTRUCTIONS.search(line) or NOWHERE.search(line):
                        yield f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
    for path in (path for area in (*AREAS, "bridge", "manifests") for path in sorted((ROOT / area).rglob("*.*"))):
        if path.suffix in OTHERS:
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                said = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", line)  # words of names
                if CONSTRUCTIONS.search(said) or NOWHERE.search(said):
                    yield f"{path.relative_to(ROOT)}:{number}: {said.strip()}"
    for page in [*(ROOT / "docs").glob("*.md"), *ROOT.glob("[CRS]*.md"), ROOT / "e2e" / "README.md"]:
        if page.name not in (*GENERATED, "CHANGELOG.md"):
            text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
            yield from (
                f"{page.name}: {line}"
                for line in text.splitlines()
                if CONSTRUCTIONS.search(line) or NOWHERE.search(line)
            )


def prose(source: str, *, tests: bool) -> Iterator[tuple[int, str]]:
    """List the lines of comments and docstrings; of tests also the names of functions and texts of several words."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if tests and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.lineno, node.name.replace("_", " ")
        if tests and isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from enumerate(node.value.split("\n"), node.lineno)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            first = node.body[0] if node.body else None
            match first:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield from enumerate(text.split("\n"), first.lineno)
