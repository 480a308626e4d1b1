"""The packages of the product, and the statements of a module."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["coverage"]["run"]["source"]
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def statements(tree):
    """Yield every statement of a module, without its expressions: nine of ten nodes are expressions, which contain no import or class."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        for field in BLOCKS:
            if isinstance(inner := getattr(node, field, None), list):  # the body of a lambda is an expression
                pending += inner
