"""An estimate of the memory that a value takes, deterministic for equal values.

Thousands of objects arrive each second, so the estimate does not walk them in Python. It encodes the value as JSON and
counts characters in the text. A part that a value contains twice counts twice, although it takes memory once, so the
estimate is roughly an upper bound (`tests/dra/test_footprint.py`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from dra.quantity import Quantity
from dra.wire import Opaque

# Python's overhead in bytes for each: a quote of a string, a comma between members, a list, an object.
_COSTS = ((b'"', 20), (b",", 20), (b"[", 56), (b"{", 64))
_QUANTITY = "0" * 160


def footprint(value: object) -> int:
    """Estimate the bytes of a value made of wire types, containers and scalars."""
    text = msgspec.json.encode(value, enc_hook=_write)
    return len(text) + sum(text.count(sign) * cost for sign, cost in _COSTS)


def _write(value: Any) -> str:
    """Encode a value outside JSON as a text of about its size in memory."""
    if isinstance(value, Quantity):
        return _QUANTITY
    if isinstance(value, Opaque):
        return "0" * len(value.json)
    raise NotImplementedError(f"no footprint of {type(value)}")
