"""What may be said to whom: whoever reads a pod's events may read its namespace, and others' claims are not named there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dra.stock import Stock

_KEY = re.compile(r"[a-z0-9][-a-z0-9.]*/[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?")
STRANGER = "a claim of another namespace"


def discreet(sentence: str, stock: Stock, namespace: str) -> str:
    """Take the names of claims of other namespaces out of a sentence."""

    def hide(found: re.Match[str]) -> str:
        key = found[0]
        is_foreign = key in stock.claims and not key.startswith(f"{namespace}/")
        return STRANGER if is_foreign else key

    return _KEY.sub(hide, sentence)
