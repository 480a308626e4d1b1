"""How much memory a value takes, counted and not measured: the same for the same value on every run. Pure.

Objects come by the thousand a second, so nothing walks through them: a value is written as JSON, and what is in it is counted in
that text. What values share is counted for each, so this is about an upper bound (`tests/dra/test_footprint.py` compares).
"""

from __future__ import annotations

from typing import Any

import msgspec

from dra.quantity import Quantity
from dra.wire import Opaque

# What Python keeps for each of these beside the text itself: a string, a number or a field, a list, an object.
_COSTS = ((b'"', 20), (b",", 20), (b"[", 56), (b"{", 64))
_QUANTITY = "0" * 160


def footprint(value: object) -> int:
    """Count about the bytes of a value made of wire types, containers and scalars."""
    text = msgspec.json.encode(value, enc_hook=_write)
    return len(text) + sum(text.count(sign) * cost for sign, cost in _COSTS)


def _write(value: Any) -> str:
    """Stand for a value outside JSON by a text as long as what it takes."""
    if isinstance(value, Quantity):
        return _QUANTITY
    if isinstance(value, Opaque):
        return "0" * len(value.json)
    raise NotImplementedError(f"no footprint of {type(value)}")
