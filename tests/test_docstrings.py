"""A docstring names only what exists. A parameter that was renamed must not keep its former name there."""

import ast
import builtins
import keyword
import re

import pytest

from cli.main import COMMANDS
from tests.modules import PACKAGES
from tests.test_repository import ROOT
from webhook.dialects import Outcome
from webhook.state import Mode

NAME_IN_BACKTICKS = re.compile(r"`([a-z][a-z0-9_]+)`")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
# Names of commands and of values that users write, names of Python, and names that only YAML and CEL have.
KNOWN = {
    *COMMANDS,
    *Mode,
    *Outcome,
    *keyword.kwlist,
    *dir(builtins),
    "true",
    "custom",
    "has",
}


def texts_of(tree):
    return {part.value for part in ast.walk(tree) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def names_of_module(tree):
    """Return the names in a module that are not variables of its functions."""
    for part in ast.walk(tree):
        match part:
            case ast.ClassDef(name=name, body=body):
                yield name
                yield from (field.target.id for field in body if isinstance(field, ast.AnnAssign))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.alias(name=name):
                yield name
            case ast.Attribute(attr=name) | ast.keyword(arg=name):
                yield name


def unknown_names(tree, known):
    """Yield each name in the docstring of a function that neither the function nor `known` has."""
    for function in ast.walk(tree):
        if isinstance(function, FUNCTIONS):
            named = set(NAME_IN_BACKTICKS.findall(ast.get_docstring(function) or "")) - known
            if named:
                named -= {part.id for part in ast.walk(function) if isinstance(part, ast.Name)}
                named -= {part.arg for part in ast.walk(function) if isinstance(part, ast.arg)}
            yield from (f"{function.name}: {name}" for name in sorted(named))


@pytest.mark.whole
def test_names_in_docstrings_exist():
    unknown = []
    for package in PACKAGES:
        trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted((ROOT / package).rglob("*.py"))}
        texts = KNOWN.union(*map(texts_of, trees.values()))
        for path, tree in trees.items():
            known = texts | set(names_of_module(tree)) | set(path.with_suffix("").parts)
            # The docstring of a command is its help, which names the fields of its files.
            if path.parent.name != "commands":
                unknown += [f"{path.relative_to(ROOT)}: {name}" for name in unknown_names(tree, known)]
    assert unknown == []
